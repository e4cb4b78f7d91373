"""How each output of a captured program relates to its inputs and to the other outputs.

In:     the fakes a traced program returned, and the fakes of its inputs.
Out:    `OutputPlan`: what the graph computes (`results`), which inputs it writes, and how the caller's outputs are
        made of both.
Holds:  outputs that share memory in eager share it after the plan is followed, with the same autograd relation; two
        outputs that are one object stay one object.
Reads on: `runtime.py`, which follows the plan.
"""

from __future__ import annotations

import dataclasses
from dataclasses import field
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from pliant.autograd.aliases import Alias
from pliant.autograd.history import function_since, has_accumulator, is_refused
from pliant.autograd.places import FromInput, FromResult, Literal, Output, SameAs, ViewOf
from pliant.autograd.views import ViewStep, overlaps_itself, version
from pliant.errors import Unsupported
from pliant.graph.contracts import GraphInput
from pliant.graph.fake_tensor import FakeTensor
from pliant.records import dataclass
from pliant.torch_adapter import minds_writes


class UnsupportedAliasing(Unsupported):
    """Memory is shared in a way that a graph of values cannot follow."""


class LastingWrite(UnsupportedAliasing):
    """What may fail on its data comes after a write that autograd records: eager could not run the call anew. `places`:
    where such writes are in the program."""

    def __init__(self, what: str, places: frozenset[str]) -> None:
        super().__init__(what, kind="returned-intermediate")
        self.places = places


@dataclass(frozen=True, slots=True)
class InputWrite:
    """An input that is to hold a new value. `in_graph`: nobody's autograd history records it, so the graph writes it;
    otherwise the value is result `position` and the caller copies it under autograd. `counted`: how many writes
    the tensor's version is to show."""

    input: int
    in_graph: bool
    position: int = -1
    counted: int = 1


@dataclass(slots=True, eq=False)
class OutputPlan:
    """`results`: fakes, symbols or numbers the graph returns. `differentiable`: positions whose gradient may be
    asked for. `inference`: positions of those that are to be inference tensors. `inner`: results in the memory of an
    input or of another result, with a history that no view gives them: a custom function's.
    """

    outputs: list[Output] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    writes: list[InputWrite] = field(default_factory=list)
    differentiable: list[int] = field(default_factory=list)
    inference: list[int] = field(default_factory=list)
    inner: dict[int, ViewOf] = field(default_factory=dict)
    moved: dict[int, int] = field(default_factory=dict)  # outputs, by place, that are made with results in their memory
    places: dict[int, int] = field(default_factory=dict)  # of each output tensor, by `id`
    early: list[int] = field(default_factory=list)  # places of views of inputs that are made before these are written
    first: list[int] = field(default_factory=list)  # places of views of inputs that are made before the program runs

    def add_result(self, value: Any) -> int:
        """The position of a graph result; asked for twice, a tensor is returned once."""
        for position, known in enumerate(self.results):
            if known is value:
                return position
        self.results.append(value)
        if type(value) is FakeTensor and value.requires_grad and function_since(value) is not None:
            self.differentiable.append(len(self.results) - 1)
        elif type(value) is FakeTensor and value.node.base.inference:
            self.inference.append(len(self.results) - 1)
        return len(self.results) - 1


def plan_outputs(outputs: tuple[Any, ...], inputs: list[Any], histories: list[Any]) -> OutputPlan:
    """The plan for these outputs. `histories`: the `grad_fn` of each input before the program ran."""
    plan = OutputPlan()
    _plan_writes(plan, inputs, histories)
    shared = _bases_of_several(outputs)
    for position, value in enumerate(outputs):
        if type(value) is FakeTensor:
            plan.places.setdefault(id(value), position)
    for position, value in enumerate(outputs):
        first = plan.places.get(id(value), position)
        plan.outputs.append(_plan_output(plan, value, inputs, shared) if first == position else SameAs(first))
    for position, made in plan.moved.items():
        plan.outputs[position] = FromResult(made)
    given = _given_to_caller(outputs, inputs)
    plan.differentiable = [one for one in plan.differentiable if id(plan.results[one]) in given]
    recorded = {write.input for write in plan.writes if not write.in_graph}
    _check_inner(plan, recorded)
    plan.early = [place for place, value in enumerate(outputs) if _is_early(value, plan.outputs[place], recorded)]
    plan.first = _noted_first(plan, outputs)
    if any(type(one) is FakeTensor and is_refused(one) and place not in plan.first for place, one in enumerate(outputs)):
        raise UnsupportedAliasing("a view that autograd refuses, as it was written, is not one of inputs", kind="refused-view")
    return plan


def _given_to_caller(outputs: tuple[Any, ...], inputs: list[Any]) -> set[int]:
    """By id, what the caller gets, or gets a view with gradients of. What is detached of one several times shares its memory."""
    views = [one for one in outputs if type(one) is FakeTensor and one.requires_grad]
    return {*map(id, outputs), *map(id, inputs), *(id(one.node.base.fake) for one in views)}


def _noted_first(plan: OutputPlan, outputs: tuple[Any, ...]) -> list[int]:
    """The views of inputs that autograd notes before what the graph does: before the functions of all results, as the
    engine gets to an input behind them last; or before writes, after which they have another history."""
    times = [plan.results[position].grad_fn._sequence_nr() for position in plan.differentiable]
    found: list[int] = []
    for place, output in enumerate(plan.outputs):
        if type(output) is ViewOf and _is_of_inputs(output, outputs[place].node, found):
            view = outputs[place]
            alias, function = view.node, function_since(view)
            if alias.base.version:
                leads_nowhere = not view.requires_grad and not alias.base.fake.requires_grad
                refused = is_refused(view) and not _is_one_of_several(alias)
                is_first = _is_older(alias) and (leads_nowhere or refused)
            else:
                is_first = bool(times) and function is not None and function._sequence_nr() < min(times)
            found += [place] if is_first else []
    return found


def _is_of_inputs(view: ViewOf, alias: Alias, made: list[int]) -> bool:
    """Whether it can be made of the inputs and of outputs that are `made` before the program has run."""
    if alias.base.input is None or not all(step.counted for step in view.steps):
        return False
    if type(view.source) is SameAs and view.source.output not in made:
        return False
    return not any(type(one) is FromResult for step in view.steps for one in tree_leaves(list(step.args)))


def _check_inner(plan: OutputPlan, recorded: set[int]) -> None:
    """Refuse a custom function's view of an input that the caller is to write after that view is made."""
    for view in plan.inner.values():
        apart = any(step.func is torch.ops.aten.detach.default for step in view.steps)
        if not apart and type(view.source) is FromInput and view.source.input in recorded:
            what = "a custom function returns a view of an input that is written"
            raise UnsupportedAliasing(what, kind="returned-intermediate")


def _is_older(alias: Alias) -> bool:
    """Whether it is a view from before a write, which autograd knows from then on as a view of the base alone."""
    return alias.born < alias.base.counted


def _is_early(value: Any, output: Output, recorded: set[int]) -> bool:
    """Whether it is a view from before a write that autograd records: its history goes around the tensor that it was made of."""
    if type(output) is not ViewOf:
        return False
    alias: Alias = value.node
    return alias.base.input in recorded and alias.born < alias.base.version


def _plan_writes(plan: OutputPlan, inputs: list[Any], histories: list[Any]) -> None:
    for position, (fake, history) in enumerate(zip(inputs, histories)):
        if type(fake) is not FakeTensor or fake.node.base.version == 0:
            continue
        counted = max(1, version(fake)) if fake.node.base.counted else 0
        if fake.requires_grad and fake.grad_fn is not history:
            plan.writes.append(InputWrite(position, False, plan.add_result(fake), counted))
        else:
            plan.writes.append(InputWrite(position, in_graph=True, counted=counted))


def _bases_of_several(outputs: tuple[Any, ...]) -> set[int]:
    """Ids of the bases on which several different outputs lie."""
    owner: dict[int, int] = {}
    several = set()
    for value in outputs:
        if type(value) is FakeTensor:
            base = id(value.node.base)
            if owner.setdefault(base, id(value)) != id(value):
                several.add(base)
    return several


def _plan_output(plan: OutputPlan, value: Any, inputs: list[Any], shared: set[int]) -> Output:
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return FromResult(plan.add_result(value))
    if type(value) is not FakeTensor:
        return Literal(value)
    alias: Alias = value.node
    base = alias.base
    if base.input is not None:
        if value is inputs[base.input]:
            return FromInput(base.input)
        return _view_of(plan, FromInput(base.input), alias, base.fake)
    if alias.parent is not None and (id(base) in shared or _is_one_of_several(alias) or _differs_from_value(alias)):
        made = plan.add_result(base.fake)
        return _view_of(plan, FromResult(made, leaf=_is_leaf(base.fake)), alias, base.fake)
    return FromResult(plan.add_result(value), leaf=_is_leaf(value))


def with_gradients(outputs: tuple[Any, ...], given: set[int]) -> list[FakeTensor]:
    """The outputs that the caller may ask for gradients or hook, less those that were `given`, by `id`."""
    own = [one for one in outputs if type(one) is FakeTensor and id(one) not in given]
    return [one for one in own if one.requires_grad and not is_refused(one)]


def _is_leaf(tensor: FakeTensor) -> bool:
    return tensor.requires_grad and not is_refused(tensor) and tensor.grad_fn is None


def _is_one_of_several(alias: Alias) -> bool:
    """Whether autograd knows it as a result of a call with several views, which the caller may not write."""
    if not alias.fake.requires_grad:
        return False
    return any(step.index is not None and step.grad_enabled for step in alias.steps())


def _differs_from_value(alias: Alias) -> bool:
    """Whether autograd has rules for it as a view: made by a custom function, or while nothing was recorded. Or its
    elements are conjugated or negated only when they are read."""
    if alias.fake.spec.lazy:
        return True
    if function_since(alias.fake) is not None:
        return not all(map(_keeps_history, alias.steps()))
    return alias.fake.requires_grad and _inherits(alias)


def _inherits(alias: Alias) -> bool:
    """Whether it requires grad because its base does, though it has no history, and was not made a leaf of its own."""
    detach = torch.ops.aten.detach.default
    inherits = alias.base.fake.requires_grad and all(step.func is not detach for step in alias.steps())
    return inherits and not (_is_leaf(alias.fake) and has_accumulator(alias.fake))


def _is_of_leaf(alias: Alias) -> bool:
    """Whether it requires grad as a view, made in inference mode, of a leaf that does not belong to the mode: its fake does
    belong to it."""
    origin = alias
    while origin.parent is not None and origin.step is not None and origin.step.func is not torch.ops.aten.detach.default:
        origin = origin.parent
    return alias.fake.is_inference() and not origin.fake.is_inference() and _is_leaf(origin.fake)


def _view_of(plan: OutputPlan, source: FromInput | FromResult, alias: Alias, base: FakeTensor) -> Output:
    origin, viewed = alias.parent, base
    start: FromInput | FromResult | SameAs = source
    steps = alias.steps()
    depth = len(steps) - 1
    around = _is_older(alias)
    while origin is not None and origin.parent is not None:
        if id(origin.fake) in plan.places and (not around or _is_renamed(origin)):  # its own history leads through that output
            start, viewed, steps = SameAs(plan.places[id(origin.fake)]), origin.fake, steps[depth:]
            break
        around = around or _is_older(origin)  # what was made of such a view goes the way that it goes
        origin, depth = origin.parent, depth - 1
    function = function_since(alias.fake)
    if function is None and _inherits(alias):  # from a base that need not have required grad when it was made
        steps = tuple(dataclasses.replace(step, grad_enabled=False) for step in steps)
    leaf = (_is_leaf(alias.fake) or _is_of_leaf(alias)) and not _inherits(alias)
    if function is None or viewed.requires_grad and all(map(_keeps_history, steps)):
        if _is_renamed(alias):
            steps = tuple(dataclasses.replace(step, func=_IN_PLACE[step.func]) for step in steps)
        return ViewOf(start, tuple(_with_results(plan, step) for step in steps), leaf, around)
    if alias.fake.spec.lazy:
        raise UnsupportedAliasing("a custom function returns what is conjugated when it is read", kind="lazy-view")
    return _inner_result(plan, source, alias)


def _inner_result(plan: OutputPlan, source: FromInput | FromResult, alias: Alias) -> Output:
    """A custom function's view as a result that is made with it: of a tensor without its base's history that is returned,
    too, if it is a view of such a one."""
    steps, detached = alias.steps(), _detached(alias)
    if detached is not None and not detached.fake.requires_grad and id(detached.fake) in plan.places:
        first = detached.steps()
        made = plan.add_result(detached.fake)
        plan.inner[made] = ViewOf(source, tuple(_with_results(plan, step) for step in first))
        plan.moved[plan.places[id(detached.fake)]] = made
        source, steps = FromResult(made), steps[len(first) :]
    position = plan.add_result(alias.fake)
    plan.inner[position] = ViewOf(source, tuple(_with_results(plan, step) for step in steps))
    return FromResult(position)


_aten = torch.ops.aten
# What changes the shape of a tensor in place, by the view that the graph has in its stead.
_IN_PLACE: dict[Any, Any] = {
    _aten.unsqueeze.default: _aten.unsqueeze_.default, _aten.squeeze.default: _aten.squeeze_.default, _aten.squeeze.dim: _aten.squeeze_.dim,
    _aten.squeeze.dims: _aten.squeeze_.dims, _aten.t.default: _aten.t_.default, _aten.transpose.int: _aten.transpose_.default,
    _aten.as_strided.default: _aten.as_strided_.default,
}  # fmt: skip


def _is_renamed(alias: Alias) -> bool:
    """Whether it is what the base's own tensor, which the program made, became."""
    steps, origin = 0, alias
    while origin.parent is not None:
        if not origin.in_place or origin.step is None or origin.step.func not in _IN_PLACE:
            return False
        origin, steps = origin.parent, steps + 1
    return steps > 0 and alias.base.input is None


def _detached(alias: Alias) -> Alias | None:
    """The nearest tensor that it is a view of and that was made by `detach`."""
    origin: Alias | None = alias.parent
    while origin is not None and (origin.step is None or origin.step.func is not torch.ops.aten.detach.default):
        origin = origin.parent
    return origin


def _keeps_history(step: ViewStep) -> bool:
    return step.grad_enabled and step.func is not torch.ops.aten.detach.default


def _with_results(plan: OutputPlan, step: ViewStep) -> ViewStep:
    """The step with symbols replaced by results of the graph, which evaluates them."""

    def swap(value: Any) -> Any:
        if isinstance(value, torch.SymInt):
            return FromResult(plan.add_result(value))
        return [swap(v) for v in value] if isinstance(value, (list, tuple)) else value

    return dataclasses.replace(step, args=tuple(swap(a) for a in step.args))


def check_overlap(inputs: list[GraphInput], written: set[int]) -> None:
    """Refuse a program that writes an input whose memory another input shares, or whose elements share some."""
    if not written:
        return
    for position in written:
        example = inputs[position].example
        if _is_real(example) and overlaps_itself(example):
            raise UnsupportedAliasing(
                f"input `{inputs[position].name}` is written and some of its elements are one in memory",
                kind="aliased-inputs",
            )
    found = _first_shared(inputs, written)
    if found is None:
        found = _first_tied(inputs, written)
    if found is not None:
        raise UnsupportedAliasing(
            f"input `{inputs[found].name}` and another share memory, and one is written", kind="aliased-inputs"
        )


def _first_shared(inputs: list[GraphInput], written: set[int]) -> int | None:
    """An input whose elements lie among those of another, where one of both is written."""
    spans = [(*span, i) for i, one in enumerate(inputs) if (span := _memory(one.example)) is not None]
    reach = reach_of_written = -1
    for first, last, i in sorted(spans):
        if first <= reach_of_written or i in written and first <= reach:
            return i
        reach = max(reach, last)
        if i in written:
            reach_of_written = max(reach_of_written, last)
    return None


def _first_tied(inputs: list[GraphInput], written: set[int]) -> int | None:
    """An input that a write of another concerns though no element is shared: see `minds_writes`."""
    owners: dict[int, list[int]] = {}
    for i, one in enumerate(inputs):
        owner = storage_of(one.example)
        if owner is not None:
            owners.setdefault(owner, []).append(i)
    for group in owners.values():
        changed = written.intersection(group)
        empty = {i for i in changed if not inputs[i].example.numel()}
        for i in group:
            if empty - {i} or changed - {i} and minds_writes(inputs[i].example):
                return i
    return None


def storage_of(tensor: Any) -> int | None:
    """Which storage a real tensor's elements lie in."""
    return tensor.untyped_storage()._cdata if _is_real(tensor) else None


def _is_real(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and type(tensor) is not FakeTensor and tensor.layout is torch.strided


def _memory(tensor: Any) -> tuple[int, int] | None:
    """First and last address of a real tensor's elements."""
    if not _is_real(tensor) or tensor.numel() == 0:
        return None
    start = tensor.data_ptr()
    if start == 0:
        return None
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return start, start + (last + 1) * tensor.element_size() - 1
