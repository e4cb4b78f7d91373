"""A compiled program as one function of autograd's graph.

In:     the forward, the backward, what is saved between them.
Out:    `autograd_function(...)`: a subclass of `torch.autograd.Function` for this program.
Holds:  a gradient is None where eager's is; saved tensors are freed after their last use unless the graph is retained.
        Gradients that are to have a history come from `higher_order.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant import torch_adapter
from pliant.autograd.higher_order import GradientProgram
from pliant.autograd.joint import JointGraph, tangent_strides
from pliant.autograd.kept_inputs import KeptInputs, given_again, version
from pliant.autograd.outputs import inner_views
from pliant.autograd.partition.split import Partition
from pliant.graph.contracts import Runnable
from pliant.graph.fake_tensor import FakeTensor
from pliant.torch_adapter import without_base

Layout = tuple[Any, ...]  # size, strides, dtype, device


class Halves:
    """Forward and backward of a program, as autograd calls them. `ctx` is the record of one call.

    `backward_run` gives the compiled backward, which may not exist before it is asked for; operator by operator if True.
    """

    def __init__(
        self,
        joint: JointGraph,
        parts: Partition,
        run: Runnable,
        backward_run: Callable[[bool], Runnable],
        kept: KeptInputs,
        again: GradientProgram,
    ) -> None:
        self.run, self.backward_run, self.kept, self.again = run, backward_run, kept, again
        self.n_results, self.n_numbers = parts.n_results, len(parts.symbols)
        self.n_inputs = len(joint.captured.inputs)
        self.saved, self.wanted, self.tangents = parts.saved, parts.wanted, parts.tangents
        self.constants, self.inner = joint.constants, inner_views(joint.plan)
        differentiable, results = set(parts.tangents), joint.plan.results
        self.plain = [i for i, v in enumerate(results) if i not in differentiable and isinstance(v, torch.Tensor)]
        self.layouts = [_layout_of_tangent(results[i]) for i in parts.tangents]
        self.reached = [joint.reached_by[i] for i in parts.wanted]
        tensors = [i for i, one in enumerate(joint.captured.inputs) if isinstance(one.fake, torch.Tensor)]
        self.ordinal = {position: number for number, position in enumerate(tensors)}

    def forward(self, ctx: Any, before: list[Any] | None, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        ctx.random_state = torch.get_rng_state() if self.kept.random else None
        outputs = list(self.run(list(inputs)))
        ctx.set_materialize_grads(False)
        end = self.n_results
        results = tuple(map(without_base, outputs[:end]))
        if self.inner:
            results = _with_views(results, self.inner, inputs)
        if self.plain:
            ctx.mark_non_differentiable(*[results[i] for i in self.plain])
        ctx.numbers = outputs[end : end + self.n_numbers]
        ctx.watched = ()
        outputs[:end] = results
        sources = inputs if not self.constants else (*inputs, *self.constants)
        ctx.save_for_backward(*[sources[s.position] if s.is_input else outputs[s.position] for s in self.saved])
        ctx.layouts = [one(results[i]) if callable(one) else one for i, one in zip(self.tangents, self.layouts)]
        ctx.inputs = inputs if before is None else before
        ctx.versions = self.kept.versions(inputs)
        return results

    def backward(self, ctx: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
        arguments = [*ctx.numbers, *ctx.saved_tensors]
        if ctx.watched:
            _check_versions(ctx.watched)
        ctx.maybe_clear_saved_tensors()  # so that each is freed after its last use, as eager's are (unless retain_graph)
        unreached = self._unreached(given)
        transformed = any(map(torch_adapter.is_transformed, given))
        tangents = [_laid_out(given[position], layout) for position, layout in zip(self.tangents, ctx.layouts)]
        gradients: list[Any] = [None] * (1 + self.n_inputs)
        if torch.is_grad_enabled():
            needed = self._needed(ctx, unreached)
            for index, value in zip(needed, self._with_history(ctx, tangents, needed)):
                gradients[1 + index] = value
            return tuple(gradients)
        arguments += tangents
        tangents.clear()
        if not torch_adapter.engine_keeps_graph():
            ctx.inputs = ()
        for number, (index, value) in enumerate(zip(self.wanted, self.backward_run(transformed)(arguments))):
            gradients[1 + index] = None if number in unreached else value
        return tuple(gradients)

    def _unreached(self, given: tuple[Any, ...]) -> frozenset[int]:
        """Which of the gradients no given tangent leads to."""
        if all(given[position] is not None for position in self.tangents):
            return frozenset()
        defined = sum(1 << n for n, position in enumerate(self.tangents) if given[position] is not None)
        return frozenset(number for number, bits in enumerate(self.reached) if not bits & defined)

    def _needed(self, ctx: Any, unreached: frozenset[int]) -> tuple[int, ...]:
        """The inputs whose gradients the engine wants."""
        edges = ctx.next_functions  # of the tensors among the inputs
        asked = [i for n, i in enumerate(self.wanted) if n not in unreached]
        return tuple(i for i in asked if torch_adapter.engine_needs(edges[self.ordinal[i]][0]))

    def _with_history(self, ctx: Any, tangents: list[torch.Tensor], needed: tuple[int, ...]) -> tuple[Any, ...]:
        """Gradients with a history, computed from the inputs and with the random numbers that the forward drew."""
        if not needed:
            return ()
        return self._with_numbers(ctx, lambda inputs: self.again(inputs, tangents, needed))

    def _with_numbers(self, ctx: Any, compute: Callable[[list[Any]], tuple[Any, ...]]) -> tuple[Any, ...]:
        """`compute` of the inputs of a call, with the random numbers that it drew."""
        if len(ctx.inputs) != self.n_inputs:
            raise RuntimeError(
                "Trying to backward through the graph a second time: its inputs were freed (retain_graph)"
            )
        if self.kept.versions(ctx.inputs) != ctx.versions:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                "an input of a compiled function was written after the call"
            )
        inputs = given_again(ctx.inputs)
        if ctx.random_state is None:
            return compute(inputs)
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.random_state)
        try:
            return compute(inputs)
        finally:
            torch.set_rng_state(now)

    def results_again(self, ctx: Any, apply: Callable[..., tuple[Any, ...]]) -> tuple[Any, ...]:
        """The results of a call, which are gone, with a history: `kept.replays` says whether they may be asked for."""
        with torch.enable_grad():
            return self._with_numbers(ctx, lambda inputs: apply(self.kept.before(inputs), *inputs))


def autograd_function(halves: Halves) -> type[torch.autograd.Function]:
    """The function. Its first argument is what to keep of the inputs in their place (None: the inputs)."""

    class Compiled(torch.autograd.Function):
        replays = halves.kept.replays

        @staticmethod
        def results_again(ctx: Any) -> tuple[Any, ...]:
            return halves.results_again(ctx, Compiled.apply)

        @staticmethod
        def forward(ctx: Any, before: list[Any] | None, *inputs: Any) -> tuple[Any, ...]:
            return halves.forward(ctx, before, inputs)

        @staticmethod
        def backward(ctx: Any, *given: Any) -> tuple[Any, ...]:
            return halves.backward(ctx, given)

    return Compiled


def _with_views(results: tuple[Any, ...], views: dict[int, Any], inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results, some of them in the memory of inputs or of others: they come out as those of any custom function."""
    found = list(results)
    for position, get in views.items():
        found[position] = get(inputs, results, [])
    return tuple(found)


def _check_versions(watched: Any) -> None:
    for reference, expected in watched:
        tensor = reference()
        if tensor is not None and version(tensor) != expected:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: "
                f"[{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version {expected} "
                "instead. It is an input or an output of a compiled function."
            )


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
    if torch_adapter.is_transformed(tangent):
        return tangent.contiguous()
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).copy_(tangent)
