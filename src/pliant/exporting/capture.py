"""`export`: from a model and an example call to a program.

In:     a module or function, arguments, what is said of their sizes.
Out:    an `Exported`. Gradients are off while the model is followed; in training, the graph computes those of its loss.
Holds:  a statement that would break a compiled graph is the same error here. Of sizes, everything that the program needs
        beyond what was said is told at once, with the lines that need it and a `dynamic_shapes` with which this very
        export was tried and worked.
Reads on: `symbols.py`, `constraints.py`, `assemble.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, get_args

import torch

from pliant import config
from pliant.autograd.joint import JointGraph, trace_joint
from pliant.capture.attempt import whole
from pliant.capture.trace import SetItem, Trace
from pliant.debug import events
from pliant.errors import ConfigError, ConstraintError, ExportError, GraphBreakError, Unsupported
from pliant.exporting.assemble import changes, program_of
from pliant.exporting.constraints import Judgement, advice, advice_text, fixed_places, judge, names_of
from pliant.exporting.dims import STATIC, TensorSizes
from pliant.exporting.example import Example, example_of
from pliant.exporting.exported import Exported
from pliant.exporting.program import Program
from pliant.exporting.settled import as_stored, attributes_stored, is_same, stores_alike, tried
from pliant.exporting.symbols import Place, Sizes, hints_of, larger_hints, places_of, small_sizes, values_of
from pliant.exporting.training import NO_LOSS, no_loss, training_step
from pliant.gc_pause import GcPause
from pliant.graph.contracts import CapturedGraph
from pliant.graph.late_module import LateModule
from pliant.graph.unbacked import check
from pliant.records import dataclass
from pliant.symbolic.final_guards import ShapeGuard
from pliant.symbolic.printer import to_python
from pliant.symbolic.shape_env import ShapeEnv
from pliant.torch_adapter import append_node, without_saved_tensor_hooks

Beyond = Literal["check", "specialize", "refuse"]
Said = Mapping[int, TensorSizes]
_TRIES = 4


def export(
    model: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any] | None, dynamic_shapes: Any, beyond: Beyond,
    training: bool,
) -> Exported:
    """The program of `model(*args, **kwargs)`; in training, of that and the gradients of its loss."""
    if beyond not in get_args(Beyond):
        do = 'pass "check", "specialize" or "refuse"'
        raise ConfigError(f"beyond cannot be {beyond!r}", kind="wrong-type", why="it is a word", do=do)
    example = example_of(model, training_step(model) if training else model, args, kwargs or {})
    options = config.get().with_options({"duck_sizing": False, "symbols": True})
    with GcPause(), without_saved_tensor_hooks(), config.use(options), torch.no_grad():
        said = example.said(dynamic_shapes)
        with events.stage("export", name=type(model).__name__):
            try:
                return _exported(example, said, beyond)
            except GraphBreakError as error:
                if training and NO_LOSS in error.what:
                    raise no_loss() from None
                raise


def _exported(example: Example, said: Said, beyond: Beyond, notes: tuple[str, ...] = ()) -> Exported:
    attempt = _attempt(example, said)
    if matters := attempt.alike():
        attempt.traced.forget()
        return _exported(example.merged(matters), _said_of_one(example, said, matters), beyond, notes)
    judgement = judge(attempt.sizes)
    if judgement.violations or (beyond == "refuse" and judgement.beyond):
        raise _violated(example, said, attempt, judgement, beyond)
    if beyond == "specialize" and judgement.beyond:
        fixed, told = _specialized(said, attempt, judgement.beyond)
        _tell(told)
        return _exported(example, fixed, beyond, (*notes, *told))
    attempt.checked(judgement.beyond)
    return attempt.program((*notes, *judgement.notes))


@dataclass(slots=True, eq=False)
class _Attempt:
    """One capture, through the joint stage."""

    example: Example
    sizes: Sizes
    traced: Trace
    joint: JointGraph

    def alike(self) -> list[tuple[int, ...]]:
        """Arguments that are one tensor in the caller's example, which matters: the model asks, or writes it."""
        leaves, inputs = self.example.leaves, self.joint.captured.inputs
        written = {id(one.example) for node, one in zip(self.joint.primals, inputs) if node in self._written()}
        asked = [{*pair} for pair in self.sizes.apart]

        def matters(group: tuple[int, ...]) -> bool:
            ids = {id(leaves[place]) for place in group}
            return len(ids) > 1 and (not ids.isdisjoint(written) or any(pair <= ids for pair in asked))

        return [group for group in self.example.alike() if matters(group)]

    def not_of_example(self) -> list[ShapeGuard]:
        """What holds for the sizes that were captured with, in place of 0 and 1, and not for the example's."""
        return [guard for guard in self.sizes.needed() if not self.sizes.takes_example(guard)]

    def _written(self) -> set[Any]:
        return {node.args[0] for node in self.joint.graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)}

    def checked(self, guards: Sequence[ShapeGuard]) -> None:
        """Have the graph check these facts first."""
        names = names_of(self.sizes)
        first = next(n for n in self.joint.graph.nodes if n.op != "placeholder")
        for guard in guards:
            message = f"the program holds only where {to_python(guard.expr, names)}\n  {guard.origin or ''}".rstrip()
            env = self.joint.captured.shape_env
            with self.joint.graph.inserting_before(first):
                condition = env.as_written(guard.expr)
                node = append_node(self.joint.graph, "call_function", check, (condition, "RuntimeError", message), {}, "check")
            node.meta.update(val=None, stage="forward")

    def program(self, notes: Sequence[str]) -> Exported:
        try:
            stored = attributes_stored(self.traced)
            found = self._assembled(notes, stored)
            if stored and not self._is_settled(found, stored):
                raise changes(stored[0], self.traced)
            return Exported.of(found)
        finally:
            self.traced.forget()

    def _assembled(self, notes: Sequence[str], stored: Sequence[SetItem]) -> Program:
        return program_of(self.example, self.traced, self.joint, self.sizes, names_of(self.sizes), notes, stored)

    def _is_settled(self, program: Program, stored: Sequence[SetItem]) -> bool:
        """Whether a call behind this one is the same program, and leaves these attributes as this one did."""
        return all(self._goes_on_as(program, stored, more) for more in tried(stored))

    def _goes_on_as(self, program: Program, stored: Sequence[SetItem], more: int) -> bool:
        with as_stored(stored, more):
            again = _captured(self.example, Sizes(self.sizes.places, self.sizes.hints, self.sizes.copies))
            try:
                again.checked(judge(again.sizes).beyond)
                later = attributes_stored(again.traced)
                return stores_alike(later, stored) and is_same(program, again._assembled(program.notes, later))
            except (GraphBreakError, ExportError):
                return False
            finally:
                again.traced.forget()


def _said_of_one(example: Example, said: Said, groups: Sequence[tuple[int, ...]]) -> Said:
    """What is said, where the tensors of each group are one."""
    for group in groups:
        first, *others = (said[id(example.leaves[place])] for place in group)
        for other in others:
            if other.sizes != first.sizes:
                raise ConstraintError(
                    f"`{first.path}` and `{other.path}` are one tensor, and other sizes of it vary", kind="dynamic-shapes",
                    why="the model asks whether they are one, or writes it", do="say the same of both, or pass different tensors",
                    doc="docs/export.md#calling",
                )  # fmt: skip
    return said


def _attempt(example: Example, said: Said) -> _Attempt:
    """A capture; with the example's own sizes where the program cannot have others than 0 or 1, or is another one for them that
    needs no more of sizes than was said. Sizes that the program makes of a Dim may be 0 or 1 in the example, too: then a larger
    Dim, if the program so made is right for the example."""
    places = places_of(example.tensors, said)
    values = values_of(places)
    taken = {n for tensor in example.tensors for n in tensor.shape} | set(values.values())
    try:
        found = _captured_at(example, places, hints_of(values, places, taken))
    except (GraphBreakError, ExportError):
        return _captured_at(example, places, values)
    if found.not_of_example():
        return _or_better(found, example, places, values, lambda own: not judge(own.sizes).violations)
    larger, count = larger_hints(found.sizes), len(list(small_sizes(found.sizes)))
    if larger is None:
        return found
    return _or_better(
        found, example, places, larger, lambda one: len(list(small_sizes(one.sizes))) < count and not one.not_of_example()
    )


def _or_better(
    found: _Attempt, example: Example, places: Sequence[Place], hints: Mapping[str, int], is_better: Callable[[_Attempt], bool]
) -> _Attempt:
    """A capture with these values of Dims, if there is one that is better."""
    try:
        again = _captured_at(example, places, hints)
    except (GraphBreakError, ExportError):
        return found
    kept, dropped = (again, found) if is_better(again) else (found, again)
    dropped.traced.forget()
    return kept


def _captured_at(example: Example, places: Sequence[Place], hints: Mapping[str, int]) -> _Attempt:
    """A capture with these values of Dims."""
    if hints == values_of(places):
        return _captured(example, Sizes(places, hints))
    resized = example.resized(places, hints)
    ids = {id(old): id(new) for old, new in zip(example.leaves, resized.leaves, strict=True)}
    return _captured(resized, Sizes([dataclasses.replace(place, tensor=ids[place.tensor]) for place in places], hints))


def _captured(example: Example, sizes: Sizes) -> _Attempt:
    args, kwargs = example.call
    traced = whole(example.run, args, kwargs, sizes)
    captured = traced.graph if traced.graph is not None else _nothing(traced)
    captured.attributes["whole"] = True
    try:
        joint = trace_joint(captured)
    except Unsupported as error:
        raise ExportError(
            f"the graph cannot be made: {error.what}", kind=error.kind, where=error.where, why=error.why, do=error.do
        ) from None
    assert isinstance(joint, JointGraph)
    if joint.copies_show:
        traced.forget()
        return _captured(example, Sizes(sizes.places, sizes.hints, copies=False))
    if sizes.env is not captured.shape_env:
        sizes.start(captured.shape_env)
    return _Attempt(example, sizes, traced, joint)


def _nothing(traced: Trace) -> CapturedGraph:
    """The graph of a model that computes nothing with tensors: it may return those that it is given."""
    from torch import fx

    graph = fx.Graph()
    inputs = [one for one in traced.inputs if one.kind == "tensor"]
    for one in inputs:
        append_node(graph, "placeholder", one.name, (), {}, one.name).meta["val"] = one.fake
    graph.output(())
    env = next((one.fake.fake_mode.shape_env for one in inputs), None) or ShapeEnv(duck_shape=False)
    return CapturedGraph(LateModule({}, graph), inputs, env, grad_enabled=False)


def _specialized(said: Said, attempt: _Attempt, guards: list[ShapeGuard]) -> tuple[Said, list[str]]:
    """What is said, with the sizes of these guards fixed; and what to tell of it."""
    names = names_of(attempt.sizes)
    told = [f"{to_python(g.expr, names)} is no constraint of a Dim: {g.origin or ''}" for g in guards]
    fixed_at = {(place.path, place.dim) for place in fixed_places(guards, attempt.sizes)}
    fixed = {
        tensor: TensorSizes(one.path, tuple(STATIC if (one.path, d) in fixed_at else s for d, s in enumerate(one.sizes)))
        for tensor, one in said.items()
    }
    return fixed, told


def _tell(told: list[str]) -> None:
    """Say which facts had sizes fixed."""
    for text in told:
        events.record("export_specialized", why=text)
    message = "sizes of an exported program were fixed\n  " + "\n  ".join(told)
    events.warn_once("export-specialized:" + "".join(told), message)


def _violated(example: Example, said: Said, attempt: _Attempt, judgement: Judgement, beyond: Beyond) -> ConstraintError:
    """Every violation, and what to say instead."""
    found = [*map(str, judgement.violations)]
    names = names_of(attempt.sizes)
    for guard in judgement.beyond if beyond == "refuse" else ():
        found.append(f"{to_python(guard.expr, names)} is needed, which no Dim says\n  {guard.origin or ''}")
    advised = _advised(example, said, attempt, beyond)
    do = "paste\n" + advice_text(example.arguments, advised) if advised is not None else "make these sizes AUTO or STATIC"
    if beyond == "refuse" and judgement.beyond:
        do = 'pass `beyond="check"`, with which calls check what no Dim says, or ' + do
    if attempt.not_of_example():
        do = "pass an example of such sizes, or " + do
    return ConstraintError(
        "the program needs more of its sizes than `dynamic_shapes` says", kind="constraints", why="\n".join(found), do=do,
        doc="docs/export.md#violations",
    )  # fmt: skip


def _advised(example: Example, said: Said, attempt: _Attempt, beyond: Beyond) -> Said | None:
    """Sizes with which the export works, as far as can be found."""
    for number in range(_TRIES):
        said = _by_path(advice(attempt.sizes, _by_path_of(said, attempt), number > 0), said)
        guards = [*attempt.not_of_example(), *(judge(attempt.sizes).beyond if beyond == "refuse" else ())]
        if guards:
            said, _ = _specialized(said, attempt, guards)
        try:
            attempt = _attempt(example, said)
        except (ConstraintError, GraphBreakError, ExportError):
            return None
        judgement = judge(attempt.sizes)
        if not judgement.violations and not (beyond == "refuse" and judgement.beyond):
            return said
    return None


def _by_path_of(said: Said, attempt: _Attempt) -> Said:
    """What is said, by the tensors of the attempt."""
    paths = {one.path: one for one in said.values()}
    return {place.tensor: paths[place.path] for place in attempt.sizes.places}


def _by_path(found: Said, said: Said) -> Said:
    paths = {one.path: one for one in found.values()}
    return {tensor: paths.get(one.path, one) for tensor, one in said.items()}
