"""How gradients of results lie in memory when a compiled backward is given them.

In:     a result, as it was traced or as it is; a gradient that the engine gives.
Out:    the layout that the backward was traced for; the gradient, in this layout; gradients that lie as eager's do where
        the given one lies otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant import torch_adapter
from pliant.autograd.views import overlaps_itself
from pliant.gc_pause import GcPause
from pliant.interruptions import pass_on

if TYPE_CHECKING:
    from pliant.graph.fake_tensor import FakeTensor

Layout = tuple[Any, ...]  # size, strides, dtype, device
_Tensor, _STRIDED, _is_transformed = torch.Tensor, torch.strided, torch_adapter.is_transformed


def layout_of_tangent(result: FakeTensor) -> Layout | str:
    """The layout of a result's gradient, or, where symbols occur in it, how to tell it from the result."""
    strides = tangent_strides(result)
    if all(type(number) is int for number in (*result.size_, *strides)):
        return result.size_, strides, result.dtype_, result.device_
    return "as the result" if strides is result.stride_ else "as a clone"


def tangent_strides(result: FakeTensor) -> Any:
    """The result's strides if it is dense, else those of its clone: a gradient that overlaps itself cannot be made. Where
    rows follow one another, a size of 0 or 1 tells nothing: no guard is needed."""
    from pliant.graph.layouts import lies_in_rows, preserved_strides  # to call what is compiled needs neither
    from pliant.graph.tensor_spec import row_major_strides

    spec = result.spec
    return row_major_strides(spec.size) if lies_in_rows(spec) else preserved_strides(spec)


def _layout(tensor: torch.Tensor) -> Layout:
    return tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _layout_of_clone(tensor: torch.Tensor) -> Layout:
    return tensor.shape, torch.empty_like(tensor, device="meta").stride(), tensor.dtype, tensor.device


LAYOUTS: dict[str, Callable[[torch.Tensor], Layout]] = {"as the result": _layout, "as a clone": _layout_of_clone}


def lies_as_traced(tangent: torch.Tensor | None, layout: Layout) -> bool:
    if type(tangent) is not _Tensor or tangent.layout is not _STRIDED:
        return False
    if tangent.stride() != layout[1] or _is_transformed(tangent):
        return False
    return not (tangent.is_conj() or tangent.is_neg())


def is_sparse(tangent: torch.Tensor | None) -> bool:
    return tangent is not None and tangent.layout is not _STRIDED


def laid_out(tangent: torch.Tensor | None, layout: Layout) -> torch.Tensor:
    """The tangent as memory with the strides that the backward was traced for; zeros where there is none."""
    shape, stride, dtype, device = layout
    if tangent is None:
        return torch.empty_strided(shape, stride, dtype=dtype, device=device).zero_()
    if is_sparse(tangent):  # it has no memory to lie in
        return tangent
    lazy = tangent.is_conj() or tangent.is_neg()
    if tangent.stride() == stride and type(tangent) is torch.Tensor and not lazy:
        return tangent
    if torch_adapter.is_transformed(tangent):
        return tangent.contiguous()
    return torch.empty_strided(shape, stride, dtype=dtype, device=device).copy_(tangent)


class OtherLayouts:
    """How gradients lie in eager where those of results lie otherwise than the backward was traced for: found once for each
    way to lie and all sizes that vary, by the backward's operators on descriptions of tensors."""

    def __init__(self) -> None:
        self.found: dict[Any, list[Any] | None] = {}

    def strides(self, run: Any, numbers: int, arguments: list[Any], given: list[Any]) -> list[Any] | None:
        """Of each gradient; None where it is not known. `run`: what finds them for the backward's arguments, the last of which
        are the given gradients, and for what describes a tensor. The first `numbers` arguments tell all sizes that vary."""
        sizes = [one for one in arguments[:numbers] if type(one) is int]
        key = (*sizes, *[(one.shape, one.stride()) for one in given])
        if key not in self.found:
            if len(self.found) >= _WAYS:
                return None
            self.found[key] = _strides(run, [*arguments, *given])
        return self.found[key]


def _strides(run: Any, arguments: list[Any]) -> list[Any] | None:
    from pliant.graph.fake_mode import FakeMode
    from pliant.symbolic.shape_env import ShapeEnv

    mode = FakeMode(ShapeEnv())

    def described(value: Any) -> Any:
        if not isinstance(value, _Tensor):
            return value
        return mode.new(value.shape, value.stride(), value.dtype, value.device)

    try:
        with GcPause(), torch.no_grad(), mode:
            return run(arguments, described)  # type: ignore[no-any-return]
    except Exception as error:  # an operator that needs values: gradients lie as they were traced
        pass_on(error)
        return None


_WAYS = 32


def lying(gradient: Any, stride: Any) -> Any:
    """One that is contiguous stays so, as does one of which eager has elements several times in one place."""
    if stride is None or gradient is None or gradient.stride() == stride or 0 in stride or gradient.is_contiguous():
        return gradient
    return torch.empty_strided(gradient.shape, stride, dtype=gradient.dtype, device=gradient.device).copy_(gradient)


def relaid(value: Any, stride: Any) -> Any:
    """The tensor with these strides: itself, or a copy. Elements in one place are equal."""
    if value is None or value.stride() == stride or not value.numel():
        return value
    span = 1 + sum([(n - 1) * step for n, step in zip(value.shape, stride)])
    memory = torch.empty(span, dtype=value.dtype, device=value.device)
    made = memory.as_strided(value.shape, stride)
    if not overlaps_itself(made):
        return made.copy_(value.detach())
    places = torch.arange(span, device=value.device).as_strided(value.shape, stride)
    memory[places.reshape(-1)] = value.detach().reshape(-1)
    return made


def apart(gradients: Any) -> list[Any]:
    """Gradients of tangents that were copied, none in the memory of another: of views of tangents that are expanded eager
    puts copies into `.grad`. What is one tensor stays so."""
    known: dict[int, Any] = {}  # memory -> the gradient that has it
    found: dict[int, Any] = {}
    for one in gradients:
        if one is not None and id(one) not in found:
            dense = type(one) is torch.Tensor and one.layout is torch.strided
            alone = not dense or known.setdefault(one.untyped_storage().data_ptr(), one) is one
            found[id(one)] = one if alone else one.clone()
    return [None if one is None else found[id(one)] for one in gradients]
