"""Reductions: sums, extremes, conditions, positions, moments, softmax.

In:     a tensor and the dimensions to reduce.
Out:    tensors whose elements are made by `Reduction` computations, and pointwise work on them.
Holds:  halves accumulate in f32. Variances take two passes over the data (mean first), so they do not cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.scalar import Scalar, apply, cast, const, where
from pliant.lowering.context import Lowering
from pliant.lowering.formulas import square
from pliant.lowering.pointwise import number
from pliant.lowering.tensors import Index, Tensor, numel, opmath
from pliant.lowering.views import affine, dim_of
from pliant.symbolic.expr import ONE, Expr

aten = torch.ops.aten


def dims_of(dim: Any, rank: int) -> list[int]:
    """The reduced dimensions in ascending order; none given means all."""
    if dim is None or dim == []:
        return list(range(rank))
    if rank == 0:
        return []
    return sorted({dim_of(d, rank) for d in (dim if isinstance(dim, (list, tuple)) else [dim])})


def keep(t: Tensor, dims: Sequence[int]) -> Tensor:
    """`t` with dimensions of size 1 put back at `dims`."""
    shape = list(t.shape)
    for d in dims:
        shape.insert(d, ONE)
    dropped = set(dims)
    kept = [d for d in range(len(shape)) if d not in dropped]
    mapping: list[Any] = [[] for _ in shape]
    for position, d in enumerate(kept):
        mapping[d] = [(position, ONE)]
    return affine(t, tuple(shape), mapping, {})


def _result(t: Tensor, dims: Sequence[int], keepdim: bool) -> Tensor:
    return keep(t, dims) if keepdim else t


def mapped(low: Lowering, x: Tensor, dtype: torch.dtype, f: Callable[[Scalar], Scalar], cost: int = 1) -> Tensor:
    """`f` of each element, computed and kept as `dtype`."""
    weight = cost + (x.weight if x.view is None else 0)
    return low.pointwise(dtype, x.shape, lambda i: f(cast(x.at(i), dtype)), weight)


def along(
    low: Lowering,
    x: Tensor,
    dims: Sequence[int],
    dtype: torch.dtype,
    f: Callable[..., Scalar],
    *rows: Tensor,
    cost: int = 1,
) -> Tensor:
    """f(element of x, elements of `rows`), where `rows` lack the dimensions `dims`. Kept as `dtype`."""
    for row in rows:
        if row.view is None and row.weight > 1:
            row.uses = max(row.uses, 2)
    return _with_rows(low, (x,), dims, dtype, f, *rows, cost=cost)


def rounded(t: Tensor, dtype: torch.dtype) -> Tensor:
    """The same values, declared as `dtype` (rounded when stored)."""
    if t.dtype is dtype:
        return t
    final = opmath(dtype)
    return Tensor(
        t.low, dtype, t.shape, lambda i: cast(t.at(i), final), weight=t.weight if t.materialize is None else 0
    )


def count(low: Lowering, x: Tensor, dims: Sequence[int]) -> Expr:
    return numel(tuple([x.shape[d] for d in dims]))


# -- plain reductions -------------------------------------------------------------------------------------------------


def _sum(
    low: Lowering, out: torch.Tensor, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    dims = dims_of(dim, len(x.shape))
    return _result(low.reduce(x, dims, "sum", out.dtype, opmath(out.dtype)), dims, keepdim)


def _nansum(
    low: Lowering, out: torch.Tensor, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    if not x.dtype.is_floating_point:
        return _sum(low, out, x, dim, keepdim, dtype)
    numbers = mapped(low, x, opmath(out.dtype), lambda a: where(apply("isnan", a), const(0, a.dtype), a), 2)
    return _sum(low, out, numbers, dim, keepdim, dtype)


def _count_nonzero(low: Lowering, out: torch.Tensor, x: Tensor, dim: Any = None) -> Tensor:
    dims = dims_of(dim, len(x.shape))
    narrow = low.known(count(low, x, dims).lt(2**31))
    counted = torch.int32 if narrow else torch.int64
    zero, weight = const(0, opmath(x.dtype)), 2 + (x.weight if x.view is None else 0)
    there = low.pointwise(counted, x.shape, lambda i: cast(apply("ne", x.math_at(i), zero), counted), weight)
    return low.reduce(there, dims, "sum", torch.int64, counted)


def mean_of(low: Lowering, x: Tensor, dims: Sequence[int], dtype: torch.dtype) -> Tensor:
    total = low.reduce(x, dims, "sum", dtype, dtype)
    n = low.number(count(low, x, dims), dtype)
    return low.pointwise(dtype, total.shape, lambda i: apply("div", total.at(i), n), 4)


def _mean(
    low: Lowering, out: torch.Tensor, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    dims = dims_of(dim, len(x.shape))
    mean = rounded(mean_of(low, x, dims, opmath(out.dtype)), out.dtype)
    return _result(mean, dims, keepdim)


def _extreme(op: str) -> Callable[..., Tensor]:
    def rule(low: Lowering, out: torch.Tensor, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        dims = dims_of(dim, len(x.shape))
        _refuse_empty(low, x, dims)
        return _result(low.reduce(x, dims, op, out.dtype), dims, keepdim)

    return rule


def _refuse_empty(low: Lowering, x: Tensor, dims: Sequence[int]) -> None:
    """An extreme of nothing raises in eager."""
    for d in dims:
        if not low.known(x.shape[d].ge(1)):
            raise Unsupported("a size that may be 0")


def _extreme_and_position(op: str) -> Callable[..., Any]:
    def rule(low: Lowering, out: Sequence[torch.Tensor], x: Tensor, dim: int, keepdim: bool = False) -> list[Tensor]:
        dims = dims_of(dim, len(x.shape))
        _refuse_empty(low, x, dims)
        values = low.reduce(x, dims, op, out[0].dtype)
        positions = low.reduce(x, dims, f"arg{op}", torch.int64)
        return [_result(values, dims, keepdim), _result(positions, dims, keepdim)]

    return rule


def _condition(op: str) -> Callable[..., Tensor]:
    def rule(low: Lowering, out: torch.Tensor, x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        if out.dtype is not torch.bool:  # uint8 gives uint8
            raise Unsupported("any/all of uint8")
        dims = dims_of(dim, len(x.shape))
        return _result(low.reduce(x, dims, op, torch.bool), dims, keepdim)

    return rule


def _prod(
    low: Lowering, out: torch.Tensor, x: Tensor, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    dims = dims_of(dim, len(x.shape))
    return _result(low.reduce(x, dims, "prod", out.dtype, opmath(out.dtype)), dims, keepdim)


# -- moments ----------------------------------------------------------------------------------------------------------


def moments(low: Lowering, x: Tensor, dims: Sequence[int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The mean, and the sum of squared differences from it."""
    mean = mean_of(low, x, dims, dtype)
    mean.uses = 2
    centred = along(low, x, dims, dtype, lambda a, m: square(apply("sub", a, m)), mean, cost=2)
    return mean, low.reduce(centred, dims, "sum", dtype, dtype)


def variance_of(
    low: Lowering, x: Tensor, dims: Sequence[int], dtype: torch.dtype, correction: Any
) -> tuple[Tensor, Tensor]:
    """(variance, mean); the divisor max(n - correction, 0) gives NaN or inf for too few elements, as in eager."""
    mean, squares = moments(low, x, dims, dtype)
    n = low.number(count(low, x, dims), dtype)
    if correction:
        n = apply("maximum", apply("sub", n, number(low, correction, dtype)), const(0, dtype))
    return low.pointwise(dtype, squares.shape, lambda i: apply("div", squares.at(i), n), 4), mean


def _correction(options: Sequence[Any], correction: Any) -> tuple[Any, Any, bool]:
    """(dim, correction, keepdim) of var(unbiased), var.dim(dim, unbiased, keepdim), var.correction(dim)."""
    if len(options) and isinstance(options[0], bool):
        return None, float(options[0]), False
    dim = options[0] if options else None
    if len(options) > 1:
        return dim, float(options[1]), bool(options[2]) if len(options) > 2 else False
    return dim, 1 if correction is None else correction, False


def _var(root: bool, with_mean: bool) -> Callable[..., Any]:
    def rule(low: Lowering, out: Any, x: Tensor, *options: Any, correction: Any = None, keepdim: bool = False) -> Any:
        if not x.dtype.is_floating_point:
            raise Unsupported("a moment of integers")
        dim, correction, kept = _correction(options, correction)
        dims = dims_of(dim, len(x.shape))
        dtype = opmath(x.dtype)
        variance, mean = variance_of(low, x, dims, dtype, correction)
        if root:
            spread = variance
            variance = low.pointwise(dtype, spread.shape, lambda i: apply("sqrt", spread.at(i)), 9)
        first = _result(rounded(variance, x.dtype), dims, keepdim or kept)
        return [first, _result(rounded(mean, x.dtype), dims, keepdim or kept)] if with_mean else first

    return rule


# -- softmax ----------------------------------------------------------------------------------------------------------


def _maximum_along(low: Lowering, x: Tensor, dims: Sequence[int], dtype: torch.dtype) -> Tensor:
    return low.reduce(mapped(low, x, dtype, lambda a: a, 0), dims, "max", dtype)


def _softmax_and_maxima(low: Lowering, x: Tensor, dims: Sequence[int], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    x.uses = max(x.uses, 2)
    top = _maximum_along(low, x, dims, dtype)
    powers = along(low, x, dims, dtype, lambda a, m: apply("exp", apply("sub", a, m)), top, cost=13)
    powers.uses = 2  # summed, then divided
    total = low.reduce(powers, dims, "sum", dtype, dtype)
    # one division a row: an element's takes longer than its share of memory
    share = mapped(low, total, dtype, lambda s: apply("div", const(1, dtype), s), 14)
    return along(low, powers, dims, dtype, lambda p, s: apply("mul", p, s), share, cost=1), top


def _softmax(low: Lowering, out: torch.Tensor, x: Tensor, dim: int, half_to_float: Any = False) -> Tensor:
    result, _ = _softmax_and_maxima(low, x, dims_of(dim, len(x.shape)), opmath(out.dtype))
    return rounded(result, out.dtype)


def _safe_softmax(low: Lowering, out: torch.Tensor, x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """softmax, but zeros where a whole row is -inf."""
    dims, math = dims_of(dim, len(x.shape)), opmath(out.dtype)
    plain, top = _softmax_and_maxima(low, x, dims, math)

    def formula(p: Scalar, m: Scalar) -> Scalar:
        return where(apply("eq", m, const(-torch.inf, math)), const(0, math), p)

    return rounded(along(low, plain, dims, math, formula, top, cost=2), out.dtype)


def _log_softmax(low: Lowering, out: torch.Tensor, x: Tensor, dim: int, half_to_float: Any = False) -> Tensor:
    dims = dims_of(dim, len(x.shape))
    dtype = opmath(out.dtype)
    x.uses = max(x.uses, 2)
    top = _maximum_along(low, x, dims, dtype)
    powers = along(low, x, dims, dtype, lambda a, m: apply("exp", apply("sub", a, m)), top, cost=13)
    total = low.reduce(powers, dims, "sum", dtype, dtype)
    log_total = mapped(low, total, dtype, lambda s: apply("log", s), 14)
    result = along(low, x, dims, dtype, lambda a, m, s: apply("sub", apply("sub", a, m), s), top, log_total, cost=2)
    return rounded(result, out.dtype)


def _softmax_backward(low: Lowering, out: torch.Tensor, grad: Tensor, y: Tensor, dim: int, dtype: Any) -> Tensor:
    dims = dims_of(dim, len(y.shape))
    math = opmath(y.dtype)
    products = low.pointwise(
        math, y.shape, lambda i: apply("mul", cast(grad.at(i), math), cast(y.at(i), math)), 2 + grad.weight
    )
    products.uses = 2
    total = low.reduce(products, dims, "sum", math, math)

    def formula(p: Scalar, a: Scalar, s: Scalar) -> Scalar:
        return apply("sub", p, apply("mul", a, s))

    return rounded(_with_rows(low, (products, y), dims, math, formula, total), out.dtype)


def _log_softmax_backward(low: Lowering, out: torch.Tensor, grad: Tensor, y: Tensor, dim: int, dtype: Any) -> Tensor:
    dims = dims_of(dim, len(y.shape))
    math = opmath(y.dtype)
    grad.uses = max(grad.uses, 2)
    total = low.reduce(grad, dims, "sum", math, math)

    def formula(g: Scalar, a: Scalar, s: Scalar) -> Scalar:
        return apply("sub", g, apply("mul", apply("exp", a), s))

    return rounded(_with_rows(low, (grad, y), dims, math, formula, total, cost=16), out.dtype)


def _with_rows(
    low: Lowering,
    full: Sequence[Tensor],
    dims: Sequence[int],
    dtype: torch.dtype,
    f: Callable[..., Scalar],
    *rows: Tensor,
    cost: int = 2,
) -> Tensor:
    """f(elements of `full`, elements of `rows` without the dimensions `dims`)."""
    dropped = set(dims)

    def at(index: Index) -> Scalar:
        outer = [e for d, e in enumerate(index) if d not in dropped]
        known = [cast(r.at(outer), dtype) for r in rows]  # first: what waits for their loops can be one kernel with the rest
        return f(*[cast(t.at(index), dtype) for t in full], *known)

    weight = cost + sum([t.weight for t in full if t.view is None])
    return low.pointwise(dtype, full[0].shape, at, weight)


def _logsumexp(low: Lowering, out: torch.Tensor, x: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    dims = dims_of(dim, len(x.shape))
    dtype = opmath(out.dtype)
    _refuse_empty(low, x, dims)
    x.uses = max(x.uses, 2)
    top = _maximum_along(low, x, dims, dtype)

    def finite(m: Scalar) -> Scalar:  # infinite maxima are not subtracted: inf - inf would be NaN
        return where(apply("isinf", m), const(0, dtype), m)

    base = mapped(low, top, dtype, finite, 2)
    powers = along(low, x, dims, dtype, lambda a, m: apply("exp", apply("sub", a, m)), base, cost=13)
    total = low.reduce(powers, dims, "sum", dtype, dtype)
    result = _with_rows(low, (total, base), (), dtype, lambda s, m: apply("add", apply("log", s), m), cost=15)
    return _result(rounded(result, out.dtype), dims, keepdim)


# -- norms ------------------------------------------------------------------------------------------------------------


def _norm(
    low: Lowering, out: torch.Tensor, x: Tensor, p: Any = 2, dim: Any = None, keepdim: bool = False, dtype: Any = None
) -> Tensor:
    dims = dims_of(dim, len(x.shape))
    math = opmath(out.dtype)
    if p in (1, 2) and all(x.shape[d] is ONE for d in dims):
        result = low.reduce(mapped(low, x, math, lambda a: apply("abs", a)), dims, "max", math, math)  # squares may overflow
    elif p == 2:
        squares = low.reduce(mapped(low, x, math, square), dims, "sum", math, math)
        result = mapped(low, squares, math, lambda s: apply("sqrt", s), 5)
    elif p == 1:
        result = low.reduce(mapped(low, x, math, lambda a: apply("abs", a)), dims, "sum", math, math)
    else:
        raise Unsupported("this norm")
    return _result(rounded(result, out.dtype), dims, keepdim)


RULES: dict[Any, Callable[..., Any]] = {
    aten.sum.default: _sum,
    aten.sum.dim_IntList: _sum,
    aten.nansum.default: _nansum,
    aten.count_nonzero.default: _count_nonzero,
    aten.count_nonzero.dim_IntList: _count_nonzero,
    aten.mean.default: _mean,
    aten.mean.dim: _mean,
    aten.amax.default: _extreme("max"),
    aten.amin.default: _extreme("min"),
    aten.max.default: _extreme("max"),
    aten.min.default: _extreme("min"),
    aten.max.dim: _extreme_and_position("max"),
    aten.min.dim: _extreme_and_position("min"),
    aten.argmax.default: _extreme("argmax"),
    aten.argmin.default: _extreme("argmin"),
    aten.any.default: _condition("any"),
    aten._is_any_true.default: _condition("any"),
    aten._is_all_true.default: _condition("all"),
    aten.any.dim: _condition("any"),
    aten.any.dims: _condition("any"),
    aten.all.default: _condition("all"),
    aten.all.dim: _condition("all"),
    aten.all.dims: _condition("all"),
    aten.prod.default: _prod,
    aten.prod.dim_int: _prod,
    aten.var.correction: _var(False, False),
    aten.var.dim: _var(False, False),
    aten.var.default: _var(False, False),
    aten.std.correction: _var(True, False),
    aten.std.dim: _var(True, False),
    aten.std.default: _var(True, False),
    aten.var_mean.correction: _var(False, True),
    aten.std_mean.correction: _var(True, True),
    aten._softmax.default: _softmax,
    aten._safe_softmax.default: _safe_softmax,
    aten._log_softmax.default: _log_softmax,
    aten._softmax_backward_data.default: _softmax_backward,
    aten._log_softmax_backward_data.default: _log_softmax_backward,
    aten.logsumexp.default: _logsumexp,
    aten.linalg_vector_norm.default: _norm,
    aten.norm.ScalarOpt_dim: _norm,
    aten.norm.Scalar: _norm,
}
