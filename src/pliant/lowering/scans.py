"""Running sums and products along rows, as reductions of chunks.

In:     a tensor, and its last dimension, of a length that chunks of `Target.scan_chunk` elements, or some more, divide.
Out:    each chunk folded; the running results of these, in the same way; then each result folded of its own chunk and of what
        the chunks before it gave. Rows are read twice and stored once, and all threads work at all times.
Holds:  no element behind a result is part of it: a NaN stays where it begins. Halves accumulate in f32. Of floats the order of
        additions differs from eager's. All other scans are calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.loops import View
from pliant.ir.scalar import Scalar, apply, cast, const, where
from pliant.lowering.context import Lowering
from pliant.lowering.tensors import At, Index, Shape, Tensor, opmath
from pliant.lowering.views import dim_of
from pliant.records import dataclass
from pliant.symbolic.expr import ONE, Expr, lit
from pliant.targets.registry import has_target, target_of

aten = torch.ops.aten
_WHOLE, _MOST, _SHORT = 8, 4, 256  # a row of one chunk, the longest chunk, and a short row, in chunks
_WEIGHT = 100  # of what is in memory anyway


@dataclass(frozen=True, slots=True)
class _Scan:
    """One scan: how elements are folded, in which dtype, by chunks of how many at least."""

    low: Lowering
    reduction: str
    operator: str
    neutral: int
    acc: torch.dtype
    chunk: int

    def results(self, at: At, t: Tensor, upto: str) -> Tensor:
        """`t`, of which each element is `at` folded along the last dimension up to its point; `upto` "lt": without it."""
        shape = t.shape
        size = _chunk(shape[-1].as_int() or 0, self.chunk)
        chunks = (*shape[:-1], shape[-1] // size)
        before = None if chunks[-1] is ONE else self._of_chunks(at, chunks, size)

        def materialize() -> View:
            view = self.low.temporary(t.dtype, shape, t.device, self.low.layout(t))

            def target(index: Index) -> Expr:
                place = [*index[:-2], index[-2] * size + index[-1]]
                return sum((e * step for e, step in zip(place, view.strides)), view.offset)

            def value(index: Index, inner: Index) -> Scalar:
                return self._element(at, before, index, inner[0], size, upto)

            self.low.fold_into(
                view, (*chunks, lit(size)), [lit(size)], self.reduction, self.acc, value, target, t.origin
            )
            return view

        t.materialize = materialize
        return t

    def _of_chunks(self, at: At, chunks: Shape, size: int) -> Tensor:
        """For each chunk, all elements before it folded."""
        shape = (*chunks, lit(size))
        elements = Tensor(self.low, self.acc, shape, lambda i: at([*i[:-2], i[-2] * size + i[-1]]))
        folded = self.low.reduce(elements, [len(chunks)], self.reduction, self.acc, self.acc)
        return self.results(folded.at, Tensor(self.low, self.acc, chunks, weight=_WEIGHT), "lt")

    def _element(self, at: At, before: Tensor | None, index: Index, r: Expr, size: int, upto: str) -> Scalar:
        """What element `r` of a chunk adds to the result at `index`; the first brings what lies before the chunk."""
        *rows, chunk, last = index
        position, neutral = self.low.number(r), const(self.neutral, self.acc)
        value = where(apply(upto, position, self.low.number(last)), at([*rows, chunk * size + r]), neutral)
        if before is None:
            return value
        first = where(apply("eq", position, const(0, torch.int64)), before.at([*rows, chunk]), neutral)
        return apply(self.operator, value, first)


def _chunk(length: int, size: int) -> int:
    """The elements of a chunk, so that chunks make up the row: few for long rows, of which each result folds its chunk anew;
    more for short rows, of which the passes are what takes time."""
    if 2 <= length <= _WHOLE * size:
        return length
    sizes = range(size, _MOST * size + 1)
    found = next((n for n in (sizes if length > _SHORT * size else sizes[::-1]) if length > 1 and length % n == 0), None)
    if found is None:
        raise Unsupported("rows of a length that is not known, or that no chunk divides")
    return found


def _rule(reduction: str, operator: str, neutral: int) -> Callable[..., Tensor]:
    def rule(low: Lowering, out: torch.Tensor, x: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        size = target_of(out.device).scan_chunk if has_target(out.device) else 0
        if not size:
            raise Unsupported("a target on which the library's scans are kept")
        shape = low.shape_of(out)
        if not shape or dim_of(dim, len(shape)) != len(shape) - 1 or low.strides_of(out)[-1] is not ONE:
            raise Unsupported("a scan across memory")
        if x.view is not None and x.view.strides[-1] is not ONE:
            raise Unsupported("elements that do not follow each other")
        acc = opmath(out.dtype)
        x.uses = max(x.uses, 2)
        scan = _Scan(low, reduction, operator, neutral, acc, size)
        t = Tensor(low, out.dtype, shape, weight=_WEIGHT)
        return scan.results(lambda i: cast(x.math_at(i), acc), t, "le")

    return rule


RULES: dict[Any, Callable[..., Any]] = {
    aten.cumsum.default: _rule("sum", "add", 0),
    aten.cumprod.default: _rule("prod", "mul", 1),
}
