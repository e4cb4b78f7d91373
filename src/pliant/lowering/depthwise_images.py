"""Depthwise convolutions of images that lie channels last, and their gradients, as loops over channels.

In:     images [batch, channels, rows, columns], each channel convolved with a weight of its own.
Out:    an element of the result is the sum over its window, one of the image's gradient the sum over the windows that it is
        in: written out, so that what follows joins their loops. One of the weight's gradient is a sum over the positions of
        all images; of large images it is the library's.
Holds:  float32, each product and sum rounded at once; zeros are around the image. Weights are copied so that channels lie
        beside each other. Neighbouring results ask the same of each place that they both read, so that it is read once.
Source: measured on an H200 in bf16 beside cuDNN, layers of MobileNetV3 and EfficientNet-B0 at batches of 32 to 128: results take
        0.6 to 1.1 times as long, images' gradients 0.2 to 0.9, weights' gradients 0.6 to 1.2 for images of 14x14 and smaller,
        and up to 2.4 for larger ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.loops import View
from pliant.ir.scalar import Scalar, apply, const, where
from pliant.lowering.context import Lowering
from pliant.lowering.joining import all_of
from pliant.lowering.tensors import Index, Shape, Tensor
from pliant.records import dataclass
from pliant.symbolic.expr import ONE, ZERO, Expr, lit
from pliant.targets.registry import target_of

aten = torch.ops.aten
_WIDEST = 7  # elements of a window along a dimension
_AT_ONCE = (4, 7, 3, 2)  # positions along a row that a turn of a sum takes: what their windows share is read once
_ZERO = const(0, torch.float32)


@dataclass(frozen=True, slots=True)
class _Side:
    """Windows along one dimension: `size` elements, `distance` apart, from `step * k - margin` on for the k-th."""

    low: Lowering
    elements: Expr
    windows: Expr
    size: int
    step: int
    margin: int
    distance: int

    def met(self, k: Expr, tap: Expr | int) -> tuple[Expr, list[Scalar]]:
        """The element that the k-th window has at a place, and what must hold for it to be there."""
        reach = (self.windows - 1) * self.step + (self.size - 1) * self.distance - self.margin
        e = k * self.step + (tap * lit(self.distance) - self.margin)
        return e, self._within(e, self.elements, bool(self.margin) or not self.low.known(reach.lt(self.elements)))

    def holding(self, e: Expr) -> list[tuple[Expr, Expr, list[Scalar]]]:
        """The windows that may hold an element, at which place they would, and what must hold for them to do."""
        if self.step == 1:
            places = [e + (self.margin - tap * self.distance) for tap in range(self.size)]
            return [(k, lit(tap), self._within(k, self.windows, True)) for tap, k in enumerate(places)]
        last, first = (e + self.margin) // self.step, (e + self.margin) % self.step
        return [self._holding(last - n, first + n * self.step, (n + 1) * self.step > self.size) for n in range(self.turns)]

    @property
    def turns(self) -> int:
        """Windows at most that hold an element, for steps larger than one."""
        return -(-self.size // self.step)

    def _holding(self, k: Expr, tap: Expr, may_end: bool) -> tuple[Expr, Expr, list[Scalar]]:
        found = self._within(k, self.windows, True)
        if may_end:
            found.append(apply("lt", self.low.number(tap), const(self.size, torch.int64)))
        return k, tap, found

    def _within(self, e: Expr, end: Expr, asked: bool) -> list[Scalar]:
        position = self.low.number(e)
        return [apply("ge", position, const(0, torch.int64)), apply("lt", position, self.low.number(end))] if asked else []


def convolution(
    low: Lowering, out: torch.Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, *options: Any,
) -> Tensor:  # fmt: skip
    shape = low.shape_of(out)
    rows, columns = _sides(low, x, weight, shape, options)
    _expect_last(low, out, x)
    low.realize_readable(x)
    taps = _by_place(low, weight, (rows.size, columns.size))

    def at(index: Index) -> Scalar:
        total = _ZERO if bias is None else bias.math_at([index[1]])
        for i in range(rows.size):
            for j in range(columns.size):
                (h, inside), (w, beside) = rows.met(index[2], i), columns.met(index[3], j)
                met = _unless(x.math_at([*index[:2], h, w]), inside + beside)
                total = _with(total, met, taps.math_at([lit(i), lit(j), index[1]]))
        return total

    return low.kept(out.dtype, shape, at)


def gradients(
    low: Lowering, out: Sequence[torch.Tensor | None], grad: Tensor, x: Tensor, weight: Tensor, biases: Any, *options: Any,
) -> list[Tensor | None]:  # fmt: skip
    *given, mask = options
    of_image, of_weight, of_bias = (fake if asked else None for fake, asked in zip(out, mask))
    rows, columns = _sides(low, x, weight, grad.shape, given)
    _expect_last(low, of_image, x, grad)
    for one in (grad, x):
        low.realize_readable(one)
    found = None if of_image is None else _of_image(low, of_image, grad, weight, rows, columns)
    if of_weight is not None and not _sums_are_fast(grad, rows, columns):
        call = [grad, x, weight, biases, *given, [False, True, False]]
        _, of_taps, _ = low.extern(aten.convolution_backward.default, call, {}, [None, of_weight, None])
    else:
        of_taps = None if of_weight is None else _of_weight(low, of_weight, grad, x, rows, columns)
    total = None if of_bias is None else low.reduce(grad, [0, 2, 3], "sum", of_bias.dtype, torch.float32)
    return [found, of_taps, total]


def _sums_are_fast(grad: Tensor, rows: _Side, columns: _Side) -> bool:
    """Whether the sums of all places of a window over an image are short, as far as is known."""
    positions = (grad.shape[2] * grad.shape[3]).as_int()
    return positions is not None and positions * rows.size * columns.size <= target_of(grad.device).depthwise_sums


def _sides(low: Lowering, x: Tensor, weight: Tensor, windows: Shape, options: Sequence[Any]) -> list[_Side]:
    """Rows and columns of a depthwise convolution with a result for each channel; `options` as the operators take them."""
    step, margin, distance, transposed, _, groups = options
    if len(x.shape) != 4 or transposed or x.dtype is not weight.dtype:
        raise Unsupported("not a convolution of images")
    channels = x.shape[1].as_int()
    if channels is None or channels < 2 or not channels == low.size(groups).as_int() == weight.shape[0].as_int():
        raise Unsupported("not a depthwise convolution with a result for each channel")
    sizes = [n.as_int() for n in weight.shape[2:]]
    given = [list(one) * (2 if len(one) == 1 else 1) for one in (step, margin, distance)]
    if not all(type(n) is int for numbers in (sizes, *given) for n in numbers):
        raise Unsupported("symbolic windows")
    found = [_Side(low, *numbers) for numbers in zip(x.shape[2:], windows[2:], sizes, *given)]
    for side in found:
        if side.size > _WIDEST or side.step > 2 or (side.step > 1 and side.distance > 1):
            raise Unsupported("wide windows, or windows far apart")
    if all(side.size == 1 for side in found):
        raise Unsupported("windows of one element")
    return found


def _expect_last(low: Lowering, *images: Any) -> None:
    """Refuse images that lie otherwise: eager has kernels of its own for them."""
    for one in images:
        fake = one.fake if isinstance(one, Tensor) else one
        if fake is not None and low.strides_of(fake)[1] is not ONE:
            raise Unsupported("images that do not lie channels last")


def _by_place(low: Lowering, weight: Tensor, extents: Sequence[int]) -> Tensor:
    """The weights of all channels side by side for each place of a window, zeros behind the last one, in memory."""
    sizes = weight.shape[2:]

    def at(index: Index) -> Scalar:
        *place, channel = index
        behind = [(e, n) for e, n, extent in zip(place, sizes, extents) if n.as_int() != extent]
        conditions = [apply("lt", low.number(e), low.number(n)) for e, n in behind]
        value = weight.at([channel, ZERO, *place])
        return where(all_of(conditions), value, const(0, value.dtype)) if conditions else value

    t = Tensor(low, weight.dtype, (*map(lit, extents), weight.shape[0]), at)
    t.view = low.store(t)
    return t


def _unless(value: Scalar, conditions: list[Scalar]) -> Scalar:
    """The value, zero where it is not there."""
    return where(all_of(conditions), value, _ZERO) if conditions else value


def _with(total: Scalar, a: Scalar, b: Scalar) -> Scalar:
    return apply("fma", a, b, total)


def _of_image(low: Lowering, out: torch.Tensor, grad: Tensor, weight: Tensor, rows: _Side, columns: _Side) -> Tensor:
    """Of each element the gradients of the windows that hold it, times what these have there."""
    extents = [side.size if side.step == 1 else side.turns * side.step for side in (rows, columns)]
    taps = _by_place(low, weight, extents)

    def at(index: Index) -> Scalar:
        total: Scalar = _ZERO
        for h, i, inside in rows.holding(index[2]):
            for w, j, beside in columns.holding(index[3]):
                held = _unless(grad.math_at([*index[:2], h, w]), inside + beside)
                total = _with(total, held, taps.math_at([i, j, index[1]]))
        return total

    return low.kept(out.dtype, low.shape_of(out), at)


def _of_weight(low: Lowering, out: torch.Tensor, grad: Tensor, x: Tensor, rows: _Side, columns: _Side) -> Tensor:
    """Of each place of the windows, and each channel, the gradients times what lay there, summed over all positions."""
    channels, _, *window = low.shape_of(out)
    batch, _, above, beside = grad.shape
    count = beside.as_int()
    each = next((n for n in _AT_ONCE if count is not None and count % n == 0), 1)
    t = Tensor(low, out.dtype, low.shape_of(out))

    def value(point: Index, position: Index) -> Scalar:
        (i, j, c), (image, row, turn) = point, position
        total: Scalar = _ZERO
        for k in range(each):
            column = turn * each + k
            (h, inside), (w, there) = rows.met(row, i), columns.met(column, j)
            met = _unless(x.math_at([image, c, h, w]), inside + there)
            total = _with(total, met, grad.math_at([image, c, row, column]))
        return total

    def materialize() -> View:
        view = low.temporary(t.dtype, t.shape, t.device, low.layout(t))

        def target(point: Index) -> Expr:
            index = [point[2], ZERO, *point[:2]]
            return sum((e * step for e, step in zip(index, view.strides)), view.offset)

        summed = (batch, above, beside // each)
        low.fold_into(view, (*window, channels), summed, "sum", torch.float32, value, target, t.origin)
        return view

    t.materialize = materialize
    return t
