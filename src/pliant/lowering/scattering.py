"""Sums at positions that other tensors hold: `index_add`, `scatter_add`, `index_put` that accumulates, the gradient of an
embedding.

In:     where the sums start, integer tensors of positions, what is added.
Out:    a buffer that is stored, then added to point by point (`Pointwise.accumulate`).
Holds:  where the target goes through points in order at speed, whole rows at a time, a position gets its terms in the order in
        which eager's loop over the source adds them, whatever the number of threads: these share columns, or rows that
        elements do not leave, not points. Where it adds atomically, the order is any, as that of eager's own atomic
        additions is, but no sum is rounded to halves on the way; a program that asks for deterministic algorithms gets
        calls. All else is a call.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.loops import View
from pliant.ir.scalar import Const, Scalar, apply, cast, const, where
from pliant.lowering.context import Lowering
from pliant.lowering.indexing import position
from pliant.lowering.pointwise import number
from pliant.lowering.tensors import HALF, At, Index, Shape, Tensor, broadcast_index, opmath
from pliant.lowering.views import dim_of
from pliant.symbolic.expr import ONE, ZERO, Expr, lit
from pliant.symbolic.traverse import substitute
from pliant.targets.registry import has_target, target_of

aten = torch.ops.aten

_WIDE = (torch.float32, torch.float64)
_ROUNDED = (*_WIDE, torch.bfloat16)  # where eager, too, rounds each sum to the dtype; of f16, the calls are faster
_WEIGHT = 100  # of what is in memory anyway


def _sums(
    low: Lowering,
    out: torch.Tensor,
    start: At,
    shape: Shape,
    place: Callable[[Index], Index],
    term: At,
    single: bool = False,
) -> Tensor:
    """`start`, to which `term` of each point of `shape` is added at `place` of the point; `single`: one element at a time,
    which takes less than to round it."""
    wide = (single or target_of(out.device).adds_atomically) and out.dtype in HALF
    sums = Tensor(low, torch.float32 if wide else out.dtype, low.shape_of(out), weight=_WEIGHT)

    def materialize() -> View:
        view = low.temporary(sums.dtype, sums.shape, sums.device, low.layout(sums))
        low.store_into(view, lambda i: cast(start(i), sums.dtype), sums.origin)

        def target(index: Index) -> Expr:
            return sum((e * step for e, step in zip(place(index), view.strides)), view.offset)

        low.scatter(view, shape, term, target, "sum")
        return view

    sums.materialize = materialize
    return Tensor(low, out.dtype, sums.shape, lambda i: cast(sums.at(i), opmath(out.dtype))) if wide else sums


def _check(
    low: Lowering,
    out: torch.Tensor,
    values: Tensor,
    indices: Tensor,
    dim: int | None,
    in_order: tuple[torch.dtype, ...] = _WIDE,
    halves: bool = False,
    within_rows: bool = False,
) -> None:
    """Refuse what the library is better at, or must do. `dim`: where the positions of whole rows are; None: elements have
    positions of their own. `in_order`: dtypes of sums in order. `halves`: whether sums that begin in float32 are worth it.
    `within_rows`: whether elements stay in their rows, which threads share."""
    target = target_of(out.device) if has_target(out.device) else None
    if target is None or not (target.adds_in_order or target.adds_atomically):
        raise Unsupported("a target that adds in no order")
    atomically = not target.adds_in_order
    if atomically and torch.are_deterministic_algorithms_enabled():
        raise Unsupported("sums in any order, where algorithms are to be deterministic")
    allowed = (*_WIDE, *HALF) if atomically and halves else _WIDE if atomically else in_order
    if out.dtype not in allowed or values.dtype is not out.dtype:
        raise Unsupported("sums of other numbers")
    if indices.dtype not in (torch.int64, torch.int32) or not indices.shape:
        raise Unsupported("masks, or one position")
    rows = dim is not None and any(step is ONE for d, step in enumerate(low.strides_of(out)) if d != dim)
    if not atomically and not rows and not within_rows:
        raise Unsupported("single elements")


def _is_much(low: Lowering, added: Shape, table: Shape) -> bool:
    """Whether what is added, at the sizes seen, is worth copies of the whole table to float32 and back."""
    seen = {symbol: lit(int(hint)) for symbol, hint in low.shape_env.hints.items() if math.isfinite(hint)}
    sizes = [[substitute(n, seen).as_int() or 0 for n in shape] for shape in (added, table)]
    return math.prod(sizes[0]) * 2 >= math.prod(sizes[1]) > 0


def _index_put(
    low: Lowering,
    out: torch.Tensor,
    x: Tensor,
    indices: Sequence[Tensor | None],
    values: Tensor,
    accumulate: bool = False,
) -> Tensor:
    given = [d for d, t in enumerate(indices) if t is not None]
    if not accumulate or len(given) != 1:
        raise Unsupported("positions that are overwritten, or in several dimensions")
    d, at = given[0], indices[given[0]]
    assert at is not None
    rank = len(at.shape)
    shape = (*x.shape[:d], *at.shape, *x.shape[d + 1 :])
    begins_with_fill = x.view is None and isinstance(x.at([ZERO] * len(x.shape)), Const)
    _check(low, out, values, at, d, _ROUNDED, halves=begins_with_fill or _is_much(low, shape, x.shape))
    if any(n is not ONE and n is not whole for n, whole in zip(values.shape[::-1], shape[::-1])):
        raise Unsupported("a value for each position is not known")

    def place(index: Index) -> Index:
        return [*index[:d], position(low, at.at(index[d : d + rank]), x.shape[d], True), *index[d + rank :]]

    return _sums(low, out, x.exact_at, shape, place, lambda i: values.at(broadcast_index(values.shape, shape, i)))


def _index_add(
    low: Lowering, out: torch.Tensor, x: Tensor, dim: int, indices: Tensor, source: Tensor, *, alpha: Any = 1
) -> Tensor:
    d = dim_of(dim, len(x.shape)) if x.shape else 0
    _check(low, out, source, indices, d, halves=True)
    if source.shape[d] is not indices.shape[0]:
        raise Unsupported("a position for each row is not known")
    factor = number(low, alpha, out.dtype)

    def place(index: Index) -> Index:
        return [*index[:d], position(low, indices.at([index[d]]), x.shape[d], False), *index[d + 1 :]]

    def term(index: Index) -> Scalar:
        return source.at(index) if alpha == 1 else apply("mul", source.at(index), factor)

    return _sums(low, out, x.exact_at, source.shape, place, term)


def _scatter_add(low: Lowering, out: torch.Tensor, x: Tensor, dim: int, indices: Tensor, source: Tensor) -> Tensor:
    d = dim_of(dim, len(x.shape)) if x.shape else 0
    along_rows = len(x.shape) > 1 and low.strides_of(out)[d] is ONE
    given = indices.view is not None  # computing them on the way would keep their loop from vectors
    _check(low, out, source, indices, None, (*_WIDE, *HALF), within_rows=along_rows and given)

    def place(index: Index) -> Index:
        return [*index[:d], position(low, indices.at(index), x.shape[d], False), *index[d + 1 :]]

    return _sums(low, out, x.exact_at, indices.shape, place, source.at, single=True)


def _embedding_gradient(
    low: Lowering, out: torch.Tensor, grad: Tensor, indices: Tensor, rows: Any, padding: Any, by_frequency: bool
) -> Tensor:
    if by_frequency or grad.shape[:-1] != indices.shape:
        raise Unsupported("gradients by frequency, or a position for each is not known")
    _check(low, out, grad, indices, 0, _ROUNDED, halves=True)
    padded = number(low, padding, torch.int64)
    size = low.shape_of(out)[0]

    def place(index: Index) -> Index:
        return [position(low, indices.at(index[:-1]), size, False), index[-1]]

    def term(index: Index) -> Scalar:
        value = grad.math_at(index)
        if padding == -1:  # no row is
            return value
        return where(apply("eq", cast(indices.at(index[:-1]), torch.int64), padded), const(0, value.dtype), value)

    return _sums(low, out, lambda i: const(0, out.dtype), grad.shape, place, term)


RULES: dict[Any, Callable[..., Any]] = {
    aten.index_put.default: _index_put,
    aten.index_add.default: _index_add,
    aten.scatter_add.default: _scatter_add,
    aten.embedding_dense_backward.default: _embedding_gradient,
}
