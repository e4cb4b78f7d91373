"""Indexing, gathering, scattering, joining, padding, embedding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from pliant.graph.layouts import elementwise_strides, preserved_strides
from pliant.graph.shape_rules.pointwise import common_device
from pliant.graph.shape_rules.registry import DependsOnValues, Rules
from pliant.graph.shape_rules.views import expand, view_strides
from pliant.graph.tensor_spec import (
    DENSE_ORDERS,
    Dim,
    TensorSpec,
    broadcast,
    certain,
    channels_last_strides,
    holds,
    is_empty,
    is_row_major,
    key_of,
    keys_of,
    require,
    require_same,
    row_major_strides,
    suggests_channels_last,
    wrap_dim,
)

RULES = Rules()
rule = RULES.rule

_aten = torch.ops.aten


@rule(_aten.gather.default)
def gather(x: TensorSpec, dim: int, index: TensorSpec, *, sparse_grad: bool = False) -> TensorSpec:
    d = wrap_dim(dim, x.ndim)
    if is_empty(index):
        return x.like(index.size)
    if max(x.ndim, 1) != max(index.ndim, 1):
        raise RuntimeError("index tensor must have the same number of dimensions as input tensor")
    if index.dtype not in (torch.int64, torch.int32):
        raise RuntimeError("gather(): expected dtype int32/int64 for index")
    for at, (length, extent) in enumerate(zip(index.size, x.size)):
        if at != d:
            require(length <= extent, "size of the index exceeds that of the input")
    return x.like(index.size)


@rule(_aten.nonzero_static.default)
def nonzero_static(x: TensorSpec, *, size: Dim, fill_value: int = -1) -> TensorSpec:
    return x.like((size, x.ndim), dtype=torch.int64)


@rule(_aten._convert_indices_from_coo_to_csr.default)
def row_starts(rows: TensorSpec, size: Dim, *, out_int32: bool = False) -> TensorSpec:
    require(rows.ndim <= 1, f"Input is supposed to be a vector, but got {rows.ndim} dimensional tensor.")
    return rows.like((size + 1,), dtype=torch.int32 if out_int32 else torch.int64)


@rule(_aten._convert_indices_from_csr_to_coo.default)
def rows_and_columns(starts: TensorSpec, columns: TensorSpec, *, out_int32: bool = False, transpose: bool = False) -> TensorSpec:
    require(starts.ndim == columns.ndim, "crow_indices and col_indices are supposed to have the same dimensionality")
    return columns.like((columns.ndim + 1, math.prod(columns.size)), dtype=torch.int32 if out_int32 else torch.int64)


@rule(_aten.index_select.default)
def index_select(x: TensorSpec, dim: int, index: TensorSpec) -> TensorSpec:
    d = wrap_dim(dim, x.ndim)
    require(index.ndim <= 1, "index_select(): index must be a vector")
    if not x.size:
        return x.like()
    length = index.size[0] if index.size else 1
    return x.like((*x.size[:d], length, *x.size[d + 1 :]))


@rule(_aten.take.default)
def take(x: TensorSpec, index: TensorSpec) -> TensorSpec:
    return TensorSpec(index.size, preserved_strides(index), x.dtype, x.device)


@rule(_aten.isin.Tensor_Tensor, _aten.isin.Tensor_Scalar, _aten.isin.Scalar_Tensor)
def isin(elements: Any, test: Any, *, assume_unique: bool = False, invert: bool = False) -> TensorSpec:
    """One answer for each element, in rows."""
    for one in (elements, test):
        kind: Any = one.dtype if isinstance(one, TensorSpec) else torch.bool if isinstance(one, bool) else None
        if kind is not None and (kind is torch.bool or kind.is_complex):
            raise RuntimeError(f"Unsupported input type encountered for isin(): {_SCALAR_TYPES[kind]}")
    return elements.like(dtype=torch.bool) if isinstance(elements, TensorSpec) else test.like((), dtype=torch.bool)


_SCALAR_TYPES = {
    torch.bool: "Bool", torch.complex32: "ComplexHalf", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
}  # fmt: skip


@rule(_aten.index.Tensor, _aten._unsafe_index.Tensor)
def index(x: TensorSpec, indices: Sequence[TensorSpec | None]) -> TensorSpec:
    if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices):
        raise DependsOnValues
    for i in indices:
        if i is not None and i.dtype not in (torch.int64, torch.int32):
            raise IndexError("tensors used as indices must be long, int, byte or bool tensors")
    if len(indices) > x.ndim:
        raise IndexError("too many indices for tensor")
    at = [d for d, i in enumerate(indices) if i is not None]
    if not at:
        return TensorSpec(x.size, preserved_strides(x), x.dtype, x.device)
    given = [i for i in indices if i is not None]
    shape = broadcast(*[i.size for i in given])
    rest = [d for d in range(x.ndim) if d not in at]
    adjacent = at == list(range(at[0], at[-1] + 1))
    before = [d for d in rest if d < at[0]] if adjacent else []
    after = [d for d in rest if d not in before]
    size = (*[x.size[d] for d in before], *shape, *[x.size[d] for d in after])
    stride = _index_strides(x, given, size, before, after, len(shape))
    return TensorSpec(size, stride, x.dtype, x.device)


def _index_strides(
    x: TensorSpec, given: Sequence[TensorSpec], size: Any, before: Sequence[int], after: Sequence[int], rank: int
) -> Any:
    """TensorIterator sees the source restrided (stride 0 at the indexed dimensions) and the indices, expanded to one another's
    size, as views with dimensions of 1 around, which have strides too."""
    source_stride = (*[x.stride[d] for d in before], *[0] * rank, *[x.stride[d] for d in after])
    operands = [TensorSpec(size, source_stride, x.dtype, x.device)]
    in_rows = x.stride_key == keys_of(row_major_strides(x.size)) or (1 not in x.size_key and is_row_major(x))
    if in_rows and all(is_row_major(i) for i in given) and not any(key_of(s) == 0 for s in size):
        return row_major_strides(size)
    shape = size[len(before) : len(before) + rank]
    for i in given:
        extents = (*[1] * len(before), *shape, *[1] * len(after))
        strides = view_strides(expand(i, shape), extents)
        assert strides is not None, "dimensions of 1 need no copy"
        operands.append(TensorSpec(extents, strides, i.dtype, i.device))
    return elementwise_strides(size, operands)


@rule(_aten.embedding.default)
def embedding(
    weight: TensorSpec, indices: TensorSpec, padding_idx: Any = -1, scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> TensorSpec:  # fmt: skip
    require(weight.ndim == 2, "'weight' must be 2-D")
    if indices.dtype not in (torch.int64, torch.int32):
        raise RuntimeError("embedding: indices must be int32 or int64")
    return weight.like((*indices.size, weight.size[1]))


@rule(_aten.embedding_dense_backward.default)
def embedding_backward(grad: TensorSpec, indices: TensorSpec, rows: Dim, *_: Any) -> TensorSpec:
    return grad.like((rows, grad.size[-1]))


GIVES_SPARSE = frozenset((_aten._sparse_coo_tensor_with_dims_and_tensors.default,))  # of which fakes tell the size alone


@rule(*GIVES_SPARSE)
def sparse_rows(
    sparse_dim: int, dense_dim: int, size: Sequence[Dim], indices: TensorSpec, values: TensorSpec, **_: Any
) -> TensorSpec:
    """A sparse gradient. It is handed on, and nothing else reads it: of strides it says what a sparse tensor does."""
    return values.like(tuple(size), (0,) * len(size))


# -- joining ----------------------------------------------------------------------------------------------------------
@rule(_aten.cat.default)
def cat(tensors: Sequence[TensorSpec], dim: int = 0) -> TensorSpec:
    if not tensors:
        raise RuntimeError("cat: expected a non-empty list of tensors")
    dtype = tensors[0].dtype
    for one in tensors[1:]:
        dtype = torch.promote_types(dtype, one.dtype)
    real = [one for one in tensors if one.size_key != (0,)]  # legacy: empty vectors are left out
    if not real:
        return tensors[0].like((0,), dtype=dtype)
    first = real[0]
    if not first.size:
        raise RuntimeError("zero-dimensional tensor cannot be concatenated")
    d = wrap_dim(dim, first.ndim)
    total: Dim = 0
    for one in real:
        require_same(one.size[:d] + one.size[d + 1 :], first.size[:d] + first.size[d + 1 :], "cat: sizes must match")
        total = total + one.size[d]
    size = (*first.size[:d], total, *first.size[d + 1 :])
    stride = row_major_strides(size)
    if all(map(suggests_channels_last, tensors)):
        stride = channels_last_strides(size)
    return TensorSpec(size, stride, dtype, common_device(real))


@rule(_aten.stack.default)
def stack(tensors: Sequence[TensorSpec], dim: int = 0) -> TensorSpec:
    """As ATen does it: joined along the dimension, which is then cut; behind the last one there is none."""
    first = tensors[0]
    d = wrap_dim(dim, first.ndim + 1)
    for one in tensors:
        require_same(one.size, first.size, "stack expects each tensor to be equal size")
    if d == first.ndim:
        return cat([one.view((*one.size, 1), (*one.stride, 1)) for one in tensors], d)
    joined = cat(tensors, d)
    extent, step = first.size[d], joined.stride[d]
    size = (*first.size[:d], len(tensors), *first.size[d:])
    if any(key_of(n) == 0 for n in first.size):
        return joined.view(size, row_major_strides(size))
    return joined.view(size, (*joined.stride[:d], extent * step, *joined.stride[d:]))


@rule(_aten.roll.default)
def rolled(x: TensorSpec, shifts: Sequence[Any], dims: Sequence[int] = ()) -> TensorSpec:
    """A shift for each dimension, or one for the elements in a row. CPUs join the two parts, dimension by dimension."""
    if not shifts:
        raise RuntimeError("`shifts` required")
    if len(shifts) != len(dims) and (dims or len(shifts) != 1):
        raise RuntimeError(f"shifts and dimensions must align. shifts: {len(shifts)}, dims:{len(dims)}")
    if certain(is_empty(x)):
        return x.like()
    at = [_existing_dim(dim, x.ndim) for dim in dims]
    if x.device.type != "cpu" or not dims or x.ndim not in DENSE_ORDERS:
        return x.like()
    for d, shift in zip(at, shifts, strict=True):
        if is_row_major(x):
            break
        start = -shift % x.size[d]
        parts = [(*x.size[:d], length, *x.size[d + 1 :]) for length in (x.size[d] - start, start)]
        x = x.like(x.size, cat([x.view(part, x.stride) for part in parts], d).stride)
    return x.like(stride=None if is_row_major(x) else x.stride)


def _existing_dim(dim: int, ndim: int) -> int:
    if not ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return wrap_dim(dim, ndim)


@rule(_aten.repeat.default)
def repeat(x: TensorSpec, repeats: Sequence[Dim]) -> TensorSpec:
    skip = len(repeats) - x.ndim
    require(skip >= 0, "number of dimensions of repeat dims can not be smaller than number of dimensions of tensor")
    size = (*repeats[:skip], *[extent * many for extent, many in zip(x.size, repeats[skip:])])
    for extent in size:
        require(extent >= 0, "trying to create a tensor with a negative dimension")
    return x.like(size)


@rule(_aten.constant_pad_nd.default)
def constant_pad(x: TensorSpec, pad: Sequence[Dim], value: Any = 0) -> TensorSpec:
    require(len(pad) % 2 == 0 and len(pad) <= 2 * x.ndim, "padding length must be even, at most twice the rank")
    size = list(x.size)
    for i in range(len(pad) // 2):
        d = x.ndim - 1 - i
        before, behind = pad[2 * i : 2 * i + 2]
        size[d] = size[d] + before + behind
        for left in (size[d], x.size[d] + before, x.size[d] + behind):  # no side adds what the other one cuts off
            require(left >= 0, "padding makes a size negative")
    full = tuple(size)
    if _only_cuts(x, pad):  # a copy of a part of the input
        return TensorSpec(full, preserved_strides(x.view(full, x.stride)), x.dtype, x.device)
    return x.like(full, stride=channels_last_strides(full) if suggests_channels_last(x) else None)


def _only_cuts(x: TensorSpec, pad: Sequence[Dim]) -> bool:
    """Whether nothing is added. Where the copy would lie as what is padded does, sizes are not asked."""
    if all(type(amount) is int for amount in pad):
        return all(amount <= 0 for amount in pad)
    return not is_row_major(x) and not suggests_channels_last(x) and all(holds(amount <= 0) for amount in pad)


@rule(_aten.slice_backward.default, _aten.select_backward.default, _aten.diagonal_backward.default,
      _aten.unfold_backward.default)  # fmt: skip
def part_backward(grad: TensorSpec, size: Sequence[Dim], *_: Any) -> TensorSpec:
    return grad.like(tuple(size))
