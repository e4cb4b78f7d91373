"""Fourier transforms and matrix factorizations: results in the layouts that MKL and LAPACK leave, and those that were
seen on GPUs. Where an operator leaves another one its result is copied."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cmp_to_key
from typing import Any

import torch

from pliant import torch_adapter
from pliant.errors import DataDependentError
from pliant.graph.shape_rules.registry import Rules
from pliant.graph.shape_rules.views import expand, transpose
from pliant.graph.tensor_spec import (
    CONJUGATED,
    Dim,
    Sizes,
    TensorSpec,
    broadcast,
    holds,
    is_row_major,
    require,
    row_major_strides,
    smaller,
    strides_in_order,
    wrap_dim,
)
from pliant.graph.unsupported import UnsupportedOperator

RULES = Rules()
rule = RULES.rule

_aten = torch.ops.aten


# -- Fourier transforms -----------------------------------------------------------------------------------------------
def _by_stride(x: TensorSpec, dims: Sequence[int]) -> list[int]:
    """Dimensions by falling stride, ties in order."""

    def compare(a: int, b: int) -> int:
        return -1 if holds(x.stride[a] > x.stride[b]) else 1 if holds(x.stride[a] < x.stride[b]) else 0

    return sorted(dims, key=cmp_to_key(compare))


_AT_ONCE = 3  # dimensions that cuFFT transforms at most


def _on_gpu(x: TensorSpec) -> bool:
    if x.device.type != "cuda" and (x.device.type != "cpu" or not torch_adapter.has_mkl()):
        raise UnsupportedOperator("strides of Fourier transforms on this device", kind="fft-device")
    return x.device.type == "cuda"


def _is_one_call(dims: Sequence[int]) -> bool:
    """Whether cuFFT transforms between real and complex numbers at once, not the last dimension by itself."""
    return len(dims) <= _AT_ONCE and list(dims[:2]) != [0, 1]


def _in_turns(x: TensorSpec, dims: Sequence[int]) -> TensorSpec:
    """As many dimensions at a time as cuFFT takes, beginning with those of the smallest strides."""
    left = _by_stride(x, dims)
    while left:
        left = _by_stride(x, left)
        x = _transformed(x, left[-_AT_ONCE:], x.size, x.dtype)
        del left[-_AT_ONCE:]
    return x


def _transformed(x: TensorSpec, dims: Sequence[int], size: Sizes, dtype: torch.dtype) -> TensorSpec:
    """The kernel packs batch dimensions outermost and transformed ones innermost, the last of `dims` last."""
    batch = _by_stride(x, [d for d in range(x.ndim) if d not in dims])
    return x.like(size, strides_in_order(size, [*batch, *dims][::-1]), dtype)


def _dims(x: TensorSpec, dim: Sequence[int]) -> list[int]:
    return [wrap_dim(d, x.ndim) for d in dim]


@rule(_aten._fft_c2c.default)
def fft_c2c(x: TensorSpec, dim: Sequence[int], normalization: int, forward: bool) -> TensorSpec:
    if not dim:
        return x
    dims = _dims(x, dim)
    return _in_turns(x, dims) if _on_gpu(x) else _transformed(x, _by_stride(x, dims), x.size, x.dtype)


@rule(_aten._fft_r2c.default)
def fft_r2c(x: TensorSpec, dim: Sequence[int], normalization: int, onesided: bool) -> TensorSpec:
    *first, last = _dims(x, dim)
    size = x.size
    if onesided:
        size = (*size[:last], size[last] // 2 + 1, *size[last + 1 :])
    if _on_gpu(x) and not _is_one_call([*first, last]):
        dtype = x.dtype.to_complex()
        return _in_turns(_transformed(x, [last], size, dtype), first) if onesided else x.like(size, dtype=dtype)
    return _transformed(x, [*_by_stride(x, first), last], size, x.dtype.to_complex())


@rule(_aten._fft_c2r.default)
def fft_c2r(x: TensorSpec, dim: Sequence[int], normalization: int, last_dim_size: Dim) -> TensorSpec:
    *first, last = _dims(x, dim)
    require(last_dim_size >= 1, "invalid number of data points")
    size = (*x.size[:last], last_dim_size, *x.size[last + 1 :])
    if _on_gpu(x) and _is_one_call([*first, last]):
        x = x.like()  # it reads a copy, which it may write
        return _transformed(x, [*_by_stride(x, first), last], size, x.dtype.to_real())
    x = fft_c2c(x, first, normalization, False)
    return _transformed(x, [last], size, x.dtype.to_real())


# -- factorizations ---------------------------------------------------------------------------------------------------
def column_major(x: TensorSpec, size: Sizes, dtype: torch.dtype | None = None) -> TensorSpec:
    """A batch of matrices, each stored by columns."""
    flipped = row_major_strides((*size[:-2], size[-1], size[-2]))
    return x.like(size, (*flipped[:-2], flipped[-1], flipped[-2]), dtype)


def _real(x: TensorSpec) -> torch.dtype:
    return x.dtype.to_real() if x.dtype.is_complex else x.dtype


@rule(_aten._linalg_svd.default)
def svd(
    x: TensorSpec, full_matrices: bool = False, compute_uv: bool = True, *, driver: Any = None
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    if x.device.type not in ("cpu", "cuda") or (x.device.type == "cuda" and driver is not None):
        raise UnsupportedOperator("strides of factorizations on this device", kind="linalg-device")
    *batch, m, n = x.size
    k = smaller(m, n)
    singular = x.like((*batch, k), dtype=_real(x))
    if not compute_uv:
        return x.like((0,)), singular, x.like((0,))
    u = column_major(x, (*batch, m, m if full_matrices else k))
    size = (*batch, n if full_matrices else k, n)
    return u, singular, column_major(x, size) if x.device.type == "cpu" else x.like(size)


@rule(_aten.linalg_pinv.atol_rtol_tensor)
def pinv(x: TensorSpec, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> TensorSpec:
    require(x.ndim >= 2, "linalg.pinv: the input must have at least 2 dimensions")
    require(x.dtype.is_floating_point or x.dtype.is_complex, "linalg.pinv: expected a floating point or complex tensor")
    require(not hermitian or x.size[-1] == x.size[-2], "linalg.pinv: a hermitian matrix must be square")
    return x.like((*x.size[:-2], x.size[-1], x.size[-2]))


@rule(_aten.linalg_eig.default)
def eig(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    dtype = x.dtype.to_complex() if not x.dtype.is_complex else x.dtype
    vectors = column_major(x, x.size, dtype) if x.device.type == "cpu" else x.like(dtype=dtype)
    return x.like(x.size[:-1], dtype=dtype), vectors


@rule(_aten.geqrf.default)
def geqrf(x: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    require(x.ndim >= 2, "geqrf: the input must have at least 2 dimensions")
    m, n = x.size[-2:]
    return column_major(x, x.size), x.like((*x.size[:-2], smaller(m, n)))


@rule(_aten.linalg_solve_triangular.default)
def solve_triangular(
    a: TensorSpec, b: TensorSpec, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> TensorSpec:
    """Column-major, but where the matrix is a column-major conjugate that nobody has computed: it is read as it is."""
    if b.ndim < 2:
        raise RuntimeError("linalg.solve_triangular: the right-hand side must have at least 2 dimensions")
    require(a.ndim >= 2 and a.size[-1] == a.size[-2], "linalg.solve_triangular: the matrix must be square")
    require(a.size[-1] == b.size[-2 if left else -1], "linalg.solve_triangular: the operands' sizes do not fit")
    batch = broadcast(a.size[:-2], b.size[:-2])
    if a.lazy & CONJUGATED and is_row_major(transpose(expand(a, (*batch, *a.size[-2:])), -2, -1)):
        return b.like((*batch, *b.size[-2:]))
    return column_major(b, (*batch, *b.size[-2:]))


@rule(_aten.linalg_lstsq.default)
def lstsq(
    x: TensorSpec, other: TensorSpec, rcond: Any = None, *, driver: str | None = None
) -> tuple[TensorSpec, TensorSpec, TensorSpec, TensorSpec]:
    """The solution is a part of a column-major matrix; with the drivers `gelsd` and `gelss` values decide on sizes."""
    if x.device.type == "cuda":
        driver = driver or "gels"  # there is no other
    elif x.device.type != "cpu":
        raise UnsupportedOperator("strides of factorizations on this device", kind="linalg-device")
    if driver not in (None, "gelsy", "gels"):
        raise DataDependentError(f"sizes of the driver {driver} depend on values", kind="data-dependent")
    is_vector = other.ndim == x.ndim - 1
    right = (*other.size, 1) if is_vector else other.size
    require(len(right) == x.ndim, "linalg.lstsq: the operands' dimensions do not fit")
    m, n = x.size[-2:]
    require(m == right[-2], "linalg.lstsq: the operands' rows do not match")
    batch = broadcast(x.size[:-2], right[:-2])
    tall = holds(m > n)
    whole = column_major(x, (*batch, m if tall else n, right[-1]))
    size, stride = (*batch, n, right[-1]), whole.stride
    real = x.like(dtype=x.dtype.to_real())
    empty = real.like((0,))
    solution = x.like(size[:-1], stride[:-1]) if is_vector else x.like(size, stride)
    if driver == "gels":
        return solution, real.like((*batch, right[-1])) if tall else empty, empty.like(dtype=torch.int64), empty
    return solution, empty, x.like(batch, dtype=torch.int64), empty


@rule(_aten._linalg_check_errors.default)
def check_errors(info: TensorSpec, name: str, *, is_matrix: bool) -> None:
    """Returns nothing; raises at run time."""
