"""Rules for operators that read and write by indices, or have a dimension of a sample among their arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from pliant.graph.map_rules.kernels import Batched, PerSample, Rows, Rule, writes

_aten = torch.ops.aten


def _behind(dim: int, rank: int) -> int:
    """A dimension of a sample, in a tensor with a batch in front."""
    return dim % rank + 1


def _along(op: Any) -> Rule:
    """Of an operator (self, dim, *tensors): the dimension is one further; all tensors have the rank of `self`."""

    def rule(count: Any, self: Batched, dim: int, *rest: Any, **more: Any) -> Any:
        tensors = [one for one in rest if isinstance(one, Batched)]
        if self.rank == 0 or any(one.rank != self.rank for one in tensors):
            return NotImplemented
        given = [one.whole(count) if isinstance(one, Batched) else one for one in rest]
        return op(self.whole(count), _behind(dim, self.rank), *given, **more)

    return rule


def _backward_of_view(op: Any, *places: int) -> Rule:
    """Of a view's derivative (gradient, sizes of what was viewed, *numbers), the same."""

    def rule(count: Any, gradient: Batched, sizes: Sequence[Any], *rest: Any) -> Any:
        given = [_behind(one, len(sizes)) if i + 2 in places else one for i, one in enumerate(rest)]
        return op(gradient.whole(count), [count, *sizes], *given)

    return rule


def _diagonal_backward(
    count: Any, gradient: Batched, sizes: Sequence[Any], offset: int, dim1: int, dim2: int
) -> Tensor:
    rank = len(sizes)
    found: Tensor = _aten.diagonal_backward(
        gradient.whole(count), [count, *sizes], offset, _behind(dim1, rank), _behind(dim2, rank)
    )
    return found


def _diagonal_copy(count: Any, self: Batched, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    return _aten.diagonal_copy(self.whole(count), offset, _behind(dim1, self.rank), _behind(dim2, self.rank))  # type: ignore[no-any-return]


def _diagonal_scatter(count: Any, self: Batched, src: Batched, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    dims = _behind(dim1, self.rank), _behind(dim2, self.rank)
    return _aten.diagonal_scatter(self.whole(count), src.whole(count), offset, *dims)  # type: ignore[no-any-return]


def _scattered_view(op: Any) -> Rule:
    """Of a view that is replaced (self, source, dim, *numbers)."""

    def rule(count: Any, self: Batched, source: Batched, dim: int = 0, *rest: Any) -> Any:
        return op(self.whole(count), source.whole(count), _behind(dim, self.rank), *rest)

    return rule


def _new_empty_strided(count: Any, self: Batched, size: Sequence[Any], stride: Sequence[Any], **more: Any) -> Any:
    length: Any = 1
    for n, step in zip(size, stride, strict=True):
        length = length + (n - 1) * step
    return _aten.new_empty_strided(self.value, [count, *size], [length, *stride], **more)


def _as_strided(count: Any, self: Batched, size: Sequence[Any], stride: Sequence[Any], offset: Any = None) -> Any:
    """Offsets count from where the first sample's memory begins."""
    if not self.has_batch:
        return NotImplemented
    return _aten.as_strided(self.value, [count, *size], [self.value.stride(0), *stride], offset)


def _assert_async(op: Any) -> Rule:
    def rule(count: Any, condition: Batched, *message: str) -> None:
        op(condition.value.all(), *message)

    return rule


def cat(count: Any, tensors: Sequence[Batched], dim: int = 0) -> Any:
    if len({one.rank for one in tensors}) != 1:  # empty vectors among others, which count for nothing
        return NotImplemented
    return _aten.cat([one.whole(count) for one in tensors], _behind(dim, tensors[0].rank))


def _cross(count: Any, a: Batched, b: Batched, *, dim: int = -1) -> Any:
    rank = max(a.rank, b.rank)
    if a.rank != b.rank:
        return NotImplemented
    return _aten.linalg_cross(a.whole(count), b.whole(count), dim=_behind(dim, rank))


def _searchsorted(count: Any, sequence: Batched, values: Batched, **more: Any) -> Any:
    sorter = more.pop("sorter", None)
    if sorter is not None:
        return NotImplemented
    if not sequence.has_batch and sequence.rank == 1:
        return _aten.searchsorted(sequence.value, values.value, **more)
    if sequence.rank != 1:
        return _aten.searchsorted(sequence.whole(count), values.whole(count), **more)
    whole = values.whole(count)
    return _aten.searchsorted(sequence.whole(count), whole.reshape(count, -1), **more).reshape(whole.shape)


def _isin(elements: Tensor, test: Tensor, *, assume_unique: bool = False, invert: bool = False) -> Tensor:
    found = (elements.unsqueeze(-1) == test.reshape(-1)).any(-1)
    return found.logical_not() if invert else found


# ---- indices with a batch
def _with_row(op: Any, dense: Callable[..., Tensor]) -> Rule:
    """Of (self, dim, vector of indices, *more). `dense`: the same by one index for each element."""

    def rule(count: Any, self: Batched, dim: int, index: Batched, *rest: Any, **more: Any) -> Any:
        tensors = [one for one in rest if isinstance(one, Batched)]
        if self.rank == 0 or index.rank != 1 or any(one.rank not in (0, self.rank) for one in tensors):
            return NotImplemented
        place = _behind(dim, self.rank)
        given = [one.whole(count) if isinstance(one, Batched) and one.rank else one for one in rest]
        if any(isinstance(one, Batched) for one in given):  # a number
            return NotImplemented
        if not index.has_batch:
            return op(self.whole(count), place, index.value, *given, **more)
        whole = self.whole(count)
        many = index.value.size(1)
        sizes = [many if i == place else whole.size(i) for i in range(whole.dim())]
        shape = [count if i == 0 else many if i == place else 1 for i in range(whole.dim())]
        return dense(whole, place, index.value.reshape(shape).expand(sizes), *given, **more)

    return rule


def _add_dense(self: Tensor, dim: int, index: Tensor, src: Tensor, *, alpha: Any = 1) -> Tensor:
    return self.scatter_add(dim, index, src if alpha == 1 else src * alpha)


def _wrapped(index: Tensor, many: Any) -> Tensor:
    return torch.where(index < 0, index + many, index)


def _take(self: Tensor, index: Tensor) -> Tensor:
    flat = self.reshape(-1)
    return flat.gather(0, _wrapped(index.reshape(-1), flat.size(0))).reshape(index.shape)


def _put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat, at = self.reshape(-1), _wrapped(index.reshape(-1), self.numel())
    values = source.reshape(-1)
    return (flat.scatter_add(0, at, values) if accumulate else flat.scatter(0, at, values)).reshape(self.shape)


def _masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    self, mask = torch.broadcast_tensors(self, mask)  # type: ignore[no-untyped-call]
    at = mask.reshape(-1).long().cumsum(0) - 1
    values = source.reshape(-1).gather(
        0, at.clamp(min=0).minimum(torch.scalar_tensor(source.numel() - 1, dtype=at.dtype))
    )
    return torch.where(mask, values.reshape(self.shape), self)


def _masked_scatter_backward(gradient: Tensor, mask: Tensor, sizes: Sequence[Any]) -> Tensor:
    many: Any = 1
    for size in sizes:
        many = many * size
    mask = mask.expand(gradient.shape).reshape(-1)
    at = mask.long().cumsum(0) - 1
    taken = torch.where(mask, gradient.reshape(-1), 0)
    found = gradient.new_zeros([many + 1]).scatter_add(0, torch.where(mask, at, many), taken)
    return found.narrow(0, 0, many).reshape(sizes)


def _embedding(
    count: Any, weight: Batched, indices: Batched, padding_idx: int = -1, scale: bool = False, sparse: bool = False
) -> Any:
    if not weight.has_batch:
        return _aten.embedding(weight.value, indices.value, padding_idx, scale, sparse)
    rows = _step(count, indices, weight.size(0))
    return _aten.embedding(weight.value.flatten(0, 1), rows, padding_idx, scale, sparse)


def _step(count: Any, indices: Batched, many: Any) -> Any:
    """Indices of each sample's own rows among all rows."""
    starts = torch.arange(count, dtype=indices.dtype, device=indices.value.device) * many
    whole = indices.whole(count)
    return whole + starts.reshape(-1, *[1] * (whole.dim() - 1))


def glu_backward(count: Any, gradient: Batched, x: Batched, dim: int) -> Any:
    return _aten.glu_backward(gradient.whole(count), x.whole(count), _behind(dim, x.rank))


def embedding_backward(
    count: Any, gradient: Batched, indices: Batched, many: Any, padding_idx: int, scale: bool
) -> Tensor:
    step = _step(count, indices, many)
    found = _aten.embedding_dense_backward(gradient.whole(count), step, count * many, -1, scale)
    found = found.reshape(count, many, found.size(-1))
    if padding_idx >= 0:
        kept = torch.arange(many, device=found.device) != padding_idx
        found = torch.where(kept.unsqueeze(-1), found, 0)
    return found  # type: ignore[no-any-return]


# ---- pointwise operators with rules that ask
def _pointwise(op: Any) -> Rule:
    def rule(count: Any, *args: Any, **more: Any) -> Any:
        tensors = [one for one in args if isinstance(one, Batched)]
        rank = max(one.rank for one in tensors)
        if len({one.dtype for one in tensors if one.rank == 0} - {one.dtype for one in tensors if one.rank}) and rank:
            return NotImplemented  # a number in a tensor, which does not promote others
        return op(*[one.of_rank(rank) if isinstance(one, Batched) else one for one in args], **more)

    return rule


def _where(op: Any) -> Rule:
    def rule(count: Any, condition: Batched, a: Any, b: Any) -> Any:
        tensors = [one for one in (condition, a, b) if isinstance(one, Batched)]
        if any(one.rank == 0 and one.has_batch for one in tensors[1:]):
            return NotImplemented
        rank = max(one.rank for one in tensors)
        return op(*[one.of_rank(rank) if isinstance(one, Batched) else one for one in (condition, a, b)])

    return rule


def _outer(a: Tensor, b: Tensor) -> Tensor:
    return a.unsqueeze(1) * b.unsqueeze(0)


def _trilinear(
    count: Any, a: Batched, b: Batched, c: Batched, expand1: Sequence[int], expand2: Sequence[int],
    expand3: Sequence[int], sumdim: Sequence[int], unroll_dim: int = 1,
) -> Any:  # fmt: skip
    rank = a.rank + len(expand1)
    moved = [[_behind(dim, rank) for dim in dims] for dims in (expand1, expand2, expand3, sumdim)]
    return _aten._trilinear(a.whole(count), b.whole(count), c.whole(count), *moved, _behind(unroll_dim, rank))


def _solve(count: Any, a: Batched, b: Batched, *, left: bool = True, check_errors: bool = False) -> Any:
    vector = b.rank == 1
    if not vector and b.rank == a.rank - 1:
        return NotImplemented
    columns = b.whole(count).unsqueeze(-1) if vector else b.whole(count)
    if a.rank != columns.dim() - 1:
        return NotImplemented
    found = list(_aten._linalg_solve_ex(a.whole(count), columns, left=left, check_errors=check_errors))
    return (found[0].squeeze(-1) if vector else found[0], *found[1:])


def _gather(count: Any, self: Batched, dim: int, index: Batched, *, sparse_grad: bool = False) -> Any:
    return _along(_aten.gather.default)(count, self, dim, index, sparse_grad=sparse_grad)


ROWS: Rows = {
    _aten.gather.default: _gather,
    _aten.scatter.src: _along(_aten.scatter.src),
    _aten.scatter.value: _along(_aten.scatter.value),
    _aten.scatter.reduce: _along(_aten.scatter.reduce),
    _aten.scatter.value_reduce: _along(_aten.scatter.value_reduce),
    _aten.scatter_add.default: _along(_aten.scatter_add.default),
    _aten.scatter_reduce.two: _along(_aten.scatter_reduce.two),
    _aten.index_select.default: _with_row(_aten.index_select.default, torch.gather),
    _aten.index_add.default: _with_row(_aten.index_add.default, _add_dense),
    _aten.index_copy.default: _with_row(_aten.index_copy.default, torch.scatter),
    _aten.index_fill.int_Scalar: _with_row(_aten.index_fill.int_Scalar, torch.scatter),
    _aten.linalg_cross.default: _cross,
    _aten.searchsorted.Tensor: _searchsorted,
    _aten.slice_backward.default: _backward_of_view(_aten.slice_backward.default, 2),
    _aten.select_backward.default: _backward_of_view(_aten.select_backward.default, 2),
    _aten.unfold_backward.default: _backward_of_view(_aten.unfold_backward.default, 2),
    _aten.diagonal_backward.default: _diagonal_backward,
    _aten.diagonal_copy.default: _diagonal_copy,
    _aten.diagonal_scatter.default: _diagonal_scatter,
    _aten.slice_scatter.default: _scattered_view(_aten.slice_scatter.default),
    _aten.new_empty_strided.default: _new_empty_strided,
    _aten.as_strided.default: _as_strided,
    _aten._assert_async.default: _assert_async(_aten._assert_async.default),
    _aten._assert_async.msg: _assert_async(_aten._assert_async.msg),
    _aten.isin.Tensor_Tensor: PerSample(_isin),
    _aten.embedding.default: _embedding,
    _aten.take.default: PerSample(_take),
    _aten.put.default: PerSample(_put),
    _aten.masked_scatter.default: PerSample(_masked_scatter),
    _aten.masked_scatter_backward.default: PerSample(_masked_scatter_backward),
    _aten.outer.default: PerSample(_outer),
    _aten._trilinear.default: _trilinear,
    _aten._linalg_solve_ex.default: _solve,
    _aten.gelu_backward.default: _pointwise(_aten.gelu_backward.default),
    _aten.where.Scalar: _where(_aten.where.Scalar),
    _aten.where.ScalarOther: _where(_aten.where.ScalarOther),
    _aten.where.ScalarSelf: _where(_aten.where.ScalarSelf),
    _aten.scatter_.src: writes(_aten.scatter.src),
    _aten.scatter_.value: writes(_aten.scatter.value),
    _aten.scatter_add_.default: writes(_aten.scatter_add.default),
    _aten.scatter_reduce_.two: writes(_aten.scatter_reduce.two),
    _aten.index_add_.default: writes(_aten.index_add.default),
    _aten.index_copy_.default: writes(_aten.index_copy.default),
    _aten.index_fill_.int_Scalar: writes(_aten.index_fill.int_Scalar),
    _aten.masked_scatter_.default: writes(_aten.masked_scatter.default),
    _aten.put_.default: writes(_aten.put.default),
    _aten.lerp_.Tensor: writes(_aten.lerp.Tensor),
    _aten.lerp_.Scalar: writes(_aten.lerp.Scalar),
}
