"""Reductions, scans, softmax, sorting: dimensions that go, stay as 1, or keep their size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from pliant.graph.layouts import preserved_strides
from pliant.graph.shape_rules.registry import Rules
from pliant.graph.tensor_spec import (
    Dim,
    Sizes,
    TensorSpec,
    require,
    require_floats,
    require_same,
    wrap_dim,
    wrap_dims,
)

RULES = Rules()
rule = RULES.rule

_aten = torch.ops.aten
_Dims = int | Sequence[int] | None


def reduced_size(x: TensorSpec, dims: Sequence[int], keepdim: bool) -> Sizes:
    gone = set(dims)
    if keepdim:
        return tuple([1 if d in gone else extent for d, extent in enumerate(x.size)])
    return tuple([extent for d, extent in enumerate(x.size) if d not in gone])


def _all_dims(dim: _Dims, ndim: int) -> tuple[int, ...]:
    """Dimensions to reduce; an empty list means all of them."""
    if dim is None or (not isinstance(dim, int) and len(dim) == 0):
        return tuple(range(ndim))
    return wrap_dims(dim, ndim)


def _require_elements(x: TensorSpec, dim: _Dims, name: str, without_dim: type[Exception] = RuntimeError) -> None:
    """Raise as eager does where there is nothing to choose from; `without_dim`: what it raises if all dimensions go."""
    if dim is None or dim == () or dim == []:
        for extent in x.size:
            require(extent != 0, f"{name}(): Expected reduction dim to be specified for input.numel() == 0.", without_dim)
    else:
        for d in wrap_dims(dim, x.ndim) if x.ndim else ():
            require(x.size[d] != 0, f"{name}(): Expected reduction dim {d} to have non-zero size.", IndexError)


def _sum_dtype(x: TensorSpec, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is not None:
        return dtype
    return x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.int64


@rule(_aten.sum.dim_IntList, _aten.sum.default, _aten.nansum.default, _aten.prod.dim_int, _aten.prod.default)
def sum_(x: TensorSpec, dim: _Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> TensorSpec:
    return x.like(reduced_size(x, _all_dims(dim, x.ndim), keepdim), dtype=_sum_dtype(x, dtype))


@rule(_aten.mean.dim, _aten.mean.default)
def mean(x: TensorSpec, dim: _Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> TensorSpec:
    found = dtype or x.dtype
    if not (found.is_floating_point or found.is_complex):
        raise RuntimeError("mean(): could not infer output dtype; it must be floating point or complex")
    return x.like(reduced_size(x, _all_dims(dim, x.ndim), keepdim), dtype=found)


@rule(_aten.amax.default, _aten.amin.default)
def amax(x: TensorSpec, dim: _Dims = (), keepdim: bool = False) -> TensorSpec:
    _require_elements(x, dim, "amax")
    return x.like(reduced_size(x, _all_dims(dim, x.ndim), keepdim))


@rule(_aten.aminmax.default)
def aminmax(x: TensorSpec, *, dim: int | None = None, keepdim: bool = False) -> tuple[TensorSpec, TensorSpec]:
    _require_elements(x, dim, "aminmax")
    found = x.like(reduced_size(x, _all_dims(dim, x.ndim), keepdim))
    return found, found


@rule(_aten.max.default, _aten.min.default)
def max_all(x: TensorSpec) -> TensorSpec:
    _require_elements(x, None, "max")
    return x.like(())


@rule(_aten.median.default, _aten.nanmedian.default)
def median_all(x: TensorSpec) -> TensorSpec:
    return x.like(())


@rule(_aten.max.dim, _aten.min.dim, _aten.median.dim, _aten.nanmedian.dim, _aten.mode.default)
def max_dim(x: TensorSpec, dim: int = -1, keepdim: bool = False) -> tuple[TensorSpec, TensorSpec]:
    _require_elements(x, dim, "max")
    size = reduced_size(x, (wrap_dim(dim, x.ndim),), keepdim)
    return x.like(size), x.like(size, dtype=torch.int64)


@rule(_aten.argmax.default, _aten.argmin.default)
def argmax(x: TensorSpec, dim: int | None = None, keepdim: bool = False) -> TensorSpec:
    if x.dtype is torch.bool or x.dtype.is_complex:
        raise RuntimeError(f"argmax and argmin do not support {x.dtype}")
    _require_elements(x, dim, "argmax", IndexError)
    return x.like(reduced_size(x, _all_dims(dim, x.ndim), keepdim), dtype=torch.int64)


@rule(_aten.any.default, _aten.all.default, _aten._is_all_true.default, _aten._is_any_true.default,
      _aten.any.dim, _aten.all.dim, _aten.any.dims, _aten.all.dims)  # fmt: skip
def any_(x: TensorSpec, dim: _Dims = None, keepdim: bool = False) -> TensorSpec:
    dims = tuple(range(x.ndim)) if dim is None else wrap_dims(dim, x.ndim)
    return x.like(reduced_size(x, dims, keepdim), dtype=torch.uint8 if x.dtype is torch.uint8 else torch.bool)


@rule(_aten.logsumexp.default)
def logsumexp(x: TensorSpec, dim: _Dims, keepdim: bool = False) -> TensorSpec:
    dtype = x.dtype if x.dtype.is_floating_point or x.dtype.is_complex else torch.get_default_dtype()
    return x.like(reduced_size(x, _all_dims(dim, x.ndim), keepdim), dtype=dtype)


def _real(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_real() if dtype.is_complex else dtype


def _var_size(x: TensorSpec, dim: _Dims, keepdim: bool) -> Sizes:
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise RuntimeError("std and var only support floating point and complex dtypes")
    return reduced_size(x, _all_dims(dim, x.ndim), keepdim)


@rule(_aten.var.correction, _aten.std.correction)
def var(x: TensorSpec, dim: _Dims = None, *, correction: Any = None, keepdim: bool = False) -> TensorSpec:
    return x.like(_var_size(x, dim, keepdim), dtype=_real(x.dtype))


@rule(_aten.var_mean.correction, _aten.std_mean.correction)
def var_mean(
    x: TensorSpec, dim: _Dims = None, *, correction: Any = None, keepdim: bool = False
) -> tuple[TensorSpec, TensorSpec]:
    size = _var_size(x, dim, keepdim)
    return x.like(size, dtype=_real(x.dtype)), x.like(size)


@rule(_aten.linalg_vector_norm.default)
def vector_norm(
    x: TensorSpec, ord: Any = 2, dim: _Dims = None, keepdim: bool = False, *, dtype: torch.dtype | None = None
) -> TensorSpec:
    found = dtype or x.dtype
    if not (found.is_floating_point or found.is_complex):
        raise RuntimeError("linalg.vector_norm: expected a floating point or complex tensor")
    if ord < 0 or ord == math.inf:
        for extent in [x.size[d] for d in _all_dims(dim, x.ndim)]:
            require(extent != 0, f"linalg.vector_norm cannot compute the {ord} norm on an empty tensor")
    return x.like(reduced_size(x, _all_dims(dim, x.ndim), keepdim), dtype=_real(found))


# -- same size --------------------------------------------------------------------------------------------------------
@rule(_aten._softmax.default, _aten._log_softmax.default, _aten._safe_softmax.default)
def softmax(x: TensorSpec, dim: int, half_to_float: Any = False) -> TensorSpec:
    require_floats(x, "softmax")
    wrap_dim(dim, x.ndim)
    return x.like(dtype=torch.float32 if half_to_float is True else x.dtype)


@rule(_aten._softmax_backward_data.default, _aten._log_softmax_backward_data.default)
def softmax_backward(grad: TensorSpec, output: TensorSpec, dim: int, input_dtype: torch.dtype) -> TensorSpec:
    require_floats(grad, "the derivative of softmax")
    require_same(grad.size, output.size, "the derivative of softmax: the gradient has another size")
    wrap_dim(dim, grad.ndim)
    return grad.like(dtype=input_dtype)


@rule(_aten.histogram.bin_ct)
def histogram(x: TensorSpec, bins: Any = 100, **_: Any) -> tuple[TensorSpec, TensorSpec]:
    return x.like((bins,)), x.like((bins + 1,))


@rule(_aten.histogram.bins_tensor)
def histogram_of_edges(x: TensorSpec, bins: TensorSpec, **_: Any) -> tuple[TensorSpec, TensorSpec]:
    return x.like((bins.size[0] - 1,)), bins.like()


@rule(_aten._histogramdd_bin_edges.default)
def histogram_edges(x: TensorSpec, bins: Sequence[Any], **_: Any) -> list[TensorSpec]:
    _require_columns(x, len(bins))
    return [x.like((number + 1,)) for number in bins]


@rule(_aten._histogramdd_from_bin_cts.default)
def histogram_of_columns(x: TensorSpec, bins: Sequence[Any], **_: Any) -> TensorSpec:
    _require_columns(x, len(bins))
    return x.like(tuple(bins))


@rule(_aten._histogramdd_from_bin_tensors.default)
def histogram_of_columns_by_edges(x: TensorSpec, bins: Sequence[TensorSpec], **_: Any) -> TensorSpec:
    _require_columns(x, len(bins))
    return x.like(tuple(edges.size[0] - 1 for edges in bins))


def _require_columns(x: TensorSpec, number: int) -> None:
    if x.ndim < 2 or x.size[-1] != number:
        raise RuntimeError(f"histogramdd: {number} sequences of bins for the last dimension of {tuple(x.size)}")


@rule(_aten.mvlgamma.default)
def mvlgamma(x: TensorSpec, p: int) -> TensorSpec:
    return x.like(dtype=x.dtype if x.dtype.is_floating_point else torch.get_default_dtype())


@rule(_aten.cumsum.default, _aten.cumprod.default)
def cumsum(x: TensorSpec, dim: int, *, dtype: torch.dtype | None = None) -> TensorSpec:
    wrap_dim(dim, x.ndim)
    return x.like(dtype=_sum_dtype(x, dtype))


@rule(_aten.sort.default, _aten.sort.stable)
def sort(
    x: TensorSpec, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> tuple[TensorSpec, TensorSpec]:
    wrap_dim(dim, x.ndim)
    stride = preserved_strides(x)
    return TensorSpec(x.size, stride, x.dtype, x.device), TensorSpec(x.size, stride, torch.int64, x.device)


@rule(_aten.topk.default)
def topk(
    x: TensorSpec, k: Dim, dim: int = -1, largest: bool = True, sorted: bool = True
) -> tuple[TensorSpec, TensorSpec]:
    d = wrap_dim(dim, x.ndim)
    require(k >= 0, "selected index k out of range")
    if x.size:
        require(k <= x.size[d], "selected index k out of range")
    size = (*x.size[:d], k, *x.size[d + 1 :]) if x.size else ()
    return x.like(size), x.like(size, dtype=torch.int64)


@rule(_aten.segment_reduce.default)
def segment_reduce(
    data: TensorSpec, reduce: str, *, lengths: TensorSpec | None = None, indices: TensorSpec | None = None,
    offsets: TensorSpec | None = None, axis: int = 0, unsafe: bool = False, initial: Any = None,
) -> TensorSpec:  # fmt: skip
    """One element for each segment, along the last dimension of what tells the segments, with the dimensions before it."""
    told = lengths if lengths is not None else offsets
    require(told is not None, "segments need lengths or offsets")
    assert told is not None
    require_floats(data, "segment_reduce")
    at = wrap_dim(axis, data.ndim)
    require(at == told.ndim - 1, "segments are along the last dimension of what tells them")
    require_same(told.size[:at], data.size[:at], "segments of other batches")
    many = told.size[at] - (lengths is None)
    return data.like((*data.size[:at], many, *data.size[at + 1 :]))


@rule(_aten._segment_reduce_backward.default)
def segment_reduce_backward(
    grad: TensorSpec, output: TensorSpec, data: TensorSpec, reduce: str, *, lengths: TensorSpec | None = None,
    offsets: TensorSpec | None = None, axis: int = 0, initial: Any = None,
) -> TensorSpec:  # fmt: skip
    return data.like(data.size)
