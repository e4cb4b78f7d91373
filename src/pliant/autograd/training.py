"""A compiled program as a function of torch's autograd.

In:     the two compiled halves of a program, and the plan of its outputs.
Out:    a callable of flat inputs whose results have a history: one function of autograd's graph.
Holds:  the backward is compiled at once if it needs symbols, else when it first runs; if that fails, it runs operator
        by operator and an event says so. What eager's backward would find written is an error here too.
Reads on: `function.py`, `kept_inputs.py`.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from pliant import background, config, torch_adapter
from pliant.autograd.aliasing import OutputPlan
from pliant.autograd.function import Compiled, Halves, HalvesFacts
from pliant.autograd.higher_order import GradientProgram
from pliant.autograd.joint import JointGraph
from pliant.autograd.kept_inputs import version
from pliant.autograd.outputs import MadeOutputs, OutputMaker
from pliant.autograd.partition.partial import reaching_tangents, reads, without
from pliant.autograd.partition.split import Partition
from pliant.debug import events
from pliant.gc_pause import GcPause
from pliant.graph.contracts import AtenCompiler, AtenGraph, CapturedGraph, GraphInput, Runnable
from pliant.graph.interpret import eager
from pliant.graph.passes.purity import memory_root
from pliant.graph.remade import remade
from pliant.interruptions import pass_on
from pliant.torch_adapter import any_autocast, no_autocast, set_grad_enabled

_copy = torch.ops.aten.copy_.default
_PARTIAL = 8  # sets of tangents that the backward is compiled for
Call = Callable[[list[Any]], tuple[Any, ...]]
Builder = Callable[[CapturedGraph, AtenCompiler], Call]


def runnable(compiled: Runnable) -> Runnable:
    """What to call of a compiled graph: its function, which is one call less."""
    return outside_autocast(getattr(compiled, "call", compiled))


@remade
def outside_autocast(run: Runnable) -> Runnable:
    """Casts are in the graph already: `torch.autocast` around the call, or around the backward, must not cast again."""

    def call(inputs: list[Any]) -> list[Any]:
        if not any_autocast():
            return run(inputs)
        with no_autocast():
            return run(inputs)

    return call


def written_in_graph(plan: OutputPlan) -> list[int]:
    return [write.input for write in plan.writes if write.in_graph and write.counted]


def without_counting(run: Runnable, plan: OutputPlan, inputs: list[GraphInput]) -> Runnable:
    """`run`, its writes of inputs not counted in their versions, which `bump_versions` sets, once and first: where the
    program writes through `.data`, or a view whose function in autograd's graph follows its version.
    """
    written = [write for write in plan.writes if write.in_graph]
    if all(write.counted and not _follows_version(inputs[write.input].example) for write in written):
        return run
    return uncounted(run)


@remade
def uncounted(run: Runnable) -> Runnable:
    """`run`, its writes of inputs not counted in their versions."""

    def call(inputs: list[Any]) -> list[Any]:
        with torch_adapter.uncounted_writes():
            return run(inputs)

    return call


def _follows_version(tensor: Any) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.requires_grad and tensor._is_view()


def bump_versions(inputs: list[Any], written: list[int]) -> None:
    if written:
        counted = [inputs[position] for position in written]
        if torch.is_inference_mode_enabled():  # elsewhere nobody may write tensors that have no version
            counted = [one for one in counted if not one.is_inference()]
        torch.autograd.graph.increment_version(counted)


class KeptBackwards:
    """The backward of another process, for the sets of tangents that were given there. `lost` is called where there is none
    at all for a call."""

    has_graph = False

    def __init__(self, found: dict[int, Runnable]) -> None:
        self.found = found
        self.lost: Callable[[], None] = lambda: None

    def get(self, missing: int = 0, observer: str = "") -> Runnable | None:
        """None where tangents are missing otherwise than there: they are zeros then, or the program runs again."""
        run = None if observer else self.found.get(missing)
        if run is None and not observer and 0 not in self.found:
            lost, self.lost = self.lost, lambda: None
            lost()
        return run


class Backwards:
    """The backward, compiled once for each set of tangents that are given, by whichever thread comes first.

    `reached`: for each gradient the tangents that eager's engine gets to it from, as bits. `reads`: for each symbol and
    saved tensor the tangents that it is combined with, as bits.
    """

    has_graph = True

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
            return eager(self.graph)
        if missing not in self.found:
            with self.lock:
                if missing not in self.found:
                    self.found[missing] = self._partial(missing) if missing else self._compiled(self.graph)
                    self.when_compiled()
        return self.found[missing]

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

    def _partial(self, missing: int) -> Runnable | None:
        first, found = self.first_tangent, None
        if len(self.found) <= _PARTIAL:
            found = without(self.graph, first, missing, [bool(bits & ~missing) for bits in self.reached])
        if found is None:
            return None
        graph, kept = found
        return of_given(self._compiled(graph), kept, first)


@remade
def of_given(run: Runnable, kept: list[int], first: int) -> Runnable:
    """`run` of these arguments and of the tangents, from place `first` on, that are given."""
    return lambda arguments: run([*[arguments[i] for i in kept], *[t for t in arguments[first:] if t is not None]])


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
    if parts.symbols:
        backwards.get()
    facts = HalvesFacts.of(joint, parts, backwards.reads)
    written = {write.input for write in joint.plan.writes}
    again = GradientProgram.of(captured, joint.roots, sorted(written), lambda program: build(program, compile_aten))
    around = Around(
        bump=written_in_graph(joint.plan),
        watched=Watched.of(joint, parts),
        hooked=[position for position in reversed(joint.hooked) if position not in written],
        idle=[i for i, one in enumerate(captured.inputs) if _requires_grad(one) and not joint.reached_by[i]],
        records=captured.grad_enabled,
    )
    return trained(run, made, facts, around, backwards, again)


@dataclass(frozen=True, slots=True)
class Around:
    """What is done around autograd's function. `bump`: inputs that the graph writes. `hooked`, `idle`: see `_given_apart`.
    `records`: gradients are recorded where the program starts."""

    bump: list[int]
    watched: Watched
    hooked: list[int]
    idle: list[int]
    records: bool


@remade
def trained(
    run: Runnable, made: MadeOutputs, facts: HalvesFacts, around: Around, backwards: Any, again: GradientProgram
) -> Call:
    """The callable of a program's forward and backward."""
    maker, kept, bump, watched = OutputMaker(made), facts.kept, around.bump, around.watched
    apply: Any = functools.partial(torch_adapter.direct_apply(Compiled), Halves(facts, run, backwards, again))
    if around.hooked or around.idle:
        apply = _given_apart(apply, around.hooked, around.idle)
    if not around.records:
        apply = with_gradients(apply)
    first = facts.tangents[0]
    if maker.is_plain and not bump and not watched:
        return lambda inputs: apply(kept.before(inputs), *inputs)

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        before = kept.before(inputs)
        bump_versions(inputs, bump)  # first: a view that is written without autograd then has a new function
        results = apply(before, *inputs)
        function = results[first].grad_fn
        outputs = maker.make(inputs, results)
        function.watched = watched.versions(inputs, results)
        return outputs

    return call


def with_gradients(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run` whose results get a history though the program starts where gradients are off: it turns them on inside."""

    def call(*inputs: Any) -> Any:
        set_grad_enabled(True)
        try:
            return run(*inputs)
        finally:
            set_grad_enabled(False)

    return call


def _requires_grad(one: GraphInput) -> bool:
    described = one.example if isinstance(one.example, torch.Tensor) else one.fake
    return isinstance(described, torch.Tensor) and described.requires_grad


def _given_apart(apply: Callable[..., Any], hooked: list[int], idle: list[int]) -> Callable[..., Any]:
    """`apply` whose gradients reach leaves with hooks one by one, the last of `hooked` first, and inputs that no result
    depends on not at all.

    The engine, given all gradients at once, goes to what was made last; all leaves are alike to it.
    """

    def call(before: Any, *inputs: Any) -> Any:
        given = list(inputs)
        for position in hooked:
            given[position] = given[position].view_as(given[position])
        for position in idle:
            given[position] = given[position].detach()
        return apply(inputs if before is None else before, *given)

    return call


@dataclass(frozen=True, slots=True)
class Watched:
    """Tensors in the caller's hands that eager's backward would find written, though ours does not read them: positions of
    inputs and results, and for each the tangents, as bits, whose gradients read it."""

    inputs: list[int]
    results: list[int]
    read: list[int]

    @classmethod
    def of(cls, joint: JointGraph, parts: Partition) -> Watched:
        values: Any = next(iter(joint.graph.find_nodes(op="output"))).args[0]
        saved_inputs = {s.position for s in parts.saved if s.is_input}
        saved_results = {s.position for s in parts.saved if not s.is_input}
        now = dict(enumerate(joint.primals[: len(joint.captured.inputs)]))
        now |= {joint.primals.index(n.args[0]): n for n in joint.graph.nodes if n.target is _copy}
        outside = {write.input: values[write.position] for write in joint.plan.writes if not write.in_graph}
        now |= outside
        inputs = [i for i, n in now.items() if _eager_saves(n) and (i not in saved_inputs or i in outside)]
        positions = enumerate(values[: parts.n_results])
        results = [i for i, node in positions if i not in saved_results and _eager_saves(node)]
        watched = [*[now[i] for i in inputs], *[values[i] for i in results]]
        return cls(inputs, results, list(map(_tangents_reading(joint), watched)) if watched else [])

    def __bool__(self) -> bool:
        return bool(self.inputs or self.results)

    def versions(self, inputs: list[Any], results: Any) -> list[tuple[Any, int, int]]:
        """(the tensor, its version, the tangents, as bits, whose gradients read it)."""
        tensors = [*[inputs[i] for i in self.inputs], *[results[i] for i in self.results]]
        return [(weakref.ref(tensor), version(tensor), bits) for tensor, bits in zip(tensors, self.read)]


def _tangents_reading(joint: JointGraph) -> Callable[[fx.Node], int]:
    """A function that says of a value which tangents, as bits, are combined with it or with what shares its memory."""
    reaching, found = reaching_tangents(joint.graph, joint.tangents), dict[fx.Node, int]()
    for node in joint.graph.nodes:
        for argument in node.all_input_nodes if reaching[node] else ():
            root = memory_root(argument)
            found[root] = found.get(root, 0) | reaching[node]

    def reading(value: fx.Node) -> int:
        written = value.args[1] if value.target is _copy else value
        return found.get(memory_root(written), -1) if isinstance(written, fx.Node) else -1

    return reading


def _eager_saves(value: Any) -> bool:
    is_tensor = isinstance(value, fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)
    if is_tensor and value.target is _copy:  # the write of an input, noted before its value was simplified
        return bool(value.meta["eager_saves"])
    return is_tensor and bool(memory_root(value).meta.get("eager_saves"))
