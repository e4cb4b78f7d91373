"""Averages and maxima over windows that divide an image evenly, as loops over the results.

In:     images with or without a batch dimension; how many windows each dimension has.
Out:    window k of m over n elements goes from k * n // m up to the next multiple of n / m, rounded up.
        Averages: rows are summed first, then columns, each stage in memory; gradients the other way round. Maxima: only where
        all windows are of one size, as in `pooling.py`.
Holds:  sizes are numbers: how many elements windows have is known. Along rows lanes are columns; the columns of a result are few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.scalar import Scalar, apply, cast, const, where
from pliant.lowering.context import Lowering
from pliant.lowering.joining import all_of
from pliant.lowering.padding import refuse_where_eager_does
from pliant.lowering.pooling import max_pool, max_pool_gradient
from pliant.lowering.tensors import Index, Tensor, opmath
from pliant.records import dataclass
from pliant.symbolic.expr import Expr

aten = torch.ops.aten
_LARGEST = 32  # elements of a window along one dimension
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True)
class _Windows:
    """The windows along one dimension: `results` of them over `elements`."""

    low: Lowering
    elements: int
    results: int

    def start(self, k: Expr) -> Expr:
        return (k * self.elements) // self.results

    def end(self, k: Expr) -> Expr:
        return ((k + 1) * self.elements + self.results - 1) // self.results

    @property
    def sizes(self) -> set[int]:
        n, m = self.elements, self.results
        return {((k + 1) * n + m - 1) // m - k * n // m for k in range(m)}

    def count(self, k: Expr, dtype: torch.dtype) -> Scalar:
        """How many elements window `k` has."""
        (only, *more) = sorted(self.sizes)
        return cast(self.low.number(self.end(k) - self.start(k), torch.int32), dtype) if more else const(only, dtype)

    @property
    def swapped(self) -> _Windows:
        """The windows of results that each element is in."""
        return _Windows(self.low, self.results, self.elements)


def _windows(low: Lowering, x: Tensor, results: Sequence[Expr]) -> tuple[_Windows, _Windows]:
    sizes = [(n.as_int(), m.as_int()) for n, m in zip(x.shape[-2:], results[-2:])]
    if x.dtype not in _FLOATS or any(not n or not m for n, m in sizes):
        raise Unsupported("integers, or images of unknown size")
    rows, columns = (_Windows(low, n, m) for n, m in sizes if n and m)
    return rows, columns


def _summed(
    low: Lowering, t: Tensor, dim: int, windows: _Windows, weigh: Callable[[Scalar, Expr], Scalar] | None
) -> Tensor:
    """Sums over the windows along a dimension (counted from the end) of elements, each weighed if it is to be."""
    sizes, math = sorted(windows.sizes), opmath(t.dtype)
    if sizes[-1] > _LARGEST:
        raise Unsupported("a large window")
    d = len(t.shape) + dim
    shape = tuple([low.size(windows.results) if k == d else n for k, n in enumerate(t.shape)])

    def at(index: Index) -> Scalar:
        total: Scalar | None = None
        first, end = windows.start(index[d]), low.number(windows.end(index[d]))
        for k in range(sizes[-1]):
            e = first + k
            found = t.math_at([*index[:d], e, *index[d + 1 :]])
            found = found if weigh is None else weigh(found, e)
            if k >= sizes[0]:
                found = where(all_of([apply("lt", low.number(e), end)]), found, const(0, math))
            total = found if total is None else apply("add", total, found)
        assert total is not None
        return total

    return low.pointwise(math, shape, at, sizes[-1] * 3)


def _refuse_channels_last(low: Lowering, t: Tensor) -> None:
    """Stages would write rows of columns: what lies by channels stays a call."""
    if not low.lies_by_rows(t):
        raise Unsupported("images that do not lie row by row")


def _in_memory(low: Lowering, t: Tensor, windows: _Windows) -> Tensor:
    """A stage, kept if the next one reads an element several times."""
    if max(windows.sizes) > 1 and t.view is None:
        t.view = low.store(t)
    return t


def _average(low: Lowering, out: torch.Tensor, x: Tensor, size: Any) -> Tensor:
    shape, math = low.shape_of(out), opmath(x.dtype)
    rows, columns = _windows(low, x, shape)
    _refuse_channels_last(low, x)
    if x.view is None:
        x.uses = max(x.uses, 2)
    total = _summed(low, _in_memory(low, _summed(low, x, -2, rows, None), columns), -1, columns, None)

    def at(index: Index) -> Scalar:
        by_rows = apply("div", total.at(index), rows.count(index[-2], math))
        return apply("div", by_rows, columns.count(index[-1], math))

    return low.pointwise(out.dtype, shape, at, total.weight + 8)


def _average_gradient(low: Lowering, out: torch.Tensor, grad: Tensor, x: Tensor) -> Tensor:
    """Of each element the gradients of the windows that it is in, divided as these are."""
    refuse_where_eager_does(out)
    rows, columns = _windows(low, x, grad.shape)
    _refuse_channels_last(low, grad)
    math = opmath(grad.dtype)
    if grad.dtype not in _FLOATS:
        raise Unsupported("integers")
    if grad.view is None:
        grad.uses = max(grad.uses, 2)
    across = _summed(low, grad, -1, columns.swapped, lambda v, k: apply("div", v, columns.count(k, math)))
    across.view = low.store(across)
    result = _summed(low, across, -2, rows.swapped, lambda v, k: apply("div", v, rows.count(k, math)))
    return Tensor(low, out.dtype, low.shape_of(out), result.at, weight=result.weight)


def _options(low: Lowering, x: Tensor, results: Sequence[Expr]) -> list[list[int]]:
    """The same windows as a pool's size and step."""
    both = _windows(low, x, results)
    if any(one.elements % one.results for one in both):
        raise Unsupported("windows of several sizes")
    size = [one.elements // one.results for one in both]
    return [size, size]


def _maximum(low: Lowering, out: Sequence[torch.Tensor], x: Tensor, size: Any) -> list[Tensor]:
    return max_pool(low, out, x, *_options(low, x, low.shape_of(out[0])))


def _maximum_gradient(low: Lowering, out: torch.Tensor, grad: Tensor, x: Tensor, positions: Tensor) -> Tensor:
    refuse_where_eager_does(out)
    size, step = _options(low, x, grad.shape)
    return max_pool_gradient(low, out, grad, x, size, step, 0, 1, False, positions)


RULES: dict[Any, Callable[..., Any]] = {
    aten._adaptive_avg_pool2d.default: _average,
    aten._adaptive_avg_pool2d_backward.default: _average_gradient,
    aten.adaptive_max_pool2d.default: _maximum,
    aten.adaptive_max_pool2d_backward.default: _maximum_gradient,
}
