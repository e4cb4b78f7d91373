"""Descriptions of a call's tensors that stay as they are, whatever the program does with the tensors.

In:     a captured graph, in the call that it was captured for.
Out:    its inputs with examples of our own: tensors in the same memory, which have of autograd what the call's have.
Holds:  the facts that a compiler reads of an example are compared; a tensor that is not described by all of them is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from pliant.autograd_torch_adapter import forbids_writes
from pliant.torch_adapter import DisableTorchFunction

if TYPE_CHECKING:
    from pliant.graph.contracts import CapturedGraph, GraphInput


class NotDescribed(Exception):
    """A tensor of which no other tensor has all that a compiler may ask."""


def described_inputs(captured: CapturedGraph) -> list[GraphInput]:
    """The inputs, whose examples are the compiler's own. NotDescribed."""
    with DisableTorchFunction():
        return [_described(one) for one in captured.inputs]


def _described(one: GraphInput) -> GraphInput:
    tensor = one.example
    if not isinstance(tensor, torch.Tensor):
        return one
    if tensor.layout is not torch.strided:
        raise NotDescribed(f"`{one.name}` is a tensor of layout {tensor.layout}")
    try:
        made = _alike(tensor)
    except RuntimeError as error:
        raise NotDescribed(f"no other tensor is as `{one.name}` is: {error}") from None
    if _facts(made) != _facts(tensor):
        raise NotDescribed(f"no other tensor is as `{one.name}` is for autograd")
    return replace(one, example=made)


def _alike(tensor: torch.Tensor) -> torch.Tensor:
    base = tensor._base
    with torch.inference_mode(tensor.is_inference()):
        made = _in_memory_of(tensor) if base is None else _view_like(tensor, base)
        if not tensor.requires_grad or made.requires_grad:
            return made
        made.requires_grad_()
        with torch.enable_grad():
            return made if tensor.is_leaf else _computed(made)


def _view_like(tensor: torch.Tensor, base: torch.Tensor) -> torch.Tensor:
    memory = _in_memory_of(base).requires_grad_(base.requires_grad)
    with torch.enable_grad():
        return memory.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _in_memory_of(tensor: torch.Tensor) -> torch.Tensor:
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    with torch.no_grad():
        made.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride())
    return made


class _Computed(torch.autograd.Function):
    """A tensor in the memory of another that is a result, and no view."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return _in_memory_of(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


_computed: Any = _Computed.apply


def _facts(tensor: torch.Tensor) -> tuple[object, ...]:
    """What the stages behind capture read of an example."""
    base = tensor._base
    return (
        tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device, tensor.is_inference(),
        tensor.is_conj(), tensor.is_neg(), tensor.requires_grad, tensor.is_leaf, base is not None,
        base is not None and base.requires_grad, forbids_writes(tensor), tensor.untyped_storage()._cdata,
    )  # fmt: skip
