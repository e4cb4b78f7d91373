"""A compiled program as a function of torch's autograd.

In:     the two compiled halves of a program, and the plan of its outputs.
Out:    a callable of flat inputs whose results have a history: one function of autograd's graph.
Holds:  the backward is compiled at once if it needs symbols, else when it first runs; if that fails, it runs operator
        by operator and an event says so. What eager's backward would find written is an error here too.
Reads on: `function.py`, `kept_inputs.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant import background, config, torch_adapter
from pliant.autograd.around import Call
from pliant.autograd.forward import runnable, written_in_graph
from pliant.autograd.function import HalvesFacts
from pliant.autograd.higher_order import GradientProgram
from pliant.autograd.joint import JointGraph
from pliant.autograd.partition.partial import reads, without
from pliant.autograd.partition.split import Partition
from pliant.autograd.places import MadeOutputs
from pliant.autograd.saved import results_of
from pliant.autograd.trained import Around, Watched, of_given, trained
from pliant.debug import events
from pliant.gc_pause import GcPause
from pliant.graph.contracts import AtenCompiler, AtenGraph, CapturedGraph, GraphInput, Runnable
from pliant.graph.interpret import eager, strides_as_made
from pliant.interruptions import pass_on
from pliant.targets.registry import known_target

_PARTIAL = 8  # sets of tangents that the backward is compiled for
Builder = Callable[[CapturedGraph, AtenCompiler], Call]


class Backwards:
    """The backward, compiled once for each set of tangents that are given, by whichever thread comes first.

    `reached`: for each gradient the tangents that eager's engine gets to it from, as bits. `reads`: for each symbol and
    saved tensor the tangents that it is combined with, as bits.
    """

    has_graph = True
    is_compiled_on_demand = True  # so that what runs is known later

    def __init__(self, graph: AtenGraph, n_tangents: int, reached: list[int], compile_aten: AtenCompiler) -> None:
        self.graph, self.reached, self.compile_aten = graph, reached, compile_aten
        holders = list(graph.graph.find_nodes(op="placeholder"))
        self.first_tangent = len(holders) - n_tangents
        gradients: Any = next(iter(graph.graph.find_nodes(op="output"))).args[0]
        found = reads(graph.graph, holders[self.first_tangent :], gradients)
        self.reads = [found[node] for node in holders[: self.first_tangent]]
        self.lock = background.lock()
        self.found: dict[int, Runnable | None] = {}
        self.when_compiled: Callable[[], None] = lambda: None  # told when there is one more

    def get(self, missing: int = 0, observer: str = "") -> Runnable | None:
        """What runs it. `missing`: tangents, as bits, that are None (the result is None where it cannot do without).
        `observer`: what sees each operator, or lends it tensors that have no memory of their own."""
        if observer:
            events.record("fallback", name=self.graph.name, why=f"it is called in {observer}", reason="observed-call")
            return self._partial(missing, eager) if missing else eager(self.graph)
        if missing not in self.found:
            with self.lock:
                if missing not in self.found:
                    self.found[missing] = self._some(missing) if missing else self._compiled(self.graph)
                    self.when_compiled()
        return self.found[missing]

    def strides_as_made(self, arguments: list[Any], described: Callable[[Any], Any]) -> list[Any]:
        return strides_as_made(self.graph, arguments, described)

    def _compiled(self, graph: AtenGraph) -> Runnable:
        before = torch_adapter.Beginning()
        try:
            with GcPause():
                return runnable(self.compile_aten(graph))
        except Exception as error:  # the fallback border: a gradient computed slowly is better than none
            pass_on(error)
            events.record("fallback", name=graph.name, why=f"{type(error).__name__}: {error}")
            return runnable(eager(graph))
        finally:
            before.restore()

    def _some(self, missing: int) -> Runnable | None:
        return self._partial(missing, self._compiled) if len(self.found) <= _PARTIAL else None

    def _partial(self, missing: int, compiled: Callable[[AtenGraph], Runnable]) -> Runnable | None:
        first = self.first_tangent
        found = without(self.graph, first, missing, [bool(bits & ~missing) for bits in self.reached])
        if found is None:
            return None
        graph, kept = found
        return of_given(compiled(graph), kept, first)


def training(
    captured: CapturedGraph,
    joint: JointGraph,
    parts: Partition,
    run: Runnable,
    made: MadeOutputs,
    compile_aten: AtenCompiler,
    build: Builder,
) -> Call:
    """The callable of a program that has a backward. `build` compiles the gradient as a program of its own."""
    assert parts.backward is not None
    compile_aten, build = config.kept(compile_aten), config.kept(build)  # they may be called at the first gradient
    reached = [joint.reached_by[i] for i in parts.wanted]
    backwards = Backwards(parts.backward, len(parts.tangents), reached, compile_aten)
    if parts.symbols or _is_built_in_threads(parts.backward) or config.get().general.background:
        backwards.get()
    read_results = [i for i in parts.tangents if joint.saved_results[i]]
    facts = HalvesFacts.of(joint, parts, _reads(joint, parts, backwards.reads), read_results)
    written = {write.input for write in joint.plan.writes}
    again = GradientProgram.of(
        captured, joint.roots, sorted(written), facts.kept.late, lambda program: build(program, compile_aten)
    )
    in_graph = written_in_graph(joint.plan)
    around = Around(
        bump=[i for i in in_graph if i not in joint.read_first.inputs],
        bump_last=[i for i in in_graph if i in joint.read_first.inputs],
        viewed=sorted(joint.read_first.views.intersection(in_graph)),
        watched=watched_of(joint, parts),
        leaf_order=[position for position in joint.leaf_order if position not in written],
        idle=[i for i, one in enumerate(captured.inputs) if _requires_grad(one) and not joint.reached_by[i]],
        records=captured.grad_enabled,
    )
    return trained(run, made, facts, around, backwards, again)


def _is_built_in_threads(graph: AtenGraph) -> bool:
    """Whether code for a device of the graph's inputs is built beside what the compiler does next."""
    values = [node.meta["val"] for node in graph.graph.find_nodes(op="placeholder")]
    targets = [known_target(device) for device in {v.device for v in values if isinstance(v, torch.Tensor)}]
    return any(target is not None and target.builds_in_threads for target in targets)


def _requires_grad(one: GraphInput) -> bool:
    described = one.example if isinstance(one.example, torch.Tensor) else one.fake
    return isinstance(described, torch.Tensor) and described.requires_grad


def watched_of(joint: JointGraph, parts: Partition) -> Watched:
    """What of a program is watched."""
    saved_inputs = {s.position for s in parts.saved if s.is_input}
    saved_results = {s.position for s in parts.saved if not s.is_input}.union(parts.own)
    outside = {write.input for write in joint.plan.writes if not write.in_graph}
    ways = joint.saved_inputs
    inputs = [i for i, read in enumerate(ways) if read and (i not in saved_inputs or i in outside)]
    results = [i for i, read in enumerate(joint.saved_results) if read and i not in saved_results]
    return Watched(inputs, results, [*[ways[i] for i in inputs], *[joint.saved_results[i] for i in results]])


def _reads(joint: JointGraph, parts: Partition, read: list[int]) -> list[int]:
    """`read` of the symbols and saved tensors, and what eager checks of those that the caller has too."""
    found = list(read)
    for number, saved in enumerate(parts.saved, len(parts.symbols)):
        eager = joint.saved_inputs if saved.is_input else joint.saved_results
        found[number] |= results_of(eager[saved.position]) if saved.position < len(eager) else 0
    return found

