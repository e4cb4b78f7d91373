"""Binary search: where values would stand in sorted rows.

In:     sorted rows of which the length is known, and values.
Out:    for each value the position that eager's search ends at, step by step: also where the row is not sorted, or has NaN.
Holds:  as many steps as the longest search takes, written out, each a choice: no branch waits for what memory holds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.scalar import Scalar, apply, cast, const, where
from pliant.lowering.context import Lowering
from pliant.lowering.tensors import Index, Tensor, contiguous_strides, opmath
from pliant.symbolic.expr import ZERO, Expr
from pliant.targets.registry import target_of

aten = torch.ops.aten
_LONGEST = 1 << 20  # elements of a row
_COST = 12  # of a step


def _integer(value: int) -> Scalar:
    return const(value, torch.int64)


def _found(low: Lowering, count: int, load: Callable[[Expr], Scalar], value: Scalar, right: bool) -> Scalar:
    """Where eager's loop ends: it halves what lies between `first` and `end` as long as something does."""
    first, end = _integer(0), _integer(count)
    for step in range(count.bit_length()):
        middle = apply("shift_right", apply("add", first, end), _integer(1))
        place = low.indirect(apply("minimum", middle, _integer(count - 1))) if count > 1 else ZERO
        before = apply("bit_not", apply("gt" if right else "ge", load(place), value))
        if step:  # the first always has something to halve
            left = apply("lt", first, end)
            before, behind = apply("bit_and", left, before), apply("bit_and", left, apply("bit_not", before))
        else:
            behind = apply("bit_not", before)
        first, end = where(before, apply("add", middle, _integer(1)), first), where(behind, middle, end)
    return first


def _search(low: Lowering, out: torch.Tensor, rows: Tensor, values: Tensor, right: bool) -> Tensor:
    count = rows.shape[-1].as_int() if rows.shape else None
    if not count or count > _LONGEST or rows.dtype is not values.dtype or rows.dtype is torch.bool:
        raise Unsupported("rows of unknown length, or values of another dtype")
    if len(rows.shape) > 1 and rows.shape[:-1] != values.shape[:-1]:
        raise Unsupported("other rows than values have")
    if any(t.fake is None or low.strides_of(t.fake) != contiguous_strides(t.shape) for t in (rows, values)):
        raise Unsupported("a copy, of which eager warns")
    math = opmath(values.dtype)
    if math is not rows.dtype and target_of(out.device).looks_up_words:
        halves = rows
        rows = low.pointwise(math, halves.shape, halves.math_at, halves.weight)
    low.realize(rows)

    def at(index: Index) -> Scalar:
        outer = [*index[:-1]] if len(rows.shape) > 1 else []
        found = _found(low, count, lambda e: rows.math_at([*outer, e]), cast(values.at(index), math), right)
        return cast(found, out.dtype)

    weight = _COST * count.bit_length() + (values.weight if values.view is None else 0)
    return low.pointwise(out.dtype, low.shape_of(out), at, weight)


def _searchsorted(
    low: Lowering, out: torch.Tensor, rows: Tensor, values: Tensor, *, out_int32: bool = False, right: bool = False,
    side: str | None = None, sorter: Any = None,
) -> Tensor:  # fmt: skip
    if sorter is not None or (side == "left" and right) or side not in (None, "left", "right"):
        raise Unsupported("a row in another order, or what eager refuses")
    return _search(low, out, rows, values, right or side == "right")


def _bucketize(
    low: Lowering, out: torch.Tensor, values: Tensor, edges: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    return _search(low, out, edges, values, right)


RULES: dict[Any, Callable[..., Any]] = {
    aten.searchsorted.Tensor: _searchsorted,
    aten.bucketize.Tensor: _bucketize,
}
