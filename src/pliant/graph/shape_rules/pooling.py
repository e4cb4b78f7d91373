"""Pooling of images by windows.

Holds:  results follow the memory format of what is pooled. Where the last window may begin beyond the image (`ceil_mode`),
        the smaller of two numbers says so for all sizes, without a guard.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pliant.graph.shape_rules.neural import suggested
from pliant.graph.shape_rules.registry import Rules
from pliant.graph.tensor_spec import Dim, Sizes, TensorSpec, require, require_same, smaller

RULES = Rules()
rule = RULES.rule

_aten = torch.ops.aten
_REFUSED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
_Numbers = Sequence[Dim]


def _pair(numbers: _Numbers, what: str) -> _Numbers:
    require(len(numbers) in (1, 2), f"pooling: {what} must be a number or two")
    return numbers if len(numbers) == 2 else (*numbers, *numbers)


def _windows(size: Dim, kernel: Dim, stride: Dim, padding: Dim, dilation: Dim, *, ceil_mode: bool) -> Dim:
    """How many windows there are along a dimension."""
    require(kernel > 0 and stride > 0 and dilation > 0, "pooling: window, stride and dilation should be greater than zero")
    reach = dilation * (kernel - 1)
    require(padding >= 0 and padding <= (reach + 1) // 2 and padding <= kernel // 2, "pooling: padding beyond half a window")
    places = size + 2 * padding - reach - 1
    if not ceil_mode:
        return places // stride + 1
    # No window begins behind the image and the padding before it; the padding is too small for two such.
    return smaller((places + stride - 1) // stride, (size + padding - 1) // stride) + 1


def _pooled(
    x: TensorSpec, kernel: _Numbers, stride: _Numbers, padding: _Numbers, dilation: _Numbers, ceil_mode: bool
) -> Sizes:
    require(x.ndim in (3, 4), "pooling: an image or several are expected")
    for extent in x.size[-3:]:
        require(extent != 0, "pooling: only the number of images may be zero")
    kernel = _pair(kernel, "the window")
    numbers = (kernel, _pair(stride, "the stride") if stride else kernel, _pair(padding, "the padding"), _pair(dilation, "the dilation"))
    size = [_windows(*each, ceil_mode=ceil_mode) for each in zip(x.size[-2:], *numbers, strict=True)]
    for extent in size:
        require(extent >= 1, "pooling: output size is too small")
    return (*x.size[:-2], *size)


@rule(_aten.max_pool2d_with_indices.default)
def max_pool2d(
    x: TensorSpec, kernel: _Numbers, stride: _Numbers = (), padding: _Numbers = (0,), dilation: _Numbers = (1,), ceil_mode: bool = False
) -> tuple[TensorSpec, TensorSpec]:
    pooled = suggested(x, _pooled(x, kernel, stride, padding, dilation, ceil_mode))
    return pooled, pooled.like(pooled.size, pooled.stride, dtype=torch.int64)


@rule(_aten.avg_pool2d.default)
def avg_pool2d(
    x: TensorSpec, kernel: _Numbers, stride: _Numbers = (), padding: _Numbers = (0,), ceil_mode: bool = False,
    count_include_pad: bool = True, divisor_override: int | None = None,
) -> TensorSpec:  # fmt: skip
    require(x.dtype not in _REFUSED, f"avg_pool2d: not implemented for {x.dtype}")
    require(divisor_override is None or divisor_override != 0, "avg_pool2d: the divisor must not be zero")
    return suggested(x, _pooled(x, kernel, stride, padding, (1,), ceil_mode))


def _gradient(grad: TensorSpec, x: TensorSpec, size: Sizes) -> TensorSpec:
    require_same(grad.size, size, "pooling: a gradient of another size")
    require(grad.dtype == x.dtype, "pooling: a gradient of another type")
    return suggested(x)


@rule(_aten.max_pool2d_with_indices_backward.default)
def max_pool2d_backward(
    grad: TensorSpec, x: TensorSpec, kernel: _Numbers, stride: _Numbers, padding: _Numbers, dilation: _Numbers,
    ceil_mode: bool, indices: TensorSpec,
) -> TensorSpec:  # fmt: skip
    size = _pooled(x, kernel, stride, padding, dilation, ceil_mode)
    require_same(indices.size, size, "pooling: indices of another size")
    return _gradient(grad, x, size)


@rule(_aten.avg_pool2d_backward.default)
def avg_pool2d_backward(
    grad: TensorSpec, x: TensorSpec, kernel: _Numbers, stride: _Numbers, padding: _Numbers, ceil_mode: bool,
    count_include_pad: bool, divisor_override: int | None,
) -> TensorSpec:  # fmt: skip
    require(divisor_override is None or divisor_override != 0, "avg_pool2d: the divisor must not be zero")
    return _gradient(grad, x, _pooled(x, kernel, stride, padding, (1,), ceil_mode))
