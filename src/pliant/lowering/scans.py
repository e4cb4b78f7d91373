"""Running sums and products.

In:     a tensor, and a dimension.
Out:    a `Scan`, to whose loop what computes its elements belongs.
        In order (`Target.adds_while_scanning`): of at least two rows, along any dimension; the additions are eager's, in its
        order and its dtype.
        By threads that share rows (`Target.scan_row`), along the last dimension: halves accumulate in f32, and of floats the
        order of additions differs from eager's. Few long rows are divided: chunks are folded, the running results of these
        computed, and each chunk scanned from what lies before it, so that there is work for all threads.
Holds:  no element behind a result is part of it: a NaN stays where it begins. All other scans are calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.loops import View
from pliant.ir.scalar import Scalar, apply, cast, const, where
from pliant.lowering.context import Lowering
from pliant.lowering.tensors import HALF, At, Index, Shape, Tensor, opmath
from pliant.lowering.views import dim_of
from pliant.records import dataclass
from pliant.symbolic.expr import ONE, lit
from pliant.targets.registry import has_target, target_of

aten = torch.ops.aten
_WEIGHT = 100  # of what is in memory anyway


@dataclass(frozen=True, slots=True)
class _Scan:
    """One scan: how elements are folded, in which dtype; rows are short up to so many elements, and so many of them are enough."""

    low: Lowering
    op: str
    operator: str
    neutral: int
    acc: torch.dtype
    short: int
    enough: int

    def results(self, at: At, t: Tensor) -> Tensor:
        """`t`, of which each element is `at` folded along the last dimension up to its point."""
        size = self._chunk(t.shape)
        if size:
            return self._by_chunks(at, t, size)

        def materialize() -> View:
            view = self.low.temporary(t.dtype, t.shape, t.device, self.low.layout(t))
            self.low.scan_into(view, view.strides, t.shape, len(t.shape) - 1, self.op, self.acc, at, t.origin)
            return view

        t.materialize = materialize
        return t

    def _chunk(self, shape: Shape) -> int:
        """The elements of a chunk, if rows are too few for all threads and too long for some; 0: rows are not divided."""
        length, rows = shape[-1].as_int(), 1
        for n in shape[:-1]:
            rows *= n.as_int() or self.enough
        if length is None or length <= 2 * self.short or rows >= self.enough:
            return 0
        wanted = max(self.short, rows * length // (8 * self.enough))
        return next((n for n in range(wanted, min(length, 4 * wanted) + 1) if length % n == 0), 0)

    def _by_chunks(self, at: At, t: Tensor, size: int) -> Tensor:
        chunks = (*t.shape[:-1], t.shape[-1] // size)
        before = self._before(at, chunks, size)

        def value(index: Index) -> Scalar:
            *rows, chunk, r = index
            neutral, position = const(self.neutral, self.acc), self.low.number(r)
            earlier = apply("gt", self.low.number(chunk), const(0, torch.int64))
            begins = apply("bit_and", earlier, apply("eq", position, const(0, torch.int64)))
            first = where(begins, before.at([*rows, chunk - 1]), neutral)
            return apply(self.operator, first, at([*rows, chunk * size + r]))

        def materialize() -> View:
            view = self.low.temporary(t.dtype, t.shape, t.device, self.low.layout(t))
            strides = (*view.strides[:-1], view.strides[-1] * size, view.strides[-1])
            self.low.scan_into(view, strides, (*chunks, lit(size)), len(chunks), self.op, self.acc, value, t.origin)
            return view

        t.materialize = materialize
        return t

    def _before(self, at: At, chunks: Shape, size: int) -> Tensor:
        """For each chunk, it and all before it folded."""
        shape = (*chunks, lit(size))
        elements = Tensor(self.low, self.acc, shape, lambda i: at([*i[:-2], i[-2] * size + i[-1]]))
        folded = self.low.reduce(elements, [len(chunks)], self.op, self.acc, self.acc)
        return self.results(folded.at, Tensor(self.low, self.acc, chunks, weight=_WEIGHT))


def _in_order(low: Lowering, out: torch.Tensor, x: Tensor, dim: int, op: str) -> Tensor:
    """Each element stores what its row gave up to it; rows run side by side."""
    shape = low.shape_of(out)
    rows = [n for d, n in enumerate(shape) if d != dim and n is not ONE]
    if not shape or not rows or shape[dim] is ONE or out.dtype not in _FOLDED_IN:
        raise Unsupported("a single row, or numbers that loops do not fold")
    if op == "prod" and out.dtype in HALF and low.strides_of(out)[dim] is ONE:
        raise Unsupported("products of halves along rows, of which the library is the faster")
    acc = _FOLDED_IN[out.dtype]
    x.uses = max(x.uses, 2)  # functions are computed on vectors, which these loops are not
    t = Tensor(low, out.dtype, shape, weight=_WEIGHT)

    def value(index: Index) -> Scalar:
        return x.math_at(index) if x.dtype is out.dtype else cast(x.exact_at(index), out.dtype)

    def materialize() -> View:
        view = low.temporary(t.dtype, shape, t.device, low.layout(t))
        low.scan_into(view, view.strides, shape, dim, op, acc, value, t.origin)
        return view

    t.materialize = materialize
    return t


# As what eager's scans on CPUs add elements.
_FOLDED_IN = {
    **dict.fromkeys((torch.float32, torch.float64), torch.float64),
    **dict.fromkeys((torch.bfloat16, torch.float16), torch.float32),
    **dict.fromkeys((torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8), torch.int64),
}


def _rule(op: str, operator: str, neutral: int) -> Callable[..., Tensor]:
    def rule(low: Lowering, out: torch.Tensor, x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        target = target_of(out.device) if has_target(out.device) else None
        if target is None or not (target.scan_row or target.adds_while_scanning):
            raise Unsupported("a target on which the library's scans are kept")
        if not target.scan_row:
            return _in_order(low, out, x, dim_of(dim, out.dim()), op)
        shape = low.shape_of(out)
        if not shape or dim_of(dim, len(shape)) != len(shape) - 1 or low.strides_of(out)[-1] is not ONE:
            raise Unsupported("a scan across memory")
        if x.view is not None and x.view.strides[-1] is not ONE:
            raise Unsupported("elements that do not follow each other")
        acc = opmath(out.dtype)
        scan = _Scan(low, op, operator, neutral, acc, target.scan_row, target.units)
        t = Tensor(low, out.dtype, shape, weight=_WEIGHT)
        return scan.results(lambda i: cast(x.math_at(i), acc), t)

    return rule


RULES: dict[Any, Callable[..., Any]] = {
    aten.cumsum.default: _rule("sum", "add", 0),
    aten.cumprod.default: _rule("prod", "mul", 1),
}
