"""Loads at positions that other tensors hold: embedding, index, gather, and the loss that picks a class.

In:     data, and integer tensors of positions.
Out:    tensors whose loads use indirect symbols (`Lowering.indirect`).
Holds:  positions are checked where they are used (`check_index`): outside the data, the kernel reports an index error.
        Sums at positions are in `scattering.py`; other writes at positions are extern calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.scalar import Const, IndexValue, Scalar, apply, cast, const, walk, where
from pliant.lowering.context import Lowering
from pliant.lowering.pointwise import number
from pliant.lowering.reduction import rounded
from pliant.lowering.tensors import Index, Tensor, broadcast_index, opmath
from pliant.lowering.views import dim_of
from pliant.symbolic.expr import ONE, ZERO, Expr

aten = torch.ops.aten


def position(low: Lowering, value: Scalar, size: Expr, wraps: bool) -> Expr:
    """An index expression for the position `value` in a dimension of `size`; negative positions wrap or are errors."""
    value = cast(value, torch.int64)
    if isinstance(value, IndexValue) and low.ranges.below(value.expr, size):
        return value.expr
    limit = low.number(size)
    if isinstance(value, Const) and isinstance(limit, Const) and 0 <= value.value < limit.value:
        return low.size(int(value.value))
    if not wraps:  # a negative position becomes one past the end, which the check refuses
        value = where(apply("lt", value, const(0, torch.int64)), limit, value)
    return low.indirect(apply("check_index", value, limit))


class _Table:
    """Elements of a tensor at positions that are looked up. What is the same at all positions is put in memory, so that something
    is read there: what is read is checked."""

    def __init__(self, low: Lowering, x: Tensor) -> None:
        self.low, self.x = low, x
        self._dense: Tensor | None = None

    def at(self, index: Index) -> Scalar:
        value = self.x.at(index)
        positions = {scalar for e in index for _, scalar in self.low.bindings(e)}
        if positions <= set(walk(value)):
            return value
        if self._dense is None:
            self._dense = self.low.kept(self.x.dtype, self.x.shape, self.x.at)
        return self._dense.at(index)


def _needs_integers(*indices: Tensor) -> None:
    for t in indices:
        if t.dtype in (torch.bool, torch.uint8):
            raise Unsupported("a mask as index")


def _needs_elements(low: Lowering, out: torch.Tensor) -> None:
    """Eager checks positions also where it reads nothing at them, as a loop of no elements does not."""
    if ZERO in low.shape_of(out):
        raise Unsupported("positions at which nothing is read")


def _embedding(low: Lowering, out: torch.Tensor, table: Tensor, indices: Tensor, *_: Any) -> Tensor:
    _needs_integers(indices)
    rows = _Table(low, table)

    def at(index: Index) -> Scalar:
        row = position(low, indices.at(index[:-1]), table.shape[0], False)
        return rows.at([row, index[-1]])

    return low.pointwise(out.dtype, low.shape_of(out), at, indices.weight + table.weight + 4)


def _index(low: Lowering, out: torch.Tensor, x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    """Advanced indexing with integers: the broadcast index dimensions stand where the first index is, or in front."""
    given = [d for d, t in enumerate(indices) if t is not None]
    tensors = [t for t in indices if t is not None]
    _needs_integers(*tensors)
    _needs_elements(low, out)
    rank = max(len(t.shape) for t in tensors)
    adjacent = given == list(range(given[0], given[0] + len(given)))
    first = given[0] if adjacent else 0
    others = [d for d in range(len(x.shape)) if d not in given]
    shape, table = low.shape_of(out), _Table(low, x)
    index_shape = shape[first : first + rank]

    def at(index: Index) -> Scalar:
        inner = index[first : first + rank]
        rest = iter([*index[:first], *index[first + rank :]])
        source: list[Expr] = [ZERO] * len(x.shape)
        for d, t in zip(given, tensors):
            value = t.at(broadcast_index(t.shape, index_shape, inner))
            source[d] = position(low, value, x.shape[d], True)
        for d in others:
            source[d] = next(rest)
        return table.at(source)

    return low.pointwise(out.dtype, shape, at, x.weight + 4 + sum([t.weight for t in tensors]))


def _index_select(low: Lowering, out: torch.Tensor, x: Tensor, dim: int, indices: Tensor) -> Tensor:
    if not x.shape or not indices.shape:
        raise Unsupported("0-dim tensors")
    _needs_elements(low, out)
    d, table = dim_of(dim, len(x.shape)), _Table(low, x)

    def at(index: Index) -> Scalar:
        row = position(low, indices.at([ZERO if indices.shape[0] is ONE else index[d]]), x.shape[d], False)
        return table.at([*index[:d], row, *index[d + 1 :]])

    return low.pointwise(out.dtype, low.shape_of(out), at, x.weight + indices.weight + 4)


def _gather(low: Lowering, out: torch.Tensor, x: Tensor, dim: int, indices: Tensor, *_: Any, **__: Any) -> Tensor:
    if not x.shape or not indices.shape:
        raise Unsupported("0-dim tensors")
    d, table = dim_of(dim, len(x.shape)), _Table(low, x)

    def at(index: Index) -> Scalar:
        row = position(low, indices.at(index), x.shape[d], False)
        return table.at([row if k == d else e for k, e in enumerate(index)])

    return low.pointwise(out.dtype, low.shape_of(out), at, x.weight + indices.weight + 4)


# -- negative log likelihood ------------------------------------------------------------------------------------------


class _Classes:
    """The target class of each point: of rows of classes, or of images whose classes are the second dimension."""

    def __init__(self, low: Lowering, x: Tensor, target: Tensor, weight: Tensor | None, ignore: int) -> None:
        self.shape = (*x.shape[:1], *x.shape[2:])  # of the points, in the words of the rows that are read with them
        alike = len(x.shape) > 1 and len(target.shape) == len(self.shape)
        if not alike or not all(n == m or low.known(n.eq(m)) for n, m in zip(target.shape, self.shape)):
            raise Unsupported("one row only, or sizes that differ")
        if target.dtype not in (torch.int64, torch.uint8):
            raise Unsupported("classes of a dtype that is refused")
        if len(x.shape) > 2 and torch.are_deterministic_algorithms_enabled():
            raise Unsupported("what GPUs refuse where algorithms are to be deterministic")
        if weight is not None and weight.shape != (x.shape[1],):
            raise Unsupported("a weight that is not one number a class")
        self.low, self.x, self.target, self.weight, self.dtype = low, x, target, weight, opmath(x.dtype)
        self.ignore = number(low, ignore, torch.int64)
        self.table = _Table(low, x)

    def _given(self, point: Index) -> Scalar:
        return cast(self.target.at(point), torch.int64)

    def wanted(self, point: Index) -> Scalar:
        """Whether the point counts."""
        return apply("ne", self._given(point), self.ignore)

    def column(self, point: Index) -> Expr:
        """The point's class; 0 where it is ignored."""
        value = where(self.wanted(point), self._given(point), const(0, torch.int64))
        return position(self.low, value, self.x.shape[1], False)

    def weighted(self, value: Scalar, column: Callable[[], Expr]) -> Scalar:
        """The value times the weight of the class that `column` gives."""
        return value if self.weight is None else apply("mul", value, cast(self.weight.at([column()]), self.dtype))

    def losses(self) -> Tensor:
        def at(point: Index) -> Scalar:
            column = self.column(point)
            picked = cast(self.table.at([point[0], column, *point[1:]]), self.dtype)
            loss = self.weighted(apply("neg", picked), lambda: column)
            return where(self.wanted(point), loss, const(0, self.dtype))

        return self.low.pointwise(self.dtype, self.shape, at, 6)

    def total_weight(self) -> Tensor:
        """The sum of the weights of the points that count."""

        def at(point: Index) -> Scalar:
            wanted = self.wanted(point)
            if self.weight is None:
                return cast(wanted, self.dtype)
            weight = self.weighted(const(1, self.dtype), lambda: self.column(point))
            return where(wanted, weight, const(0, self.dtype))  # an ignored point reads a weight that may be infinite

        points = Tensor(self.low, self.dtype, self.shape, at, weight=2)
        total = self.low.reduce(points, list(range(len(points.shape))), "sum", self.dtype, self.dtype)
        total.uses = 2
        return total

    def is_target(self, point: Index, column: Expr) -> Scalar:
        """Whether the column is the class of the point, which counts."""
        return apply("bit_and", apply("eq", self.low.number(column), self._given(point)), self.wanted(point))


def _nll_loss(
    low: Lowering,
    out: Sequence[torch.Tensor],
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore: int,
) -> list[Tensor]:
    classes = _Classes(low, x, target, weight, ignore)
    losses, dtype = classes.losses(), classes.dtype
    if reduction == 0:
        zero = Tensor(low, out[1].dtype, (), lambda i: const(0, dtype))
        return [rounded(losses, out[0].dtype), zero]
    weights = classes.total_weight()
    total = low.reduce(losses, list(range(len(losses.shape))), "sum", dtype, dtype)
    if reduction == 1:
        summed = total
        total = low.pointwise(dtype, (), lambda i: apply("div", summed.at(i), weights.at(i)), 4)
    return [rounded(total, out[0].dtype), rounded(weights, out[1].dtype)]


def _nll_loss_backward(
    low: Lowering, out: torch.Tensor, grad: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int,
    ignore: int,
    total: Tensor,
) -> Tensor:  # fmt: skip
    classes = _Classes(low, x, target, weight, ignore)
    dtype = classes.dtype

    def at(index: Index) -> Scalar:
        point = [index[0], *index[2:]]
        slope = apply("neg", cast(grad.at(point if grad.shape else []), dtype))
        slope = classes.weighted(slope, lambda: index[1])
        if reduction == 1:
            slope = apply("div", slope, cast(total.at([]), dtype))
        return where(classes.is_target(point, index[1]), slope, const(0, dtype))

    # without weights, all but the choice belongs to the point
    return low.pointwise(out.dtype, low.shape_of(out), at, 2 if weight is None else 8)


RULES: dict[Any, Callable[..., Any]] = {
    aten.embedding.default: _embedding,
    aten.index.Tensor: _index,
    aten._unsafe_index.Tensor: _index,
    aten.index_select.default: _index_select,
    aten.gather.default: _gather,
    aten.nll_loss_forward.default: _nll_loss,
    aten.nll_loss2d_forward.default: _nll_loss,
    aten.nll_loss_backward.default: _nll_loss_backward,
    aten.nll_loss2d_backward.default: _nll_loss_backward,
}
