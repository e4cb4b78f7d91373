"""How gradients of results lie in memory when a compiled backward is given them.

In:     a result, as it was traced or as it is; a gradient that the engine gives.
Out:    the layout that the backward was traced for; the gradient, in this layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant import torch_adapter

if TYPE_CHECKING:
    from pliant.graph.fake_tensor import FakeTensor

Layout = tuple[Any, ...]  # size, strides, dtype, device
_Tensor, _is_transformed = torch.Tensor, torch_adapter.is_transformed


def layout_of_tangent(result: FakeTensor) -> Layout | str:
    """The layout of a result's gradient, or, where symbols occur in it, how to tell it from the result."""
    from pliant.autograd.joint import tangent_strides

    strides = tangent_strides(result)
    if all(type(number) is int for number in (*result.size_, *strides)):
        return result.size_, strides, result.dtype_, result.device_
    return "as the result" if strides is result.stride_ else "as a clone"


def _layout(tensor: torch.Tensor) -> Layout:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _layout_of_clone(tensor: torch.Tensor) -> Layout:
    return tensor.shape, torch.empty_like(tensor, device="meta").stride(), tensor.dtype, tensor.device


LAYOUTS: dict[str, Callable[[torch.Tensor], Layout]] = {"as the result": _layout, "as a clone": _layout_of_clone}


def lies_as_traced(tangent: torch.Tensor | None, layout: Layout) -> bool:
    if type(tangent) is not _Tensor or tangent.stride() != layout[1] or _is_transformed(tangent):
        return False
    return not (tangent.is_conj() or tangent.is_neg())


def laid_out(tangent: torch.Tensor | None, layout: Layout) -> torch.Tensor:
    """The tangent as memory with the strides that the backward was traced for; zeros where there is none."""
    shape, stride, dtype, device = layout
    if tangent is None:
        return torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
    lazy = tangent.is_conj() or tangent.is_neg()
    if tangent.stride() == stride and type(tangent) is torch.Tensor and not lazy:
        return tangent
    if torch_adapter.is_transformed(tangent):
        return tangent.contiguous()
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).copy_(tangent)
