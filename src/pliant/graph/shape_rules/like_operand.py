"""Operators whose result is like one of their tensors: one row each, by what is kept of the tensor.

In:     specs; the arguments that do not count are passed over.
Out:    the tensor itself, or a fresh one of its dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.graph.layouts import preserved_strides
from pliant.graph.shape_rules import views
from pliant.graph.shape_rules.registry import Rules
from pliant.graph.tensor_spec import (
    Sizes,
    TensorSpec,
    broadcast,
    certain,
    is_empty,
    require,
    require_same,
    wrap_dim,
    wrap_dims,
)
from pliant.graph.unsupported import UnsupportedOperator

RULES = Rules()

_aten = torch.ops.aten


def itself(x: TensorSpec, *_: Any, **__: Any) -> TensorSpec:
    return x


def same_layout(x: TensorSpec, *_: Any, **__: Any) -> TensorSpec:
    """Fresh, in the first tensor's strides where these are dense."""
    return TensorSpec(x.size, preserved_strides(x), x.dtype, x.device)


def same_strides(x: TensorSpec, *_: Any, **__: Any) -> TensorSpec:
    """Fresh, in the first tensor's strides with their gaps; as `same_layout` where its elements share memory."""
    if any(certain(step == 0) for step in x.stride):  # a size that is 0 leaves nothing to lay out
        return same_layout(x)
    return TensorSpec(x.size, x.stride, x.dtype, x.device)


def part_written(view: Any) -> Any:
    """As `same_strides`: the part that a view of the tensor is becomes what the source holds, which is as large."""

    def rule(x: TensorSpec, source: TensorSpec, *args: Any, **given: Any) -> TensorSpec:
        require_same(source.size, view(x, *args, **given).size, "the source is not as large as the part that is written")
        return same_strides(x)

    return rule


def between(x: TensorSpec, low: Any = -1, high: Any = 1) -> TensorSpec:
    """As `same_layout`, for dtypes that have the limits."""
    if x.dtype is torch.bool:
        raise RuntimeError("hardtanh does not support bool")
    if not x.dtype.is_signed and (low < 0 or high < 0):
        raise RuntimeError(f"hardtanh of {x.dtype} cannot have negative limits")
    return same_layout(x)


def filled(x: TensorSpec, value: TensorSpec) -> TensorSpec:
    """As `same_layout`, of one number."""
    if value.ndim:
        raise RuntimeError(f"fill only supports a value without dimensions, not with {value.ndim}")
    return same_layout(x)


def same_size(x: TensorSpec, *_: Any, **__: Any) -> TensorSpec:
    """Fresh and row-major."""
    return x.like()


def scattered(x: TensorSpec, dim: int, index: TensorSpec, source: Any, *_: Any, **__: Any) -> TensorSpec:
    """`x`, into which elements of the source (or one number) are written where the index says."""
    d = wrap_dim(dim, x.ndim)
    if is_empty(index):
        return x
    if index.dtype not in (torch.int32, torch.int64):
        raise RuntimeError(f"scatter: expected int32 or int64 for the index, but got {index.dtype}")
    given = [source] if type(source) is TensorSpec else []
    if any(one.dtype is not x.dtype for one in given):
        raise RuntimeError(f"scatter: elements of another dtype are written to {x.dtype}")
    if any(max(one.ndim, 1) != max(index.ndim, 1) for one in (x, *given)):
        raise RuntimeError("scatter: the index must have the same number of dimensions as the tensors")
    for at, (length, extent) in enumerate(zip(index.size, x.size)):
        require(at == d or length <= extent, "scatter: the index is larger than the tensor")
    for one in given:
        for length, extent in zip(index.size, one.size):
            require(length <= extent, "scatter: the index is larger than the source")
    return x


def with_scattered(x: TensorSpec, *args: Any, **given: Any) -> TensorSpec:
    return scattered(x, *args, **given).like()


def rows_written(x: TensorSpec, dim: int, index: TensorSpec, source: TensorSpec, *_: Any, **__: Any) -> TensorSpec:
    """`x`, into which rows of its other sizes are written, as many as there are indices."""
    rows_match(x, dim, index, source)
    if x.ndim != source.ndim:
        raise RuntimeError(f"rows of {source.ndim} dimensions are written to {x.ndim}")
    return x


def rows_replaced(x: TensorSpec, dim: int, index: TensorSpec, source: TensorSpec) -> TensorSpec:
    """The same, where a tensor without dimensions is one row."""
    rows_match(x, dim, index, source)
    if index.dtype is not torch.int64:
        raise RuntimeError(f"expected a long tensor for index, but got {index.dtype}")
    if x.ndim != source.ndim and x.ndim and source.ndim:
        raise IndexError(f"rows of {source.ndim} dimensions are written to {x.ndim}")
    return x


def rows_match(x: TensorSpec, dim: int, index: TensorSpec, source: TensorSpec) -> None:
    """What `rows_written` and `rows_replaced` both require."""
    d = wrap_dim(dim, x.ndim)
    if index.ndim > 1:
        raise IndexError(f"indices of rows are a vector, not a tensor of {index.ndim} dimensions")
    if index.dtype not in (torch.int32, torch.int64):
        raise RuntimeError(f"expected int32 or int64 for indices of rows, but got {index.dtype}")
    if x.dtype is not source.dtype:
        raise RuntimeError(f"rows of {source.dtype} cannot be written to {x.dtype}")
    rows = source.size[wrap_dim(d, source.ndim)] if source.ndim else 1
    require(rows == (index.size[0] if index.ndim else 1), "as many indices as rows are needed")
    require_same(
        (*source.size[:d], *source.size[d + 1 :]), (*x.size[:d], *x.size[d + 1 :]), "rows of another size are written"
    )


def with_rows(x: TensorSpec, *args: Any, **given: Any) -> TensorSpec:
    return rows_written(x, *args, **given).like()


def with_rows_replaced(x: TensorSpec, *args: Any) -> TensorSpec:
    return rows_replaced(x, *args).like()


def flipped(x: TensorSpec, dims: Sequence[int]) -> TensorSpec:
    """As `same_layout`; no dimension may be named twice."""
    wrap_dims(dims, x.ndim)
    return same_layout(x)


def with_noise(x: TensorSpec, noise: TensorSpec, *_: Any, **__: Any) -> tuple[TensorSpec, TensorSpec]:
    return x.like(), same_layout(noise)


def with_mask(x: TensorSpec, *_: Any, **__: Any) -> tuple[TensorSpec, TensorSpec]:
    """Rounded to few values, and which were within their range."""
    return same_layout(x), TensorSpec(x.size, preserved_strides(x), torch.bool, x.device)


def with_mask_of_numbers(x: TensorSpec, *_: Any, **__: Any) -> tuple[TensorSpec, TensorSpec]:
    """Like `with_mask`; the derivative takes plain sizes."""
    if not all(type(n) is int for n in x.size):
        raise UnsupportedOperator("rounding by channels of a size that varies", kind="symbolic-size")
    return with_mask(x)


def of_parameters(
    grad: TensorSpec, x: TensorSpec, scale: TensorSpec, zero: TensorSpec, *_: Any, **__: Any
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    return same_layout(x), scale.like(), zero.like()


def like_second(_: Any, x: TensorSpec, *__: Any, **___: Any) -> TensorSpec:
    return x.like()


def fits(x: TensorSpec, *sizes: Sizes) -> TensorSpec:
    """`x`, into which values of these sizes are written."""
    require_same(broadcast(x.size, *sizes), x.size, "the value does not broadcast to the output")
    return x


def written_by_second(x: TensorSpec, value: TensorSpec, *_: Any, **__: Any) -> TensorSpec:
    return fits(x, value.size)


def broadcast_with_rest(x: TensorSpec, *others: TensorSpec) -> TensorSpec:
    return x.like(broadcast(x.size, *[one.size for one in others]))


def broadcast_with_second(x: TensorSpec, other: TensorSpec, *_: Any, **__: Any) -> TensorSpec:
    return x.like(broadcast(x.size, other.size))


def rows_shortened(x: TensorSpec, indices: TensorSpec, *_: Any) -> TensorSpec:
    """A table of which the rows looked up are given a greatest norm."""
    require(x.ndim == 2, "Expected a table of two dimensions")
    require(indices.dtype in (torch.int64, torch.int32), "Expected indices of type Long or Int")
    return x


def with_rows_shortened(x: TensorSpec, indices: TensorSpec, *_: Any) -> TensorSpec:
    return same_layout(rows_shortened(x, indices))


def triangle(x: TensorSpec, diagonal: int = 0) -> TensorSpec:
    require(x.ndim >= 2, "tril/triu: input must have at least 2 dimensions")
    return x


def with_triangle(x: TensorSpec, diagonal: int = 0) -> TensorSpec:
    return triangle(x).like()


_ROWS: dict[Any, tuple[Any, ...]] = {
    rows_shortened: (_aten.embedding_renorm_.default,),
    with_rows_shortened: (_aten.embedding_renorm.default,),
    triangle: (_aten.tril_.default, _aten.triu_.default),
    with_triangle: (_aten.tril.default, _aten.triu.default),
    itself: (
        _aten.fill_.Scalar, _aten.zero_.default, _aten.uniform_.default, _aten.normal_.default,
        _aten.bernoulli_.float, _aten.random_.default, _aten.random_.to, getattr(_aten.random_, "from"),
        _aten.exponential_.default, _aten.geometric_.default, _aten.log_normal_.default, _aten.cauchy_.default,
        _aten.index_fill_.int_Scalar, _aten.index_fill_.int_Tensor,
        _aten.index_put_.default, _aten._index_put_impl_.default, _aten.alias.default, _aten.detach.default,
        _aten.lift.default, _aten.lift_fresh.default,
    ),
    same_layout: (
        _aten.lift_fresh_copy.default, _aten.detach_copy.default, _aten.alias_copy.default, _aten.fill.Scalar,
        _aten.zero.default, _aten.bernoulli.p, _aten.bernoulli.Tensor, _aten.uniform.default,
        _aten.random.default, _aten.random.to, getattr(_aten.random, "from"),
        _aten.normal_functional.default, _aten.exponential.default, _aten.geometric.default, _aten.log_normal.default,
        _aten.cauchy.default, _aten.index_fill.int_Scalar, _aten.index_fill.int_Tensor,
        _aten.put.default, _aten.index_put.default, _aten.nan_to_num.default,
        _aten._unsafe_index_put.default, _aten._fake_quantize_learnable_per_tensor_affine.default,
        _aten._fake_quantize_learnable_per_channel_affine.default,
    ),
    same_strides: (_aten.as_strided_scatter.default,),
    part_written(views.slice_): (_aten.slice_scatter.default,),
    part_written(views.select): (_aten.select_scatter.default,),
    part_written(views.diagonal): (_aten.diagonal_scatter.default,),
    between: (_aten.hardtanh.default,),
    filled: (_aten.fill.Tensor,),
    same_size: (
        _aten.normal.Tensor_float, _aten.bernoulli.default, _aten.poisson.default, _aten._standard_gamma.default, _aten.rrelu_with_noise.default,
        _aten._sample_dirichlet.default, _aten.binomial.default,
    ),
    broadcast_with_rest: (_aten._standard_gamma_grad.default, _aten._dirichlet_grad.default),
    with_noise: (_aten.rrelu_with_noise_functional.default,),
    with_mask: (
        _aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default,
        _aten.fake_quantize_per_tensor_affine_cachemask.default,
    ),
    with_mask_of_numbers: (_aten.fake_quantize_per_channel_affine_cachemask.default,),
    of_parameters: (
        _aten._fake_quantize_learnable_per_tensor_affine_backward.default,
        _aten._fake_quantize_learnable_per_channel_affine_backward.default,
    ),
    scattered: (
        _aten.scatter_.src, _aten.scatter_.value, _aten.scatter_add_.default, _aten.scatter_reduce_.two,
    ),
    with_scattered: (
        _aten.scatter.src, _aten.scatter.value, _aten.scatter_add.default, _aten.scatter.reduce,
        _aten.scatter.value_reduce, _aten.scatter_reduce.two,
    ),
    rows_written: (_aten.index_add_.default, _aten.index_reduce_.default),
    with_rows: (_aten.index_add.default, _aten.index_reduce.default),
    rows_replaced: (_aten.index_copy_.default,),
    with_rows_replaced: (_aten.index_copy.default,),
    flipped: (_aten.flip.default,),
    like_second: (
        _aten.normal.float_Tensor, _aten.nll_loss_backward.default, _aten.nll_loss2d_backward.default,
        _aten.multi_margin_loss_backward.default, _aten.multilabel_margin_loss_backward.default,
        _aten.fractional_max_pool3d_backward.default, _aten.glu_backward.default,
    ),
    written_by_second: (
        _aten.copy_.default, _aten.bernoulli_.Tensor, _aten.masked_scatter_.default,
    ),
    broadcast_with_second: (
        _aten.normal.Tensor_Tensor, _aten.masked_scatter.default,
    ),
}  # fmt: skip
RULES.add({operator: rule for rule, operators in _ROWS.items() for operator in operators})
