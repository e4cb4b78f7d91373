"""Make a callable of a captured program: joint trace, partition, compile, and the calls into torch's autograd.

In:     a `CapturedGraph` and a compiler of ATen graphs.
Out:    a function of the list of flat inputs that returns the tuple of the program's outputs.
Holds:  outputs relate to inputs and to each other as in eager.
Contract for compiled graphs: results have the strides of their descriptions; inputs other than those written are not
changed, since a saved tensor may be read by a second backward.
Reads on: `training.py`, where gradients are asked for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from pliant.autograd.aliasing import LastingWrite, UnsupportedAliasing
from pliant.autograd.around import Call, asking_writes
from pliant.autograd.buckets import find_buckets
from pliant.autograd.calls import as_it_is, chain, inference, with_constants
from pliant.autograd.endings import Ending
from pliant.autograd.forward import runnable, with_versions, written_in_graph
from pliant.autograd.joint import SAVED_WRITTEN, JointGraph, trace_joint
from pliant.autograd.layers import Built, find_layers
from pliant.autograd.partition.split import Partition, partition
from pliant.autograd.places import MadeOutputs
from pliant.autograd.segments import Cuts, as_captured, refined, split
from pliant.autograd.small_programs import is_called_as_it_is
from pliant.autograd.tails import with_tails
from pliant.debug import events
from pliant.errors import Unsupported
from pliant.graph.contracts import AtenCompiler, CapturedGraph, Runnable, name_of_target
from pliant.graph.failing import operator_may_fail
from pliant.graph.printer import graph_text
from pliant.graph.unbacked import assume
from pliant.regular import pattern

_USED_WHERE_MADE = "a returned tensor is used where it is made"


def build(captured: CapturedGraph, compile_aten: AtenCompiler, config: Any = None) -> Call:
    """The callable. Raises `Unsupported` (or the program's own error) if the program cannot be traced."""
    with events.stage("joint"):
        joint = _traced(captured)
    if isinstance(joint, Cuts):
        if joint.tails:
            return build(with_tails(captured, joint.tails), compile_aten)
        if not joint.inside:
            return _in_segments(captured, joint, compile_aten)
        from pliant.autograd.expand import expanded  # which few programs need

        written_out = expanded(captured, joint.inside)
        if written_out is None:
            raise UnsupportedAliasing(_USED_WHERE_MADE, kind="returned-intermediate")
        return build(written_out, compile_aten)
    recorded = [write.input for write in joint.plan.writes if not write.in_graph]
    run = _build_whole(captured, joint, compile_aten)
    return asking_writes(run, recorded) if recorded else run


def build_in_layers(captured: CapturedGraph, compile_aten: AtenCompiler) -> Call:
    """The same, where layers that are alike are compiled once, and gradients that travel are ready part by part."""
    cuts = find_buckets(captured) or find_layers(captured)
    if cuts is None:
        return build(captured, compile_aten)
    taken = captured.shape_env.asserts_taken()
    try:
        return _in_segments(captured, cuts, compile_aten, shares=True)
    except Unsupported:
        captured.shape_env.take_again(taken)
        return build(captured, compile_aten)


def _traced(captured: CapturedGraph) -> JointGraph | Cuts:
    """The joint graph, without a backward where asking for gradients of its results is an error in eager too.

    A training step that returns its loss is such a program: the optimizer has written what the loss's backward reads.
    """
    try:
        return trace_joint(captured)
    except UnsupportedAliasing as error:
        if error.kind != SAVED_WRITTEN:
            raise
        joint = trace_joint(captured, refusal=error.what)
        if isinstance(joint, Cuts) or not all(write.in_graph for write in joint.plan.writes):
            raise
        return joint


def partitioned(joint: JointGraph, name: str) -> Partition:
    """The halves of a joint graph; both are recorded for who looks."""
    if events.wants("joint"):
        events.record("joint", name=name, text=graph_text(joint.graph))
    if events.wants("eager_memory"):
        from pliant.graph.told import allocated_by_eager

        env = joint.captured.shape_env
        held, forward = allocated_by_eager(joint.graph, env)
        events.record(
            "eager_memory", name=name, of=env.number, count=len(held), allocated=held, forward=forward, hints=dict(env.hints)
        )
    with events.stage("partition"):
        parts = partition(joint)
    if events.wants("partition"):
        events.record("partition", name=name, text=_partition_text(parts))
    return parts


def _build_whole(captured: CapturedGraph, joint: JointGraph, compile_aten: AtenCompiler) -> Call:
    if is_called_as_it_is(captured, joint):
        events.record("partition", name=captured.name, text=f"# {captured.name} is called as it is")
        return as_it_is(fx.GraphModule(captured.module, captured.module.graph))
    parts = partitioned(joint, captured.name)
    run = runnable(compile_aten(parts.forward))
    if joint.constants:
        run = with_constants(run, joint.constants)
    run = with_versions(run, joint.plan)
    made = MadeOutputs.of(joint.plan)
    if parts.backward is None:
        return _inference(captured, joint, run, made)
    from pliant.autograd.training import training  # which programs without gradients do without

    return training(captured, joint, parts, run, made, compile_aten, build)


def _in_segments(
    captured: CapturedGraph, cuts: Cuts, compile_aten: AtenCompiler, again: bool = False, shares: bool = False
) -> Call:
    """The segments of a program, run one after the other. `again`: what the last segments assume is known this time, and
    checked where its symbols get their values. `shares`: those that are alike are compiled once."""
    built = Built(lambda program, joint: _build_whole(program, joint, compile_aten), shares)
    nodes = list(captured.module.graph.nodes)
    taken = captured.shape_env.asserts_taken()
    known: dict[fx.Node, Any] = {}
    places = {node: place for place, node in enumerate(nodes)}
    steps: list[tuple[Call, list[int], list[int]]] = []
    writes = _Writes(len(captured.inputs))
    for number, segment in enumerate(split(captured, cuts)):
        ends = [places[n] for n in segment.takes], [places[n] for n in segment.gives]
        if segment.hooks:
            steps.append((as_it_is(fx.GraphModule(captured.module, segment.graph)), *ends))
            continue
        program = as_captured(captured, segment, number, known)
        assumes = bool(program.module.graph.find_nodes(op="call_function", target=assume))
        if writes.lost is not None and assumes:  # too late to run anew
            raise LastingWrite("a cut in a program that assumes sizes", writes.lasting)
        with events.stage("joint"):
            joint = built.traced(program)
        may_fail = assumes or not isinstance(joint, Cuts) and _may_fail(joint)
        if writes.lost is not None and may_fail:
            what = "an operator that may fail on its data comes after a write that autograd records"
            raise LastingWrite(what, writes.lasting)
        if isinstance(joint, Cuts):
            more = refined(captured, cuts, segment, joint)
            if more is None:
                raise UnsupportedAliasing(_USED_WHERE_MADE, kind="returned-intermediate")
            captured.shape_env.take_again(taken)
            return _in_segments(captured, more, compile_aten, again, shares)
        for node, fake in zip((*segment.takes, *segment.gives), (*joint.ends[0], *joint.ends[1])):
            known[node] = fake
        writes.note(joint, program, ends[0], len(steps), may_fail)
        steps.append((built.call(program, joint), *ends))
    if captured.shape_env.has_waiting():
        if again:
            raise UnsupportedAliasing("a size that is assumed is not known behind a cut", kind="returned-intermediate")
        captured.shape_env.take_again(taken)
        return _in_segments(captured, cuts, compile_aten, again=True, shares=shares)
    return _chained(steps, nodes[-1].args[0], captured, places, writes)


class _Writes:
    """What earlier segments have written where a later one fails, and eager is to do the whole call.

    `undone`: inputs of which no history records the write; they are given their values again. `lost`: the segment behind
    the first other write; `lasting`: where the program makes such writes; `recorded`: the inputs among what they write.
    """

    def __init__(self, inputs: int) -> None:
        self.inputs = inputs
        self.written: set[int] = set()
        self.undone: set[int] = set()
        self.lost: int | None = None
        self.lasting: frozenset[str] = frozenset()
        self.first: dict[int, int] = {}
        self.recorded: set[int] = set()

    def note(
        self, joint: JointGraph, program: CapturedGraph, places: list[int], step: int, may_fail: bool
    ) -> None:
        """Take in the next segment, whose inputs are at these places."""
        if may_fail:
            self.undone |= self.written
        for write in joint.plan.writes:
            place = places[write.input]
            if write.in_graph and place < self.inputs:
                self.written.add(place)
                self.first.setdefault(place, step + 1)
            else:
                self.lost = step + 1 if self.lost is None else self.lost
                self.lasting |= places_of_writes(program.module.graph.nodes)
                self.recorded.update([place] if place < self.inputs else ())

    def told_from(self, steps: int) -> int:
        """From which step on an error comes too late to run the call anew."""
        late = [self.first[place] for place in self.written - self.undone]
        return min([steps, *late, *([] if self.lost is None else [self.lost])])


def places_of_writes(nodes: Iterable[fx.Node]) -> frozenset[str]:
    """Where the program writes, as it tells its places: of some nodes of its graph."""
    calls = [node for node in nodes if node.op in ("call_method", "call_function")]
    return frozenset(str(node.meta.get("origin")) for node in calls if _IN_PLACE.fullmatch(name_of_target(node)))


_IN_PLACE = pattern(r"\w*[^_]_|__i\w+__|setitem|__setitem__|i(add|sub|mul|truediv|pow|and|or|xor)")


def _may_fail(joint: JointGraph) -> bool:
    """Whether the forward may be an error: eager cannot do the call again once an input has another history."""
    calls = [node for node in joint.graph.nodes if node.op == "call_function" and node.meta["stage"] == "forward"]
    return any(operator_may_fail(node.target) for node in calls)


def _chained(
    steps: list[tuple[Call, list[int], list[int]]],
    outputs: Any,
    captured: CapturedGraph,
    places: dict[fx.Node, int],
    writes: _Writes,
) -> Call:
    final = [places[node] if isinstance(node, fx.Node) else None for node in outputs]
    constants = [None if isinstance(node, fx.Node) else node for node in outputs]
    more = len(places) - len(captured.inputs)
    runs = list(dict.fromkeys([run for run, _, _ in steps]))
    numbers = {run: number for number, run in enumerate(runs)}
    numbered = [(numbers[run], takes, gives) for run, takes, gives in steps]
    run = chain(runs, numbered, final, constants, more, sorted(writes.undone), writes.told_from(len(steps)))
    return asking_writes(run, sorted(writes.recorded)) if writes.recorded else run


def _partition_text(parts: Partition) -> str:
    """Both parts; the forward returns its results and then what it saves."""
    halves = [part for part in (parts.forward, parts.backward) if part is not None]
    return "\n\n".join(f"# {part.name}\n{graph_text(part.graph)}" for part in halves)


def _ending(joint: JointGraph) -> Ending:
    differentiable = enumerate(joint.plan.differentiable)
    reached = joint.reached_by
    sources = {p: [i for i, bits in enumerate(reached) if bits >> n & 1] for n, p in differentiable}
    return Ending(joint.refusal, sources, joint.sharing)


def _inference(captured: CapturedGraph, joint: JointGraph, run: Runnable, made: MadeOutputs) -> Call:
    if joint.plan.inner:
        raise UnsupportedAliasing("a custom function returns what it was given", kind="returned-intermediate")
    tensors = all(isinstance(v, torch.Tensor) for v in joint.plan.results)
    ends = _ending(joint) if joint.plan.differentiable else None
    return inference(run, made, captured.grad_enabled, tensors, written_in_graph(joint.plan), ends)
