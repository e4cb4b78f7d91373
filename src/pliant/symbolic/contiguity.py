"""Layout questions that ATen asks about symbolic sizes and strides.

In:     sizes and strides as integer expressions, outermost dimension first.
Out:    a boolean expression, as ATen defines the property.
Holds:  the expression is exact; no guard is recorded here, whoever needs the answer evaluates it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias

from pliant.symbolic.expr import FALSE, ONE, TRUE, Expr, mul
from pliant.symbolic.rules import extrema, relations


class Hints(Protocol):
    """Sample values, used to choose an order in which to compare strides; never for the answer itself."""

    def hint(self, e: Expr) -> int | float | bool | None: ...

    def statically_known(self, e: Expr) -> bool | None: ...


Question: TypeAlias = Callable[[Sequence[Expr], Sequence[Expr], Hints], Expr]


def is_contiguous(sizes: Sequence[Expr], strides: Sequence[Expr], hints: Hints) -> Expr:
    """Row-major: each stride is the product of the sizes inside it; sizes 1 have any stride; empty tensors count."""
    return _packed(sizes, strides, range(len(sizes) - 1, -1, -1), hints)


def is_channels_last_contiguous_2d(sizes: Sequence[Expr], strides: Sequence[Expr], hints: Hints) -> Expr:
    return _packed(sizes, strides, (1, 3, 2, 0), hints) if len(sizes) == 4 else FALSE


def is_channels_last_contiguous_3d(sizes: Sequence[Expr], strides: Sequence[Expr], hints: Hints) -> Expr:
    return _packed(sizes, strides, (1, 4, 3, 2, 0), hints) if len(sizes) == 5 else FALSE


def _packed(sizes: Sequence[Expr], strides: Sequence[Expr], inner_to_outer: Sequence[int], hints: Hints) -> Expr:
    expected: Expr = ONE
    result: Expr = TRUE
    for d in inner_to_outer:
        unit = relations.eq(sizes[d], ONE)
        result = relations.and_(result, relations.or_(unit, relations.eq(strides[d], expected)))
        if result is FALSE:
            break
        expected = mul(expected, sizes[d])
    return relations.or_(result, _is_empty(sizes, hints))


def _is_empty(sizes: Sequence[Expr], hints: Hints) -> Expr:
    parts = [relations.eq(s, 0 * s) for s in sizes]
    return relations.or_(*[p for p in parts if hints.statically_known(p) is not False], FALSE)


def is_channels_last_strides_2d(sizes: Sequence[Expr], strides: Sequence[Expr], hints: Hints) -> Expr:
    return _channels_last_strides(sizes, strides, (1, 3, 2, 0)) if len(sizes) == 4 else FALSE


def is_channels_last_strides_3d(sizes: Sequence[Expr], strides: Sequence[Expr], hints: Hints) -> Expr:
    return _channels_last_strides(sizes, strides, (1, 4, 3, 2, 0)) if len(sizes) == 5 else FALSE


def _channels_last_strides(sizes: Sequence[Expr], strides: Sequence[Expr], inner_to_outer: Sequence[int]) -> Expr:
    """Strides that grow from channel to batch (c10/core/MemoryFormat.h); ties are no order."""
    least: Expr = ONE * 0
    result = relations.ne(strides[1], least)
    for d in inner_to_outer:
        result = relations.and_(result, relations.ne(sizes[d], least * 0), relations.le(least, strides[d]))
        if d == 0:
            # [N, 1, 1, 1]: a contiguous tensor of which both formats hold counts as row-major
            result = relations.and_(result, relations.ne(least, strides[1]))
        if result is FALSE:
            return FALSE
        least = mul(strides[d], extrema.maximum(sizes[d], ONE))
    return result


def is_non_overlapping_and_dense(sizes: Sequence[Expr], strides: Sequence[Expr], hints: Hints) -> Expr:
    """Some order of the dimensions is packed. The order is guessed from hints; a wrong guess could only deny it."""
    if len(sizes) == 1:
        return relations.or_(relations.lt(sizes[0], ONE + ONE), relations.eq(strides[0], ONE))
    values = [(hints.hint(strides[d]), hints.hint(sizes[d])) for d in range(len(sizes))]
    if any(value is None for pair in values for value in pair):
        return is_contiguous(sizes, strides, hints)
    order = sorted(range(len(sizes)), key=lambda d: (values[d][0], values[d][1], -d))
    return _packed(sizes, strides, order, hints)
