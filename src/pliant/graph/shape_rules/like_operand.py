"""Operators whose result is like one of their tensors: one row each, by what is kept of the tensor.

In:     specs; the arguments that do not count are passed over.
Out:    the tensor itself, or a fresh one of its dtype.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.layouts import preserved_strides
from pliant.graph.shape_rules.registry import Rules
from pliant.graph.tensor_spec import Sizes, TensorSpec, broadcast, require, require_same, wrap_dim
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
    if any(step == 0 for step in x.stride):
        return same_layout(x)
    return TensorSpec(x.size, x.stride, x.dtype, x.device)


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


def rows_written(x: TensorSpec, dim: int, index: TensorSpec, source: TensorSpec, *_: Any, **__: Any) -> TensorSpec:
    """`x`, the index having as many elements as the source has rows."""
    if index.ndim == 1 and source.ndim:
        require(index.size[0] == source.size[wrap_dim(dim, source.ndim)], "as many indices as rows are needed")
    return x


def with_rows(x: TensorSpec, *args: Any, **given: Any) -> TensorSpec:
    return rows_written(x, *args, **given).like()


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


def broadcast_with_second(x: TensorSpec, other: TensorSpec, *_: Any, **__: Any) -> TensorSpec:
    return x.like(broadcast(x.size, other.size))


_ROWS: dict[Any, tuple[Any, ...]] = {
    itself: (
        _aten.fill_.Scalar, _aten.zero_.default, _aten.uniform_.default, _aten.normal_.default,
        _aten.bernoulli_.float, _aten.random_.default, _aten.random_.to, getattr(_aten.random_, "from"),
        _aten.exponential_.default, _aten.geometric_.default, _aten.log_normal_.default, _aten.cauchy_.default,
        _aten.tril_.default, _aten.triu_.default, _aten.scatter_.src, _aten.scatter_.value,
        _aten.scatter_add_.default, _aten.scatter_reduce_.two,
        _aten.index_fill_.int_Scalar, _aten.index_fill_.int_Tensor, _aten.masked_scatter_.default,
        _aten.index_put_.default, _aten._index_put_impl_.default, _aten.alias.default, _aten.detach.default,
        _aten.lift.default, _aten.lift_fresh.default,
    ),
    same_layout: (
        _aten.lift_fresh_copy.default, _aten.detach_copy.default, _aten.alias_copy.default, _aten.fill.Scalar,
        _aten.zero.default, _aten.bernoulli.p, _aten.bernoulli.Tensor, _aten.uniform.default,
        _aten.normal_functional.default, _aten.exponential.default, _aten.geometric.default, _aten.log_normal.default,
        _aten.cauchy.default, _aten.flip.default, _aten.index_fill.int_Scalar,
        _aten.index_fill.int_Tensor, _aten.put.default, _aten.as_strided_scatter.default, _aten.index_put.default,
        _aten._unsafe_index_put.default, _aten._fake_quantize_learnable_per_tensor_affine.default,
        _aten._fake_quantize_learnable_per_channel_affine.default,
    ),
    same_strides: (_aten.slice_scatter.default, _aten.select_scatter.default, _aten.diagonal_scatter.default),
    between: (_aten.hardtanh.default,),
    filled: (_aten.fill.Tensor,),
    same_size: (
        _aten.normal.Tensor_float, _aten.bernoulli.default, _aten.roll.default, _aten.scatter.src,
        _aten.scatter.value, _aten.scatter_add.default, _aten.scatter.reduce, _aten.scatter.value_reduce,
        _aten.scatter_reduce.two, _aten.poisson.default, _aten._standard_gamma.default, _aten.rrelu_with_noise.default,
        _aten._standard_gamma_grad.default, _aten._sample_dirichlet.default, _aten._dirichlet_grad.default,
        _aten.binomial.default,
    ),
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
    rows_written: (_aten.index_add_.default, _aten.index_copy_.default, _aten.index_reduce_.default),
    with_rows: (_aten.index_copy.default, _aten.index_reduce.default),
    like_second: (
        _aten.normal.float_Tensor, _aten.nll_loss_backward.default, _aten.nll_loss2d_backward.default,
        _aten.multi_margin_loss_backward.default, _aten.multilabel_margin_loss_backward.default,
        _aten.fractional_max_pool3d_backward.default, _aten.glu_backward.default,
    ),
    written_by_second: (
        _aten.copy_.default, _aten.bernoulli_.Tensor, _aten.masked_fill_.Scalar, _aten.masked_fill_.Tensor,
    ),
    broadcast_with_second: (
        _aten.normal.Tensor_Tensor, _aten.masked_scatter.default,
    ),
}  # fmt: skip
RULES.add({operator: rule for rule, operators in _ROWS.items() for operator in operators})
