"""Averages of images over small windows, as loops over the results.

In:     images with or without a batch dimension; windows, steps, padding.
Out:    each result computed of the elements in its window.
Holds:  elements are added in the order of eager's loops. They are written out one by one: large windows stay calls, and so do
        windows of which the number of elements varies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.scalar import Scalar, apply, const, where
from pliant.lowering.context import Lowering
from pliant.lowering.joining import all_of
from pliant.lowering.tensors import Index, Tensor, opmath
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


def _windows(low: Lowering, x: Tensor, results: Sequence[Expr], *options: Any) -> list[_Windows]:
    """Those along rows and along columns; `options`: sizes, steps, paddings as the operators take them."""
    pairs = [_pair(given) for given in options]
    return [_Windows(low, x.shape[d], results[d], *(pair[d] for pair in pairs)) for d in (-2, -1)]


def _pair(given: Any) -> tuple[int, int]:
    both = list(given) if isinstance(given, (list, tuple)) else [given]
    if len(both) not in (1, 2) or not all(type(n) is int for n in both):
        raise Unsupported("symbolic windows")
    return both[0], both[-1]


def _average_pool(
    low: Lowering, out: torch.Tensor, x: Tensor, size: Any, step: Any = (), padding: Any = 0, ceil: bool = False,
    counts_padding: bool = True, divisor: Any = None,
) -> Tensor:  # fmt: skip
    shape, math = low.shape_of(out), opmath(x.dtype)
    rows, columns = _windows(low, x, shape, size, step or size, padding)
    elements = rows.size * columns.size
    if x.dtype not in _FLOATS or elements > _LARGEST:
        raise Unsupported("a large window, or integers")
    if divisor is None and (ceil or not counts_padding and (rows.padding or columns.padding)):
        raise Unsupported("windows of several sizes")
    if divisor is not None and type(divisor) is not int:
        raise Unsupported("a symbolic divisor")
    if rows.size > rows.step or columns.size > columns.step:
        x.uses = max(x.uses, 2)  # several windows read an element

    def at(index: Index) -> Scalar:
        total: Scalar | None = None
        for h, inside in rows.elements(index[-2]):
            for w, beside in columns.elements(index[-1]):
                found, conditions = x.math_at([*index[:-2], h, w]), inside + beside
                found = where(all_of(conditions), found, const(0, math)) if conditions else found
                total = found if total is None else apply("add", total, found)
        assert total is not None
        average = apply("div", total, const(divisor or elements, math))
        return apply("add", average, const(0, math))  # eager has no negative zeros

    weight = elements * (1 + (x.weight if x.view is None else 0))
    return low.pointwise(out.dtype, shape, at, weight)


RULES: dict[Any, Callable[..., Any]] = {aten.avg_pool2d.default: _average_pool}
