"""Averages and maxima of images over small windows, as loops over the results.

In:     images with or without a batch dimension; windows, steps, padding.
Out:    each result computed of the elements in its window; each gradient of the windows that its element is in.
Holds:  elements are taken in the order of eager's loops. They are written out one by one: large windows stay calls. Windows
        that divide an image evenly whatever its size is are in `adaptive_pooling.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.scalar import Scalar, apply, cast, const, where
from pliant.lowering.context import Lowering
from pliant.lowering.joining import all_of
from pliant.lowering.tensors import At, Index, Tensor, opmath
from pliant.records import dataclass
from pliant.symbolic.expr import Expr

aten = torch.ops.aten
_LARGEST = 16  # elements of a window
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows along one dimension: window k begins at `k * step - padding`."""

    low: Lowering
    images: Expr  # elements along the dimension
    results: Expr
    size: int
    step: int
    padding: int

    def first(self, k: Expr, dtype: torch.dtype) -> Scalar:
        """The first element of window `k` that is there."""
        start = self.low.number(k * self.step - self.padding, dtype)
        return apply("maximum", start, const(0, dtype)) if self.padding else start

    def around(self, e: Expr) -> tuple[Expr, list[Scalar]]:
        """The one window that element `e` may be in, where none overlap, and what must hold for it to be there."""
        k = (e + self.padding) // self.step
        if self.low.known(((self.images - 1 + self.padding) // self.step).lt(self.results)):
            return k, []
        return k, [apply("lt", self.low.number(k), self.low.number(self.results))]

    def holding(self, e: Expr) -> list[tuple[Expr, list[Scalar]]]:
        """The windows that element `e` may be in, and what must hold for it to be there."""
        last = (e + self.padding) // self.step
        return [self._holding(e, last - n, n) for n in range(-(-self.size // self.step))]

    def _holding(self, e: Expr, k: Expr, before: int) -> tuple[Expr, list[Scalar]]:
        low, zero = self.low, const(0, torch.int64)
        found = [apply("ge", low.number(k), zero)] if before else []
        if not low.known(((self.images - 1 + self.padding) // self.step - before).lt(self.results)):
            found.append(apply("lt", low.number(k), low.number(self.results)))
        if (before + 1) * self.step > self.size:  # the step is no part of the size: it may end before the element
            reached = low.number(e + self.padding - k * self.step)
            found.append(apply("lt", reached, const(self.size, torch.int64)))
        return k, found

    def elements(self, k: Expr) -> list[tuple[Expr, list[Scalar]]]:
        """The elements of window `k`, and what must hold for them to be there."""
        return [self._element(k, n - self.padding) for n in range(self.size)]

    def _element(self, k: Expr, shift: int) -> tuple[Expr, list[Scalar]]:
        e = k * self.step + shift
        last = (self.results - 1) * self.step + shift
        position = self.low.number(e)
        found = [] if shift >= 0 else [apply("ge", position, const(0, torch.int64))]
        if not self.low.known(last.lt(self.images)):
            found.append(apply("lt", position, self.low.number(self.images)))
        return e, found

    def count(self, k: Expr, counts_padding: bool) -> Scalar:
        """By how many elements window `k` divides: those that are there, and padding if it counts."""
        start, dtype = self.low.number(k * self.step - self.padding, torch.int32), torch.int32
        edge = self.low.number(self.images + self.padding if counts_padding else self.images, dtype)
        end = apply("minimum", apply("add", start, const(self.size, dtype)), edge)
        return apply("sub", end, start if counts_padding else apply("maximum", start, const(0, dtype)))

    @property
    def overlap(self) -> bool:
        return self.size > self.step


def _windows(low: Lowering, x: Tensor, results: Sequence[Expr], *options: Any) -> list[_Windows]:
    """Those along rows and along columns; `options`: sizes, steps, paddings as the operators take them."""
    pairs = [_pair(given) for given in options]
    return [_Windows(low, x.shape[d], results[d], *(pair[d] for pair in pairs)) for d in (-2, -1)]


def _pair(given: Any) -> tuple[int, int]:
    both = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(both) not in (1, 2) or not all(type(n) is int for n in both):
        raise Unsupported("symbolic windows")
    return both[0], both[-1]


Divisor = Callable[[Expr, Expr], Scalar]  # of the window at a row and a column


def _divisor(
    rows: _Windows, columns: _Windows, t: Tensor, ceil: bool, counts_padding: bool, divisor: Any
) -> int | Divisor:
    """By what the sum over a window is divided. `t`: what is summed."""
    elements = rows.size * columns.size
    if t.dtype not in _FLOATS or elements > _LARGEST:
        raise Unsupported("a large window, or integers")
    if divisor is not None and type(divisor) is not int:
        raise Unsupported("a symbolic divisor")
    if rows.overlap or columns.overlap:
        t.uses = max(t.uses, 2)  # several windows read an element, or lie over it
    if divisor is None and (ceil or not counts_padding and (rows.padding or columns.padding)):
        if not rows.low.known((t.shape[-2] * t.shape[-1]).lt(2**30)):
            raise Unsupported("images of unknown size")
        math = opmath(t.dtype)
        return lambda h, w: cast(apply("mul", rows.count(h, counts_padding), columns.count(w, counts_padding)), math)
    return divisor or elements


Places = list[tuple[Expr, list[Scalar]]]  # along one dimension, each with what must hold for it to be there


def _average(t: Tensor, outer: Index, rows: Places, columns: Places, divisor: int | Scalar | Divisor) -> Scalar:
    """The sum of the elements at these places, divided; by a `Divisor` each."""
    math = opmath(t.dtype)
    total: Scalar | None = None
    for h, inside in rows:
        for w, beside in columns:
            found, conditions = t.math_at([*outer, h, w]), inside + beside
            found = apply("div", found, divisor(h, w)) if callable(divisor) else found
            found = where(all_of(conditions), found, const(0, math)) if conditions else found
            total = found if total is None else apply("add", total, found)
    assert total is not None
    if not callable(divisor):
        total = apply("div", total, const(divisor, math) if isinstance(divisor, int) else divisor)
    return apply("add", total, const(0, math))  # eager has no negative zeros


def _weight(rows: _Windows, columns: _Windows, t: Tensor) -> int:
    return rows.size * columns.size * (1 + (t.weight if t.view is None else 0))


def _average_pool(
    low: Lowering, out: torch.Tensor, x: Tensor, size: Any, step: Any = (), padding: Any = 0, ceil: bool = False,
    counts_padding: bool = True, divisor: Any = None,
) -> Tensor:  # fmt: skip
    shape = low.shape_of(out)
    rows, columns = _windows(low, x, shape, size, step or size, padding)
    by = _divisor(rows, columns, x, ceil, counts_padding, divisor)

    def at(index: Index) -> Scalar:
        divisor = by(index[-2], index[-1]) if callable(by) else by
        return _average(x, index[:-2], rows.elements(index[-2]), columns.elements(index[-1]), divisor)

    return low.pointwise(out.dtype, shape, at, _weight(rows, columns, x))


def _average_pool_gradient(
    low: Lowering, out: torch.Tensor, grad: Tensor, x: Tensor, size: Any, step: Any = (), padding: Any = 0,
    ceil: bool = False, counts_padding: bool = True, divisor: Any = None,
) -> Tensor:  # fmt: skip
    """Of each element the gradients of the windows that it is in, divided as these are."""
    rows, columns = _windows(low, x, grad.shape, size, step or size, padding)
    by = _divisor(rows, columns, grad, ceil, counts_padding, divisor)

    def at(index: Index) -> Scalar:
        return _average(grad, index[:-2], rows.holding(index[-2]), columns.holding(index[-1]), by)

    return low.pointwise(out.dtype, low.shape_of(out), at, _weight(rows, columns, grad))


# -- maxima -----------------------------------------------------------------------------------------------------------


def _maximum_windows(low: Lowering, x: Tensor, results: Sequence[Expr], options: Sequence[Any]) -> list[_Windows]:
    """`options` as the operators take them: sizes, steps, paddings, distances of elements, whether to round up."""
    defaults: tuple[Any, ...] = ((), 0, 1, False)
    size, step, padding, dilation, _ = [*options, *defaults[len(options) - 1 :]]
    rows, columns = _windows(low, x, results, size, step or size, padding)
    if x.dtype not in _FLOATS or rows.size * columns.size > _LARGEST or _pair(dilation) != (1, 1):
        raise Unsupported("a large window, one with holes, or integers")
    if not low.known((x.shape[-2] * x.shape[-1]).lt(2**31)):
        raise Unsupported("images of unknown size")  # lanes hold positions of 32 bits
    return [rows, columns]


def max_pool(low: Lowering, out: Sequence[torch.Tensor], x: Tensor, *options: Any) -> list[Tensor]:
    shape, math = low.shape_of(out[0]), opmath(x.dtype)
    rows, columns = _maximum_windows(low, x, shape, options)
    if rows.overlap or columns.overlap:
        x.uses = max(x.uses, 2)  # several windows read an element

    def elements(index: Index, at: At) -> Iterator[tuple[Scalar, Expr]]:
        """Each element of a window, -inf where none is, and where it lies in the image."""
        for h, inside in rows.elements(index[-2]):
            for w, beside in columns.elements(index[-1]):
                value, conditions = cast(at([*index[:-2], h, w]), math), inside + beside
                value = where(all_of(conditions), value, const(-torch.inf, math)) if conditions else value
                yield value, h * x.shape[-1] + w

    def larger(best: Scalar, value: Scalar) -> Scalar:
        return apply("maximum", value, best)  # of equal ones the earlier

    def largest(index: Index) -> Scalar:
        return functools.reduce(larger, [value for value, _ in elements(index, x.at)])

    def position(index: Index) -> Scalar:
        above = apply("mul", rows.first(index[-2], torch.int32), low.number(x.shape[-1], torch.int32))
        at = apply("add", above, columns.first(index[-1], torch.int32))
        (best, _), *others = list(elements(index, x.exact_at))  # rounded: there may be equal ones then
        for value, e in others:
            taken = apply("bit_or", apply("gt", value, best), apply("isnan", value))  # the last NaN, as in eager
            at, best = where(taken, low.number(e, torch.int32), at), larger(best, value)
        return cast(at, torch.int64)

    weight = rows.size * columns.size * (3 + (x.weight if x.view is None else 0))
    values = low.pointwise(out[0].dtype, shape, largest, weight)
    return [values, low.pointwise(torch.int64, shape, position, weight)]


def max_pool_gradient(low: Lowering, out: torch.Tensor, grad: Tensor, x: Tensor, *given: Any) -> Tensor:
    """`positions` are those that the forward found, each in its window: others are added up by another operator."""
    *options, positions = given
    math = opmath(x.dtype)
    rows, columns = _maximum_windows(low, x, grad.shape, options)
    if grad.dtype is not x.dtype:
        raise Unsupported("gradients of another dtype")
    if rows.overlap or columns.overlap:
        raise Unsupported("windows that overlap")  # adding up what each gives is faster than looking for it

    def at(index: Index) -> Scalar:
        here = low.number(index[-2] * x.shape[-1] + index[-1])
        (h, inside), (w, beside) = rows.around(index[-2]), columns.around(index[-1])
        place, conditions, zero = [*index[:-2], h, w], inside + beside, const(0, math)
        found = where(apply("eq", positions.at(place), here), grad.math_at(place), zero)
        found = where(all_of(conditions), found, zero) if conditions else found
        return apply("add", found, zero)  # eager has no negative zeros

    return low.pointwise(out.dtype, low.shape_of(out), at, 4 + (grad.weight if grad.view is None else 0))


RULES: dict[Any, Callable[..., Any]] = {
    aten.avg_pool2d.default: _average_pool,
    aten.avg_pool2d_backward.default: _average_pool_gradient,
    aten.max_pool2d_with_indices.default: max_pool,
    aten.max_pool2d_with_indices_backward.default: max_pool_gradient,
}
