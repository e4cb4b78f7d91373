"""Depthwise convolutions: which are loops, and gradients of weights and biases of row-major images.

In:     images of one to three dimensions behind batch and channels, each channel convolved with weights of its own.
Out:    an element of the weight's gradient is a sum over the positions of all images: the gradient at a position times the
        element of the image that the weight met there, with zeros around the image. Images with a margin, and gradients,
        are put in memory, row-major: each element is read as often as the weight has elements.
        The image's gradient is the library's. Images that lie channels last: `depthwise_images.py`, where a target wants it.
Holds:  float32, added in vectors' lanes and, these together, in double. Other convolutions are calls.
Source: measured with oneDNN 3.12 (AVX2): for weights of 5x5 and 7x7 the library's gradient of a weight takes 10 to 26 times as
        long as the image's, and for 3x3 about as long; these loops take as long as the image's gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.loops import View
from pliant.ir.scalar import Scalar, apply, const
from pliant.lowering import depthwise_images
from pliant.lowering.context import Lowering
from pliant.lowering.joining import padded
from pliant.lowering.tensors import Index, Shape, Tensor, contiguous_strides
from pliant.records import dataclass
from pliant.symbolic.expr import ZERO, Expr
from pliant.targets.registry import has_target, target_of

aten = torch.ops.aten
_WEIGHT = 100  # of what is in memory anyway
_SMALL_WINDOW = 16  # elements of a weight up to which, at sizes that vary, the library is as fast


@dataclass(frozen=True, slots=True)
class _Windows:
    """Where weights meet images: steps, margins and distances of elements along each dimension."""

    step: list[int]
    margin: list[int]
    distance: list[int]

    def met(self, position: Index, element: Index) -> list[Expr]:
        """The place in the image with its margin of a weight's element at a position."""
        return [p * s + e * d for p, s, e, d in zip(position, self.step, element, self.distance)]

    def reach(self, positions: Shape, window: Shape) -> Shape:
        """The extents of the image with its margin, as far as it is read: rows with what vectors skip behind an element."""
        *last, end = self.met([n - 1 for n in positions], [n - 1 for n in window])
        return (*[e + 1 for e in last], end + self.step[-1])


def _are_loops(x: Tensor) -> bool:
    """Whether the target wants depthwise convolutions of such images, and their gradients, as loops."""
    return has_target(x.device) and x.dtype in target_of(x.device).depthwise_images


def _convolution(low: Lowering, out: torch.Tensor, x: Tensor, *given: Any) -> Tensor:
    if not _are_loops(x):
        raise Unsupported("a convolution of the library's")
    return depthwise_images.convolution(low, out, x, *given)


def _convolution_gradients(
    low: Lowering, out: Sequence[torch.Tensor | None], grad: Tensor, x: Tensor, *given: Any
) -> list[Tensor | None]:
    return (depthwise_images.gradients if _are_loops(x) else _gradients)(low, out, grad, x, *given)


def _gradients(
    low: Lowering, out: Sequence[torch.Tensor | None], grad: Tensor, x: Tensor, weight: Tensor, biases: Any, step: Any,
    padding: Any, dilation: Any, transposed: bool, more: Any, groups: Any, mask: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    _, of_weight, of_bias = out
    if of_weight is None or not mask[1] or not _is_depthwise(low, grad, x, weight, transposed, groups):
        raise Unsupported("not the weight's gradient of a depthwise convolution")
    windows = _Windows(*(_numbers(given, len(x.shape) - 2) for given in (step, padding, dilation)))
    if not _is_worth_it(grad.shape, weight.shape):
        raise Unsupported("small windows of images whose sizes vary")
    given = [grad, x, weight, biases, step, padding, dilation, transposed, more, groups, [True, False, False]]
    first = low.extern(aten.convolution_backward.default, given, {}, [out[0], None, None])[0] if mask[0] else None
    grad = _row_major(low, grad)
    found = _of_weight(low, of_weight, grad, _with_margin(low, x, windows, grad.shape, weight.shape), windows)
    summed = [0, *range(2, len(grad.shape))]
    total = None if of_bias is None or not mask[2] else low.reduce(grad, summed, "sum", of_bias.dtype, torch.float32)
    return [first, found, total]


def _is_depthwise(low: Lowering, grad: Tensor, x: Tensor, weight: Tensor, transposed: bool, groups: Any) -> bool:
    target = target_of(x.device) if has_target(x.device) else None
    if target is None or not target.depthwise_gradients or transposed or len(x.shape) not in (3, 4, 5):
        return False
    if not all(t.dtype is torch.float32 for t in (grad, x, weight)):
        return False
    channels = x.shape[1].as_int()
    return channels is not None and channels > 1 and low.size(groups).as_int() == channels


def _numbers(given: Any, dims: int) -> list[int]:
    """An option of each dimension."""
    found = list(given) * (dims if len(given) == 1 else 1)
    if len(found) != dims or not all(type(n) is int for n in found):
        raise Unsupported("symbolic steps")
    return found


def _is_worth_it(positions: Shape, weight: Shape) -> bool:
    """Whether loops are fast: rows of known length stay in lanes from one to the next."""
    window = 1
    for n in weight[2:]:
        window *= n.as_int() or 0
    return window > _SMALL_WINDOW or all(n.as_int() is not None for n in positions[2:])


def _row_major(low: Lowering, t: Tensor) -> Tensor:
    """The tensor in memory, dense."""
    if low.realize_readable(t).strides == contiguous_strides(t.shape):
        return t
    copy = Tensor(low, t.dtype, t.shape, t.exact_at)
    copy.view = low.store(copy)
    return copy


def _with_margin(low: Lowering, x: Tensor, windows: _Windows, positions: Shape, weight: Shape) -> Tensor:
    """The images with zeros around them, in memory; the images themselves where nothing is around them."""
    extents = (*x.shape[:2], *windows.reach(positions[2:], weight[2:]))
    if not any(windows.margin) and all(low.known(e.le(n)) for e, n in zip(extents, x.shape)):
        return _row_major(low, x)

    low.realize_readable(x)
    wide = padded(low, x, extents, [0, 0, *windows.margin], const(0, x.dtype))
    wide.view = low.store(wide)
    return wide


def _of_weight(low: Lowering, out: torch.Tensor, grad: Tensor, wide: Tensor, windows: _Windows) -> Tensor:
    """For each channel and element of its weight: gradients times what it met, over all positions of all images."""
    channels, _, *window = low.shape_of(out)
    each = channels // wide.shape[1]
    batch, _, *positions = grad.shape
    t = Tensor(low, out.dtype, low.shape_of(out), weight=_WEIGHT)

    def value(point: Index, position: Index) -> Scalar:
        image, *place = position
        met = wide.at([image, point[0] // each, *windows.met(place, point[1:])])
        return apply("mul", grad.at([image, point[0], *place]), met)

    def materialize() -> View:
        view = low.temporary(t.dtype, t.shape, t.device, low.layout(t))

        def target(point: Index) -> Expr:
            index = [point[0], ZERO, *point[1:]]
            return sum((e * step for e, step in zip(index, view.strides)), view.offset)

        low.fold_into(view, (channels, *window), (batch, *positions), "sum", torch.float32, value, target, t.origin)
        return view

    t.materialize = materialize
    return t


RULES: dict[Any, Callable[..., Any]] = {
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_gradients,
}
