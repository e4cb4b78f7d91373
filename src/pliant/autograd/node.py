"""A compiled program's function in autograd's graph, as torch calls it: in forward, and from the engine.

In:     `function.Halves`, and at each call the inputs or the gradients of results.
Out:    `Compiled`, the one subclass of `torch.autograd.Function`.
Holds:  a call and its backward, where they are what they mostly are, run as few functions as they can: the engine calls on a
        thread of its own for a GPU, where nothing of Python is in the caches. All else is left to `Halves`.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from pliant import torch_adapter
from pliant.autograd.kept_inputs import any_written
from pliant.autograd.result_hooks import register_first
from pliant.autograd.saved_memory import as_they_lay, lying_now
from pliant.autograd.tangent_layouts import lies_as_traced, relaid
from pliant.autograd_torch_adapter import ask_for_first_hooks
from pliant.graph.generator_states import random_bytes
from pliant.torch_adapter import PEER, DisableTorchFunction, is_view, seen_written, without_base

if TYPE_CHECKING:
    from pliant.autograd.function import Halves
    from pliant.autograd.saved_memory import InOwnMemory

# Each step of a training loop asks them, so they are looked up once.
_count_dispatch_modes, _count_function_modes = torch_adapter.count_dispatch_modes, torch_adapter.count_function_modes
_engine_keeps_graph, _saved_tensor_hooks = torch_adapter.engine_keeps_graph, torch_adapter.saved_tensor_hooks
_is_grad_enabled, _any_autocast = torch.is_grad_enabled, torch_adapter.any_autocast
_Tensor, _modules, _version = torch.Tensor, sys.modules, operator.attrgetter("_version")


class Compiled(torch.autograd.Function):
    """The function of every compiled graph. It is given the halves, and what to keep of the inputs in their place (None:
    the inputs). What `save_for_backward` and its like store in the record is stored without calling them."""

    @staticmethod
    def forward(ctx: Any, halves: Halves, before: list[Any] | None, *inputs: Any) -> tuple[Any, ...]:
        ctx._pliant_halves = halves
        if halves.random:
            ctx.random_state = random_bytes(halves.kept.gpus)
        run = halves.run if _any_autocast() else halves.run_without_casts
        outputs = run([*inputs])
        ctx.materialize_grads = False
        end = halves.n_results
        results = tuple(outputs[:end])
        if not halves.only_tensors or any(map(is_view, results)):
            results = tuple(map(without_base, results))
        if halves.inner:
            results = halves.with_views(results, before, inputs)
        if halves.plain:
            ctx.non_differentiable = tuple([results[i] for i in halves.plain])
        if halves.n_numbers:
            ctx.numbers = outputs[end : end + halves.n_numbers]
        own = inputs if before is None or not halves.apart else halves.own(before, inputs)
        others = outputs[end:]
        for value in others:
            if type(value) is _Tensor and is_view(value):
                others = list(seen_written(others))
                break
        ctx.to_save = saved = halves.saved((*own, *halves.constants, *results, *others))
        if halves.lie_as_they_come:
            ctx.lying = lying_now(saved, halves.lie_as_they_come)
        if halves.layouts_vary:
            ctx.layouts = halves.layouts_of(results)
        ctx.inputs = inputs if before is None else before
        if halves.unsaved:
            try:
                ctx.versions = tuple(map(_version, halves.unsaved_of(inputs)))
            except RuntimeError:  # of an inference tensor
                ctx.versions = halves.kept.versions(inputs)
        if _saved_tensor_hooks(True) is not None:
            ctx.unwatched, ctx.strides = halves.versions(inputs), [one.stride() for one in saved]
        return results

    @staticmethod
    @torch_adapter.opaque_to_the_peer
    def backward(ctx: Any, *given: Any) -> tuple[Any, ...]:
        if _count_function_modes() or PEER in _modules:
            return _apart(ctx, given)
        return _backward(ctx, given)


def _apart(ctx: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """`_backward`, which neither PyTorch's compiler nor function modes see: eager's backward shows them nothing either."""
    run = torch_adapter.shielded(_backward)
    if not _count_function_modes():
        return run(ctx, given)
    with DisableTorchFunction():
        return run(ctx, given)


def _backward(ctx: Any, given: tuple[Any, ...]) -> tuple[Any, ...]:
    """The gradients of the function's arguments."""
    halves: Halves = ctx._pliant_halves
    run = halves.ordinary
    # Not the one backward of a call, of all its results' gradients, which lie as the backward was traced for, or somebody looks on:
    if run is None or ctx.rest is not None or _is_grad_enabled() or _any_autocast():
        return halves.backward(ctx, given)
    if ctx.watched and any_written(ctx.watched):
        return halves.backward(ctx, given)
    if _count_dispatch_modes() or _engine_keeps_graph():
        return halves.backward(ctx, given)
    tangents = halves.given_tangents(given)
    if halves.layouts_vary:
        if not all(map(lies_as_traced, tangents, ctx.layouts)):
            return halves.backward(ctx, given)
    elif not halves.laid_out.known(tangents) and not halves.learn(tangents):
        return halves.backward(ctx, given)
    saved = ctx.saved_tensors
    kept = halves.in_own_memory
    if ctx.strides is not None or kept is not None and not kept.seen.known(kept.inputs(saved)):
        saved = as_saved(ctx, saved, kept)
    elif ctx.lying:
        saved = as_they_lay(saved, ctx.lying)
    arguments = [*ctx.numbers, *saved, *tangents]
    del saved  # nobody has it after this
    ctx.used, ctx.rest = halves.all, halves.nothing_left
    ctx.maybe_clear_saved_tensors()
    if halves.frees_all:
        ctx.inputs = ()
    values = run(arguments)
    return (None, None, *values) if halves.in_order else halves.in_places((None, *values))


# What the record of a call says unless its forward, or what came since, says otherwise. Most calls store none of it.
torch_adapter.give_to_records(
    Compiled, random_state=None, numbers=(), watched=(), used=0, rest=None, versions=(), unwatched=None, strides=None, lying=()
)
torch_adapter.call_backward_directly(Compiled)
ask_for_first_hooks(Compiled, register_first)


def as_saved(ctx: Any, saved: Sequence[Any], kept: InOwnMemory | None) -> Sequence[Any]:
    """The saved tensors as they lay when they were saved: hooks may give others of the same values, and the caller an input
    other data."""
    if ctx.strides is not None:
        return list(map(relaid, saved, ctx.strides))
    if ctx.lying:
        saved = as_they_lay(saved, ctx.lying)
    return saved if kept is None else kept.as_traced(saved)
