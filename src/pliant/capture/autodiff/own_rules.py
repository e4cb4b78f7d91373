"""A custom function with a `vmap` staticmethod of its own, called below `torch.vmap`: that staticmethod is traced.

In:     the class, traced arguments of a call inside a mapped function.
Out:    the results for one sample; an `OwnMapped` module in the graph.
Holds:  the staticmethod is called as eager calls it: with whole batches, where the mapped function was called. Which arguments
        have a batch, and where, is what torch says when it maps what the function has done so far.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx
from torch.utils import _pytree as pytree

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.recording.regions import Region, Replay, are_tensors, flat, refilled, tensors_of, versions
from pliant.capture.signatures import Tracer
from pliant.capture.value_kinds import is_module, is_tensor, is_tuple
from pliant.errors import Unsupported
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.transforms import OwnMapped, rule_function
from pliant.records import dataclass
from pliant.torch_adapter import DisableTorchFunction, broadcast_to_tree

_NONE: Any = vars(torch.autograd.Function)["vmap"]
_Resolve = Callable[[Any], Any]  # of a traced value: what it is when the function is run


def has_own_rule(t: Tracer, cls: type) -> bool:
    """Whether the class has a `vmap` staticmethod."""
    return t.world.type_lookup(cls, "vmap") is not _NONE


def mapped_region(region: Region | None) -> Region | None:
    """The innermost function around that is mapped."""
    while region is not None and region.replay.transform != "vmap":
        region = region.parent
    return region


def differentiated_in_map(region: Region | None) -> bool:
    """Whether a derivative is taken inside the innermost function that is mapped."""
    while region is not None and not region.replay.transform:
        region = region.parent
    return region is not None and region.replay.transform == "derivative"


def by_own_rule(t: Tracer, cls: Any, inputs: list[Any]) -> tuple[Any, ...]:
    """What the call gives for one sample, in a tuple; an empty one where no argument has a batch."""
    if t.get_attr(cls, "generate_vmap_rule"):
        raise GraphBreak("tensor-error", f"{cls.__name__} has a vmap staticmethod and generate_vmap_rule")
    leaves, spec = flat(t, tuple(inputs))
    call = _seen(t, leaves, spec)
    if call is None:
        return ()
    rule = _traced(t, cls, leaves, spec, call)
    if differentiated_in_map(t.recorder.region):
        _check_derivatives(cls, rule.region, call)
    recorder, given = t.recorder, tensors_of(leaves)
    further = rule.region.lifted[len(given) :]
    values = [call.info.batch_size, *given, *further]
    dims = [dim for one, dim in zip(leaves, call.in_dims) if is_fake(one)]
    module = OwnMapped(rule.body, cls.__name__, (*dims, *[None] * len(further)), rule.dims)
    nodes = tuple(recorder.to_nodes(value) for value in values)
    samples = tuple([_sample(t, one, dim) for one, dim in zip(rule.outputs, rule.dims)])
    module.samples = samples
    recorder.append(recorder.graph.call_module(recorder.submodule(module, "mapped"), nodes), samples)
    return (refilled(rule.outputs, samples, rule.spec),)


def _check_derivatives(cls: Any, rule: Region, call: _Call) -> None:
    """Derivatives inside the map are those of the class, derivatives of these are those of what its rule calls."""
    around = rule.parent is not None and rule.parent.differentiated
    if around or any(one.requires_grad for one in tensors_of([*call.leaves, *rule.lifted])):
        raise GraphBreak("unsupported-operator", f"derivatives of derivatives through {cls.__name__}.vmap")


def _sample(t: Tracer, whole: FakeTensor, dim: int | None) -> FakeTensor:
    if dim is None:
        return whole.fake_mode.new(whole.size_, whole.stride_, whole.dtype_, whole.device_)
    with DisableTorchFunction(), torch.no_grad():
        return t.native(torch.select, whole, dim, 0)  # type: ignore[no-any-return]


# ---- the staticmethod
@dataclass(slots=True)
class _Rule:
    body: fx.GraphModule
    region: Region
    outputs: list[Any]
    dims: tuple[int | None, ...]
    spec: Any


def _traced(t: Tracer, cls: Any, leaves: list[Any], spec: Any, call: _Call) -> _Rule:
    mapped = mapped_region(t.recorder.region)
    assert mapped is not None
    replay = Replay(given=tensors_of(leaves), enter=_entering(leaves, spec))
    region = Region(t.recorder, differentiated=True, replay=replay, parent=mapped.parent)
    with region.active():
        batches = [region.fresh(one) if is_fake(one) else one for one in call.leaves]
        args = pytree.tree_unflatten(batches, spec)
        result = t.internalize(t.call(t.get_attr(cls, "vmap"), (call.info, call.in_tree, *args), {}))
        if not is_tuple(result) or len(result) != 2:
            raise GraphBreak("tensor-error", f"{cls.__name__}.vmap is to return (output, out_dims)")
        outputs, out_spec = flat(t, result[0])
        dims = broadcast_to_tree(result[1], out_spec)
        if dims is None or not are_tensors(outputs):
            raise GraphBreak("tensor-error", f"{cls.__name__}.vmap: results other than tensors, or out_dims that do not fit")
        body = region.close(outputs, f"{cls.__name__}_vmap")
    return _Rule(body, region, outputs, tuple(dims), out_spec)


def _entering(leaves: list[Any], spec: Any) -> Callable[[list[Any], Callable[[list[Any]], Any]], Any]:
    """How a run enters the staticmethod: by a call of a function below the same `vmap`."""

    def refuse(*given: Any) -> Any:
        raise Unsupported("no batch where the traced call had one")

    def enter(values: list[Any], run: Callable[[list[Any]], Any]) -> Any:
        def rule(info: Any, in_dims: Any, given: tuple[Any, ...]) -> Any:
            found = pytree.tree_leaves(given)
            return run([batch for batch, one in zip(found, leaves, strict=True) if is_fake(one)]), None

        function = rule_function("Entering", rule, refuse)
        return function.apply(*refilled(leaves, values, spec))  # type: ignore[no-untyped-call]

    return enter


# ---- what torch says of the arguments
@dataclass(slots=True)
class _Call:
    """What torch calls the staticmethod with: `leaves` of the arguments, `in_dims` of each, `in_tree` as it is given."""

    info: Any
    leaves: list[Any]
    in_dims: list[int | None]
    in_tree: Any


def _seen(t: Tracer, leaves: list[Any], spec: Any) -> _Call | None:
    """The call of the staticmethod, seen by running what the mapped function has done so far; None where there is none."""
    region, mapped = t.recorder.region, mapped_region(t.recorder.region)
    assert region is not None and mapped is not None
    found: list[_Call] = []

    def rule(info: Any, in_dims: Any, given: tuple[Any, ...]) -> Any:
        values, dims = pytree.tree_leaves(given), broadcast_to_tree(in_dims, spec)
        found.append(_Call(info, values, dims, in_dims))
        return next((v, d) for v, d in zip(values, dims) if d is not None)

    function = rule_function("Seen", rule, lambda *given: torch.zeros(()))

    def last(resolve: _Resolve) -> Any:
        values = [resolve(one) for one in tensors_of(leaves)]
        return function.apply(*refilled(leaves, values, spec))  # type: ignore[no-untyped-call]

    before = versions(region.readable)
    with DisableTorchFunction():
        t.native(_run, region, mapped.parent, last)
    if versions(region.readable) != before:
        raise GraphBreak("unsupported-operator", "a mapped function writes in place before a function with a vmap of its own")
    if found and not all(map(_is_plain, found[0].leaves)):
        raise GraphBreak("unsupported-tensor", "a batch inside a batch")
    return found[0] if found else None


def _is_plain(value: Any) -> bool:
    return is_fake(value) or not is_tensor(value)


def _run(region: Region | None, until: Region | None, then: Callable[[_Resolve], Any]) -> Any:
    """Run what was recorded in the regions inside `until`, outermost first, and `then` on what their values are."""
    if region is until or region is None:
        return then(lambda value: value)
    replay = region.replay
    inner = region

    def inside(outer: _Resolve) -> Any:
        lifted = inner.lifted
        if len(lifted) > len(replay.given) and inner.fresh_parameters > len(replay.given):
            raise GraphBreak("unsupported-operator", "a function with a vmap of its own in a part that is traced by itself")
        values = [outer(one) for one in (*replay.given, *lifted[len(replay.given) :])]
        return replay.enter(values, lambda given: then(_interpreted(inner, given, outer)))

    return _run(region.called_in, until, inside)


def _interpreted(region: Region, given: list[Any], outer: _Resolve) -> _Resolve:
    """What the region's values are, given its parameters."""
    interpreter = fx.Interpreter(_holder(region), garbage_collect_values=False, graph=region.graph)
    values = iter(given)
    for node in region.graph.nodes:
        interpreter.env[node] = next(values) if node.op == "placeholder" else interpreter.run_node(node)

    def resolve(value: Any) -> Any:
        if is_fake(value):
            return interpreter.env[value.node] if value.node.graph is region.graph else outer(value)
        return value

    return resolve


def _holder(region: Region) -> torch.nn.Module:
    """What holds the constants of the region's graph."""
    holder = torch.nn.Module()
    for name, value in region.constants.items():
        holder.add_module(name, value) if is_module(value) else object.__setattr__(holder, name, value)
    return holder
