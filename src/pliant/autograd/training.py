"""A compiled program as a function of torch's autograd.

In:     the two compiled halves of a program, and the plan of its outputs.
Out:    a callable of flat inputs whose results have a history: one function of autograd's graph.
Holds:  a gradient is None where eager's is. The backward is compiled at once if it needs symbols, else when it first
        runs; if that fails, it runs operator by operator and an event says so. Asked for gradients that can be
        differentiated again, it leaves the work to `higher_order.py`, for which it keeps the inputs.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from pliant import torch_adapter
from pliant.autograd.aliasing import OutputPlan
from pliant.autograd.higher_order import GradientProgram
from pliant.autograd.joint import JointGraph, tangent_strides
from pliant.autograd.outputs import OutputMaker
from pliant.autograd.partition.split import Partition
from pliant.debug import events
from pliant.gc_pause import GcPause
from pliant.graph.contracts import AtenCompiler, AtenGraph, CapturedGraph, GraphInput, Runnable
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.interpret import eager
from pliant.graph.passes.purity import binds_symbols, draws_numbers, memory_root
from pliant.graph.unbacked import CHECKS
from pliant.torch_adapter import any_autocast, no_autocast, without_base

_copy = torch.ops.aten.copy_.default
Call = Callable[[list[Any]], tuple[Any, ...]]
Builder = Callable[[CapturedGraph, AtenCompiler], Call]


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


class LazyBackward:
    """The backward, compiled once, by whichever thread comes first."""

    def __init__(self, graph: AtenGraph, compile_aten: AtenCompiler) -> None:
        self.graph, self.compile_aten = graph, compile_aten
        self.lock = threading.Lock()
        self.run: Runnable | None = None

    def get(self) -> Runnable:
        run = self.run
        if run is None:
            with self.lock:
                run = self.run
                if run is None:
                    run = self.run = self._compiled()
        return run

    def _compiled(self) -> Runnable:
        try:
            with GcPause():
                return outside_autocast(self.compile_aten(self.graph))
        except Exception as error:  # the fallback border: a gradient computed slowly is better than none
            events.record("fallback", name=self.graph.name, why=f"{type(error).__name__}: {error}")
            return outside_autocast(eager(self.graph))


def training(
    captured: CapturedGraph,
    joint: JointGraph,
    parts: Partition,
    run: Runnable,
    maker: OutputMaker,
    compile_aten: AtenCompiler,
    build: Builder,
) -> Call:
    """The callable of a program that has a backward. `build` compiles the gradient as a program of its own."""
    assert parts.backward is not None
    backward = LazyBackward(parts.backward, compile_aten)
    if parts.symbols:
        backward.get()
    kept = _KeptInputs(joint, parts)
    written = frozenset(write.input for write in joint.plan.writes)
    again = GradientProgram(captured, joint.roots, written, lambda program: build(program, compile_aten))
    apply = torch_adapter.direct_apply(_make_function(joint, parts, run, backward, kept, again))
    bump = written_in_graph(joint.plan)
    watched = _Watched(joint, parts)
    first = parts.tangents[0]
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


class _Watched:
    """Tensors in the caller's hands that eager's backward would find written, though ours does not read them."""

    def __init__(self, joint: JointGraph, parts: Partition) -> None:
        values: Any = next(iter(joint.graph.find_nodes(op="output"))).args[0]
        saved_inputs = {s.position for s in parts.saved if s.is_input}
        saved_results = {s.position for s in parts.saved if not s.is_input}
        now = dict(enumerate(joint.primals[: len(joint.captured.inputs)]))
        now |= {joint.primals.index(n.args[0]): n for n in joint.graph.nodes if n.target is _copy}
        outside = {write.input for write in joint.plan.writes if not write.in_graph}
        self.inputs = [i for i, n in now.items() if _eager_saves(n) and i not in saved_inputs and i not in outside]
        results = enumerate(values[: parts.n_results])
        self.results = [i for i, node in results if i not in saved_results and _eager_saves(node)]

    def __bool__(self) -> bool:
        return bool(self.inputs or self.results)

    def versions(self, inputs: list[Any], results: Any) -> list[tuple[Any, int]]:
        tensors = [*[inputs[i] for i in self.inputs], *[results[i] for i in self.results]]
        return [(weakref.ref(tensor), _version(tensor)) for tensor in tensors]


def _eager_saves(value: Any) -> bool:
    is_tensor = isinstance(value, fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)
    if is_tensor and value.target is _copy:  # the write of an input, noted before its value was simplified
        return bool(value.meta["eager_saves"])
    return is_tensor and bool(memory_root(value).meta.get("eager_saves"))


def _version(tensor: torch.Tensor) -> int:
    """How often it was written; inference tensors do not count."""
    return 0 if tensor.is_inference() else tensor._version


def _check_versions(watched: Any) -> None:
    for reference, version in watched:
        tensor = reference()
        if tensor is not None and _version(tensor) != version:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version {version} "
                "instead. It is an input or an output of a compiled function."
            )


class _KeptInputs:
    """What of its inputs a program keeps for gradients of higher order: the inputs, those it writes as they were.

    `copied`: written inputs whose values gradients depend on. `absent`: inputs of which a description will do, since
    no gradient depends on their values. `unsaved`: inputs that autograd does not watch for writes, since the backward
    does not read them.
    """

    def __init__(self, joint: JointGraph, parts: Partition) -> None:
        inputs = joint.captured.inputs
        tensors = [i for i, one in enumerate(inputs) if isinstance(one.fake, torch.Tensor)]
        written = {write.input for write in joint.plan.writes}
        binds = parts.symbols and any(map(binds_symbols, joint.graph.nodes))
        checked = bool(binds) or any(node.target in CHECKS for node in joint.graph.nodes)
        read = _read_by_results(joint) if checked else _behind(joint, joint.gradients)
        loose = {i for i in tensors if not inputs[i].static and not checked}
        self.copied = sorted(written & read)
        self.absent = [i for i in tensors if i not in read and i in written | loose]
        saved = {s.position for s in parts.saved if s.is_input}
        self.unsaved = [i for i in tensors if i in read and i not in saved and i not in written]
        self.random = any(map(draws_numbers, joint.graph.nodes))

    def before(self, inputs: list[Any]) -> list[Any] | None:
        """The inputs with copies of those that are going to be written; None where the inputs will do."""
        if not self.copied and not self.absent:
            return None
        kept = list(inputs)
        for position in self.copied:
            kept[position] = inputs[position].clone()
        for position in self.absent:
            kept[position] = _Absent(inputs[position])
        return kept

    def versions(self, inputs: Any) -> list[int]:
        return [_version(inputs[i]) for i in self.unsaved]


class _Absent:
    """The description of an input that is not kept."""

    __slots__ = ("is_leaf", "layout", "requires_grad")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.layout = _layout(tensor)
        self.requires_grad, self.is_leaf = tensor.requires_grad, tensor.is_leaf

    def stand_in(self) -> torch.Tensor:
        """A tensor of this description."""
        size, stride, dtype, device = self.layout
        with torch.enable_grad():
            made = torch.empty_strided(size, stride, dtype=dtype, device=device).fill_(int(dtype.is_floating_point))
            made.requires_grad_(self.requires_grad)
            return made if self.is_leaf else made.view_as(made)


def _read_by_results(joint: JointGraph) -> set[int]:
    """Positions of the inputs on which results that have gradients depend."""
    values: Any = next(iter(joint.graph.find_nodes(op="output"))).args[0]
    return _behind(joint, [values[position] for position in joint.plan.differentiable])


def _behind(joint: JointGraph, ends: list[Any]) -> set[int]:
    """Positions of the inputs on which these nodes depend."""
    queue = [node for node in ends if node is not None]
    found = set(queue)
    for node in queue:
        for argument in _inputs_that_matter(node):
            if argument not in found:
                found.add(argument)
                queue.append(argument)
    return {position for position, node in enumerate(joint.primals) if node in found}


def _inputs_that_matter(node: Any) -> list[Any]:
    """Its arguments; in training, normalization's running statistics only lead to their own new values."""
    if node.target is torch.ops.aten._native_batch_norm_legit_functional.default and node.args[5]:
        return [a for a in node.all_input_nodes if a not in node.args[3:5]]
    return list(node.all_input_nodes)


def _make_function(
    joint: JointGraph,
    parts: Partition,
    run: Runnable,
    lazy: LazyBackward,
    kept: _KeptInputs,
    again: GradientProgram,
) -> type[torch.autograd.Function]:
    n_results, n_inputs = parts.n_results, len(joint.captured.inputs)
    differentiable = set(parts.tangents)
    plain = [i for i, v in enumerate(joint.plan.results) if i not in differentiable and isinstance(v, torch.Tensor)]
    n_symbols, saved, wanted, tangents = len(parts.symbols), parts.saved, parts.wanted, parts.tangents
    constants = joint.constants
    layouts = [_layout_of_tangent(joint.plan.results[i]) for i in tangents]
    reached = [joint.reached_by[i] for i in wanted]
    tensors = [i for i, one in enumerate(joint.captured.inputs) if isinstance(one.fake, torch.Tensor)]
    ordinal = {position: number for number, position in enumerate(tensors)}

    class Compiled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, before: list[Any] | None, *inputs: Any) -> tuple[Any, ...]:
            ctx.random_state = torch.get_rng_state() if kept.random else None
            outputs = list(run(list(inputs)))
            ctx.set_materialize_grads(False)
            results = tuple(map(without_base, outputs[:n_results]))
            if plain:
                ctx.mark_non_differentiable(*[results[i] for i in plain])
            ctx.numbers = outputs[n_results : n_results + n_symbols]
            ctx.watched = ()
            outputs[:n_results] = results
            sources = inputs if not constants else (*inputs, *constants)
            ctx.save_for_backward(*[sources[s.position] if s.is_input else outputs[s.position] for s in saved])
            ctx.layouts = [one(results[i]) if callable(one) else one for i, one in zip(tangents, layouts)]
            ctx.inputs = inputs if before is None else before
            ctx.versions = kept.versions(inputs)
            return results

        @staticmethod
        def backward(ctx: Any, *given: Any) -> tuple[Any, ...]:
            arguments = [*ctx.numbers, *ctx.saved_tensors]
            if ctx.watched:
                _check_versions(ctx.watched)
            ctx.maybe_clear_saved_tensors()  # so that each is freed after its last use, as eager's are (unless retain_graph)
            gradients: list[Any] = [None] * (1 + n_inputs)
            missing = [position for position in tangents if given[position] is None]
            unreached = _unreached(reached, tangents, given) if missing else ()
            layouts = [_laid_out(given[position], layout) for position, layout in zip(tangents, ctx.layouts)]
            if torch.is_grad_enabled():
                edges = ctx.next_functions  # of the tensors among the inputs
                asked = [i for n, i in enumerate(wanted) if n not in unreached]
                needed = tuple(i for i in asked if torch_adapter.engine_needs(edges[ordinal[i]][0]))
                found = _differentiable(ctx, kept, again, layouts, needed)
                for index, value in zip(needed, found):
                    gradients[1 + index] = value
                return tuple(gradients)
            arguments += layouts
            layouts.clear()
            if not torch_adapter.engine_keeps_graph():
                ctx.inputs = ()
            for number, (index, value) in enumerate(zip(wanted, lazy.get()(arguments))):
                gradients[1 + index] = None if number in unreached else value
            return tuple(gradients)

    return Compiled


def _unreached(reached: list[int], tangents: list[int], given: tuple[Any, ...]) -> frozenset[int]:
    """Which of the gradients no given tangent leads to."""
    defined = sum(1 << n for n, position in enumerate(tangents) if given[position] is not None)
    return frozenset(number for number, bits in enumerate(reached) if not bits & defined)


def _differentiable(
    ctx: Any, kept: _KeptInputs, again: GradientProgram, tangents: list[torch.Tensor], needed: tuple[int, ...]
) -> tuple[Any, ...]:
    """Gradients with a history, computed from the inputs and with the random numbers that the forward drew."""
    if not needed:
        return ()
    if kept.versions(ctx.inputs) != ctx.versions:
        raise RuntimeError(
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            "an input of a compiled function was written after the call"
        )
    inputs = [one.stand_in() if type(one) is _Absent else one for one in ctx.inputs]
    if ctx.random_state is None:
        return again(inputs, tangents, needed)
    now = torch.get_rng_state()
    torch.set_rng_state(ctx.random_state)
    try:
        return again(inputs, tangents, needed)
    finally:
        torch.set_rng_state(now)


Layout = tuple[Any, ...]  # size, strides, dtype, device


def _layout_of_tangent(result: FakeTensor) -> Layout | Callable[[torch.Tensor], Layout]:
    """The layout of a result's gradient, or, where symbols occur in it, how to tell it from the result."""
    strides = tangent_strides(result)
    if all(type(number) is int for number in (*result.size_, *strides)):
        return result.size_, strides, result.dtype_, result.device_
    return _layout if strides is result.stride_ else _layout_of_clone


def _layout(tensor: torch.Tensor) -> Layout:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _layout_of_clone(tensor: torch.Tensor) -> Layout:
    return tensor.shape, torch.empty_like(tensor, device="meta").stride(), tensor.dtype, tensor.device


def _laid_out(tangent: torch.Tensor | None, layout: Layout) -> torch.Tensor:
    """The tangent with the strides the backward was traced for; zeros where there is none."""
    shape, stride, dtype, device = layout
    if tangent is None:
        return torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
    if tangent.stride() == stride and type(tangent) is torch.Tensor:
        return tangent
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).copy_(tangent)
