"""Make a callable of a captured program: joint trace, partition, compile, and the calls into torch's autograd.

In:     a `CapturedGraph` and a compiler of ATen graphs.
Out:    a function of the list of flat inputs that returns the tuple of the program's outputs.
Holds:  to autograd the compiled program is one node; its outputs relate to inputs and to each other as in eager. The
        backward is
        compiled at once if it needs symbols, else when it first runs; if that fails, it runs eagerly and an event says
        so.
Contract for compiled graphs: results have the strides of their descriptions; inputs other than those written are not
changed,
        since a saved tensor may be read by a second backward.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.autograd.aliasing import OutputPlan
from pliant.autograd.joint import JointGraph, trace_joint
from pliant.autograd.outputs import OutputMaker
from pliant.autograd.partition.split import Partition, partition
from pliant.debug import events
from pliant.gc_pause import GcPause
from pliant.graph.contracts import AtenCompiler, AtenGraph, CapturedGraph, Runnable
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.interpret import eager
from pliant.graph.printer import graph_text
from pliant.torch_adapter import any_autocast, no_autocast

Call = Callable[[list[Any]], tuple[Any, ...]]
_set_grad = torch._C._set_grad_enabled


def build(captured: CapturedGraph, compile_aten: AtenCompiler, config: Any = None) -> Call:
    """The callable. Raises `Unsupported` (or the program's own error) if the program cannot be traced."""
    with events.stage("joint"):
        joint = trace_joint(captured)
    if events.wants("joint"):
        events.record("joint", name=captured.name, text=graph_text(joint.graph))
    with events.stage("partition"):
        parts = partition(joint)
    if events.wants("partition"):
        events.record("partition", name=captured.name, text=_partition_text(parts))
    run = _outside_autocast(compile_aten(parts.forward))
    if joint.constants:
        run = _with_constants(run, joint.constants)
    maker = OutputMaker(joint.plan, captured.inputs)
    if parts.backward is None:
        return _inference(captured, joint, run, maker)
    return _training(captured, joint, parts, run, maker, compile_aten)


def _outside_autocast(run: Runnable) -> Runnable:
    """Casts are in the graph already: `torch.autocast` around the call, or around the backward, must not cast again."""

    def call(inputs: list[Any]) -> list[Any]:
        if not any_autocast():
            return run(inputs)
        with no_autocast():
            return run(inputs)

    return call


def _partition_text(parts: Partition) -> str:
    """Both parts; the forward returns its results and then what it saves."""
    halves = [part for part in (parts.forward, parts.backward) if part is not None]
    return "\n\n".join(f"# {part.name}\n{graph_text(part.graph)}" for part in halves)


def _with_constants(run: Runnable, constants: list[torch.Tensor]) -> Runnable:
    def call(inputs: list[Any]) -> list[Any]:
        inputs.extend(constants)
        return run(inputs)

    return call


def _inference(captured: CapturedGraph, joint: JointGraph, run: Runnable, maker: OutputMaker) -> Call:
    needs_guard = captured.grad_enabled
    bump = _written_in_graph(joint.plan)

    def without_grad(inputs: list[Any]) -> list[Any]:
        _set_grad(False)
        try:
            return run(inputs)
        finally:
            _set_grad(True)

    compute = without_grad if needs_guard else run
    if maker.is_plain and not bump:
        return lambda inputs: tuple(compute(inputs))

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        kept = list(inputs)
        results = compute(inputs)
        _bump_versions(kept, bump)
        return maker.make(kept, results)

    return call


def _written_in_graph(plan: OutputPlan) -> list[int]:
    return [write.input for write in plan.writes if write.in_graph]


def _bump_versions(inputs: list[Any], written: list[int]) -> None:
    for position in written:
        if not inputs[position].is_inference():  # such a tensor has no version
            torch.autograd.graph.increment_version(inputs[position])


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
                return _outside_autocast(self.compile_aten(self.graph))
        except Exception as error:  # the fallback border: a gradient computed slowly is better than none
            events.record("fallback", name=self.graph.name, why=f"{type(error).__name__}: {error}")
            return _outside_autocast(eager(self.graph))


def _training(
    captured: CapturedGraph,
    joint: JointGraph,
    parts: Partition,
    run: Runnable,
    maker: OutputMaker,
    compile_aten: AtenCompiler,
) -> Call:
    assert parts.backward is not None
    backward = LazyBackward(parts.backward, compile_aten)
    if parts.symbols:
        backward.get()
    function = _make_function(captured, joint, parts, run, backward)
    apply: Callable[..., tuple[Any, ...]] = function.apply
    bump = _written_in_graph(joint.plan)

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        results = apply(*inputs)
        _bump_versions(inputs, bump)
        return maker.make(inputs, results)

    if maker.is_plain and not bump:
        return lambda inputs: apply(*inputs)
    return call


def _make_function(
    captured: CapturedGraph, joint: JointGraph, parts: Partition, run: Runnable, lazy: LazyBackward
) -> type[torch.autograd.Function]:
    n_results, n_inputs = parts.n_results, len(captured.inputs)
    differentiable = set(parts.tangents)
    plain = [i for i, v in enumerate(joint.plan.results) if i not in differentiable and isinstance(v, torch.Tensor)]
    n_symbols, saved, wanted, tangents = len(parts.symbols), parts.saved, parts.wanted, parts.tangents
    constants = joint.constants
    layouts = [_static_layout(joint.plan.results[i]) for i in tangents]

    class Compiled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Any) -> tuple[Any, ...]:
            outputs = run(list(inputs))
            ctx.set_materialize_grads(False)
            results = tuple(outputs[:n_results])
            if plain:
                ctx.mark_non_differentiable(*[results[i] for i in plain])
            ctx.numbers = outputs[n_results : n_results + n_symbols]
            sources = inputs if not constants else (*inputs, *constants)
            ctx.save_for_backward(*[sources[s.position] if s.is_input else outputs[s.position] for s in saved])
            ctx.layouts = [known or _layout(results[i]) for i, known in zip(tangents, layouts)]
            return results

        @staticmethod
        def backward(ctx: Any, *given: Any) -> tuple[Any, ...]:
            arguments = [*ctx.numbers, *ctx.saved_tensors]
            ctx.maybe_clear_saved_tensors()  # so that each is freed after its last use, as eager's are (unless retain_graph)
            for position, layout in zip(tangents, ctx.layouts):
                arguments.append(_laid_out(given[position], layout))
            gradients: list[Any] = [None] * n_inputs
            found: Sequence[Any]
            if torch.is_grad_enabled():
                found = _once_differentiable(lazy, *arguments)
            else:
                found = lazy.get()(arguments)
            for index, value in zip(wanted, found):
                gradients[index] = value
            return tuple(gradients)

    return Compiled


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _static_layout(fake: FakeTensor) -> tuple[Any, ...] | None:
    """The layout of a result, if no symbol occurs in it."""
    if all(type(number) is int for number in (*fake.size_, *fake.stride_)):
        return fake.size_, fake.stride_, fake.dtype_, fake.device_
    return None


def _laid_out(tangent: torch.Tensor | None, layout: tuple[Any, ...]) -> torch.Tensor:
    """The tangent with the strides the backward was traced for; zeros where there is none."""
    shape, stride, dtype, device = layout
    if tangent is None:
        return torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
    if tangent.stride() == stride and type(tangent) is torch.Tensor:
        return tangent
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).copy_(tangent)


class _OnceDifferentiable(torch.autograd.Function):
    """Runs the backward so that differentiating its results is an error, not a wrong zero."""

    @staticmethod
    def forward(ctx: Any, lazy: LazyBackward, *arguments: Any) -> tuple[Any, ...]:
        return tuple(lazy.get()(list(arguments)))

    @staticmethod
    def backward(ctx: Any, *given: Any) -> tuple[Any, ...]:
        raise RuntimeError(
            "a compiled program's gradient is not differentiable again: run the part that needs "
            "`create_graph=True` without `pliant.compile`"
        )


_once_differentiable: Callable[..., tuple[Any, ...]] = _OnceDifferentiable.apply
