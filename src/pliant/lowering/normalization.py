"""Normalization layers, forward and backward.

In:     ATen's native_* calls.
Out:    moments by two reductions, then pointwise work that the scheduler fuses with them.
Holds:  everything is computed in f32 (f64 for doubles); saved mean and rstd have the dtypes eager gives them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.scalar import Scalar, apply, const
from pliant.lowering.context import Lowering
from pliant.lowering.creation import filled
from pliant.lowering.formulas import add, mul, sub
from pliant.lowering.pointwise import combined, number
from pliant.lowering.reduction import count, keep, mapped, mean_of, rounded, variance_of
from pliant.lowering.tensors import Tensor, opmath
from pliant.lowering.views import reshape_to
from pliant.symbolic.expr import ONE

aten = torch.ops.aten


def _rstd(low: Lowering, variance: Tensor, eps: Any) -> Tensor:
    dtype = variance.dtype
    epsilon = number(low, eps, dtype)
    result = mapped(low, variance, dtype, lambda v: apply("rsqrt", add(v, epsilon)), 10)
    result.uses = 2
    return result


# -- layer norm -------------------------------------------------------------------------------------------------------


def _layer_norm(
    low: Lowering,
    out: Sequence[torch.Tensor],
    x: Tensor,
    normalized: Sequence[Any],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
) -> list[Tensor]:
    rank = len(x.shape)
    dims = list(range(rank - len(normalized), rank))
    dtype = opmath(x.dtype)
    x.uses = max(x.uses, 3)
    variance, mean = variance_of(low, x, dims, dtype, 0)
    rstd = _rstd(low, variance, eps)
    mean_, rstd_ = keep(mean, dims), keep(rstd, dims)
    result = _affine(low, x, mean_, rstd_, weight, bias, dtype)
    return [rounded(result, out[0].dtype), rounded(mean_, out[1].dtype), rounded(rstd_, out[2].dtype)]


def _affine(
    low: Lowering, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """(x - mean) * rstd * weight + bias, arguments broadcast."""
    given = [t for t in (weight, bias) if t is not None]

    def formula(a: Scalar, m: Scalar, r: Scalar, *rest: Scalar) -> Scalar:
        result = mul(sub(a, m), r)
        parts = list(rest)
        if weight is not None:
            result = mul(result, parts.pop(0))
        return add(result, parts.pop(0)) if bias is not None else result

    return combined(low, dtype, x.shape, (x, mean, rstd, *given), formula)


def _layer_norm_backward(
    low: Lowering, out: Sequence[Any], grad: Tensor, x: Tensor, normalized: Sequence[Any], mean: Tensor, rstd: Tensor,
    weight: Tensor | None, bias: Tensor | None, mask: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    rank = len(x.shape)
    dims = list(range(rank - len(normalized), rank))
    outer = [d for d in range(rank) if d not in dims]
    dtype = opmath(x.dtype)
    grad.uses, x.uses = max(grad.uses, 3), max(x.uses, 2)
    hat = combined(low, dtype, x.shape, (x, mean, rstd), lambda a, m, r: mul(sub(a, m), r), 2)
    scaled = mapped(low, grad, dtype, lambda g: g, 0)
    if weight is not None:
        scaled = combined(low, dtype, x.shape, (grad, weight), mul, 1)
    results: list[Tensor | None] = [None, None, None]
    if mask[0]:
        results[0] = rounded(_normalized_gradient(low, scaled, hat, rstd, dims, dtype), x.dtype)
    if mask[1] and weight is not None:
        products = combined(low, dtype, x.shape, (grad, hat), mul, 1)
        results[1] = rounded(low.reduce(products, outer, "sum", dtype, dtype), out[1].dtype)
    if mask[2] and bias is not None:
        results[2] = low.reduce(grad, outer, "sum", out[2].dtype, dtype)
    return results


def _normalized_gradient(
    low: Lowering, scaled: Tensor, hat: Tensor, rstd: Tensor, dims: Sequence[int], dtype: torch.dtype
) -> Tensor:
    """rstd * (g - mean(g) - hat * mean(g * hat)), means over `dims`; rstd broadcasts."""
    first = keep(mean_of(low, scaled, dims, dtype), dims)
    second = keep(mean_of(low, combined(low, dtype, scaled.shape, (scaled, hat), mul, 1), dims, dtype), dims)
    return combined(low, dtype, scaled.shape, (scaled, hat, rstd, first, second), _centred, 5)


def _centred(g: Scalar, h: Scalar, scale: Scalar, mean: Scalar, slope: Scalar) -> Scalar:
    return mul(scale, sub(sub(g, mean), mul(h, slope)))


# -- batch norm: channels are dimension 1 -----------------------------------------------------------------------------


def _spread(t: Tensor, rank: int) -> Tensor:
    """[C] as [C, 1, ...], which broadcasts along dimension 1 of a tensor of that rank."""
    return reshape_to(t, (*t.shape, *[ONE] * (rank - 2)))


def _affine_of_channels(
    low: Lowering, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """As `_affine`, of what is known of each channel."""
    rank = len(x.shape)
    scale, shift = (None if t is None else _spread(t, rank) for t in (weight, bias))
    return _affine(low, x, _spread(mean, rank), _spread(rstd, rank), scale, shift, dtype)


def _batch_norm_training(
    low: Lowering, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(result, mean, rstd, variance without correction), all in the computing dtype."""
    rank, dtype = len(x.shape), opmath(x.dtype)
    dims = [d for d in range(rank) if d != 1]
    x.uses = max(x.uses, 3)
    variance, mean = variance_of(low, x, dims, dtype, 0)
    variance.uses = 2
    rstd = _rstd(low, variance, eps)
    return _affine_of_channels(low, x, mean, rstd, weight, bias, dtype), mean, rstd, variance


def _batch_norm_eval(
    low: Lowering, x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, variance: Tensor, eps: float
) -> Tensor:
    dtype = opmath(x.dtype)
    rstd = _rstd(low, mapped(low, variance, dtype, lambda v: v, 0), eps)
    return _affine_of_channels(low, x, mean, rstd, weight, bias, dtype)


def _moving(low: Lowering, running: Tensor, value: Tensor, momentum: float, dtype: torch.dtype) -> Tensor:
    """momentum * value + (1 - momentum) * running"""
    new, old = number(low, momentum, dtype), number(low, 1 - momentum, dtype)
    result = combined(low, dtype, running.shape, (value, running), lambda v, r: add(mul(new, v), mul(old, r)), 3)
    return rounded(result, running.dtype)


def _batch_norm_functional(
    low: Lowering, out: Sequence[torch.Tensor], x: Tensor, weight: Tensor | None, bias: Tensor | None,
    running_mean: Tensor, running_var: Tensor, training: bool, momentum: float, eps: float,
) -> list[Tensor]:  # fmt: skip
    """_native_batch_norm_legit_functional: also the new running statistics."""
    if not training:
        first = _batch_norm(low, out[:3], x, weight, bias, running_mean, running_var, False, momentum, eps)
        return [*first, running_mean, running_var]
    result, mean, rstd, variance = _batch_norm_training(low, x, weight, bias, eps)
    dtype = opmath(x.dtype)
    n = low.number(count(low, x, [d for d in range(len(x.shape)) if d != 1]), dtype)
    ratio = apply("div", n, sub(n, const(1, dtype)))
    unbiased = mapped(low, variance, dtype, lambda v: mul(v, ratio), 2)
    moved = [_moving(low, running_mean, mean, momentum, dtype), _moving(low, running_var, unbiased, momentum, dtype)]
    return [rounded(result, out[0].dtype), rounded(mean, out[1].dtype), rounded(rstd, out[2].dtype), *moved]


def _batch_norm(
    low: Lowering, out: Sequence[torch.Tensor], x: Tensor, weight: Tensor | None, bias: Tensor | None,
    running_mean: Tensor | None, running_var: Tensor | None, training: bool, momentum: float, eps: float,
) -> list[Tensor]:  # fmt: skip
    if training:
        if running_mean is not None:
            raise Unsupported("running statistics updated in place")
        result, mean, rstd, _ = _batch_norm_training(low, x, weight, bias, eps)
        return [rounded(result, out[0].dtype), rounded(mean, out[1].dtype), rounded(rstd, out[2].dtype)]
    assert running_mean is not None and running_var is not None
    result = _batch_norm_eval(low, x, weight, bias, running_mean, running_var, eps)
    return [rounded(result, out[0].dtype), *_statistics_used(low, out[1:3], running_mean, running_var, eps)]


def _statistics_used(
    low: Lowering, out: Sequence[torch.Tensor], mean: Tensor, variance: Tensor, eps: float
) -> list[Tensor]:
    """The running ones, or nothing, as the kernel for eager's device gives them."""
    if all(type(n) is int and n == 0 for n in out[0].shape):
        return [filled(low, f, 0) for f in out]
    dtype = out[0].dtype
    mean, variance = (mapped(low, one, dtype, lambda v: v, 0) for one in (mean, variance))
    return [mean, _rstd(low, variance, eps)]


def _batch_norm_no_stats(
    low: Lowering, out: Any, x: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> list[Tensor]:
    return _batch_norm(low, out, x, weight, bias, None, None, training, momentum, eps)


def _batch_norm_inference(
    low: Lowering, out: Any, x: Tensor, weight: Any, bias: Any, mean: Tensor, var: Tensor, momentum: float, eps: float
) -> list[Tensor]:
    return _batch_norm(low, out, x, weight, bias, mean, var, False, momentum, eps)


def _batch_norm_backward(
    low: Lowering, out: Sequence[Any], grad: Tensor, x: Tensor, weight: Tensor | None, running_mean: Tensor | None,
    running_var: Tensor | None, saved_mean: Tensor | None, saved_rstd: Tensor | None, training: bool, eps: float, mask:
    Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    rank, dtype = len(x.shape), opmath(x.dtype)
    dims = [d for d in range(rank) if d != 1]
    if training:
        assert saved_mean is not None and saved_rstd is not None
        mean, rstd = saved_mean, saved_rstd
    else:
        assert running_mean is not None and running_var is not None
        mean, rstd = running_mean, _rstd(low, mapped(low, running_var, dtype, lambda v: v, 0), eps)
    grad.uses, x.uses = max(grad.uses, 3), max(x.uses, 2)
    hat = combined(
        low, dtype, x.shape, (x, _spread(mean, rank), _spread(rstd, rank)), lambda a, m, r: mul(sub(a, m), r), 2
    )
    products = combined(low, dtype, x.shape, (grad, hat), mul, 1)
    dot, total = low.reduce(products, dims, "sum", dtype, dtype), low.reduce(grad, dims, "sum", dtype, dtype)
    results: list[Tensor | None] = [None, None, None]
    if mask[0]:
        results[0] = rounded(_batch_input_gradient(low, grad, hat, rstd, weight, dot, total, dims, training), x.dtype)
    if mask[1]:
        results[1] = rounded(dot, out[1].dtype)
    if mask[2]:
        results[2] = rounded(total, out[2].dtype)
    return results


def _batch_input_gradient(
    low: Lowering, grad: Tensor, hat: Tensor, rstd: Tensor, weight: Tensor | None, dot: Tensor, total: Tensor, dims:
    Sequence[int],
    training: bool,
) -> Tensor:  # fmt: skip
    dtype = hat.dtype
    rank = len(hat.shape)
    scale = rstd if weight is None else combined(low, dtype, rstd.shape, (rstd, weight), mul, 1)
    scale = _spread(scale, rank)
    if not training:
        return combined(low, dtype, hat.shape, (grad, scale), mul, 1)
    n = low.number(count(low, hat, dims), dtype)
    means = [_spread(mapped(low, t, dtype, lambda a: apply("div", a, n), 8), rank) for t in (total, dot)]
    for m in means:
        m.uses = 2

    return combined(low, dtype, hat.shape, (grad, hat, scale, *means), _centred, 5)


# -- group norm -------------------------------------------------------------------------------------------------------


def _group_norm(
    low: Lowering, out: Sequence[torch.Tensor], x: Tensor, weight: Tensor | None, bias: Tensor | None, n: Any, c: Any,
    hw: Any,
    groups: Any, eps: float,
) -> list[Tensor]:  # fmt: skip
    n_, c_, hw_, g_ = (low.size(v) for v in (n, c, hw, groups))
    dtype = opmath(x.dtype)
    per_group = c_ // g_
    x.uses = max(x.uses, 3)
    grouped = reshape_to(x, (n_, g_, per_group, hw_))
    variance, mean = variance_of(low, grouped, [2, 3], dtype, 0)
    rstd = _rstd(low, variance, eps)
    parameters = [None if p is None else reshape_to(p, (g_, per_group, ONE)) for p in (weight, bias)]
    wide = [keep(t, [2, 3]) for t in (mean, rstd)]
    result = _affine(low, grouped, wide[0], wide[1], parameters[0], parameters[1], dtype)
    final = reshape_to(rounded(result, out[0].dtype), x.shape)
    return [final, rounded(mean, out[1].dtype), rounded(rstd, out[2].dtype)]


def _group_norm_backward(
    low: Lowering, out: Sequence[Any], grad: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, n: Any,
    c: Any, hw: Any, groups: Any, mask: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """Each channel of each image is summed once, for the gradients of the parameters and for the groups' means."""
    n_, c_, hw_, g_ = (low.size(v) for v in (n, c, hw, groups))
    dtype, shape = opmath(x.dtype), (n_, g_, c_ // g_, hw_)
    grad.uses, x.uses = max(grad.uses, 3), max(x.uses, 2)
    given, values = reshape_to(grad, shape), reshape_to(x, shape)
    mean_, scale = (reshape_to(t, (n_, g_, ONE, ONE)) for t in (mean, rstd))
    hat = combined(low, dtype, shape, (values, mean_, scale), lambda a, m, r: mul(sub(a, m), r), 2)
    products = combined(low, dtype, shape, (given, hat), mul, 1)
    dot, total = (low.reduce(t, [3], "sum", dtype, dtype) for t in (products, given))
    dot.uses = total.uses = 2
    results: list[Tensor | None] = [None, None, None]
    if mask[0]:
        factors = None if weight is None else reshape_to(weight, shape[1:3])
        size = low.number(shape[2] * hw_, dtype)
        first, second = (_mean_of_channels(low, t, factors, size) for t in (total, dot))
        scaled = mapped(low, given, dtype, lambda g: g, 0)
        if factors is not None:
            scaled = combined(low, dtype, shape, (given, reshape_to(factors, (*factors.shape, ONE))), mul, 1)
        result = combined(low, dtype, shape, (scaled, hat, scale, first, second), _centred, 5)
        results[0] = reshape_to(rounded(result, x.dtype), x.shape)
    for k, sums in ((1, dot), (2, total)):
        if mask[k]:
            results[k] = rounded(reshape_to(low.reduce(sums, [0], "sum", dtype, dtype), (c_,)), out[k].dtype)
    return results


def _mean_of_channels(low: Lowering, sums: Tensor, factors: Tensor | None, size: Scalar) -> Tensor:
    """[images, groups, 1, 1] of the sums of channels, each times its factor; `size`: of what elements."""
    dtype = sums.dtype
    weighted = sums if factors is None else combined(low, dtype, sums.shape, (sums, factors), mul, 1)
    total = low.reduce(weighted, [2], "sum", dtype, dtype)
    result = mapped(low, total, dtype, lambda a: apply("div", a, size), 8)
    result.uses = 2
    return reshape_to(result, (*result.shape, ONE, ONE))


RULES: dict[Any, Callable[..., Any]] = {
    aten.native_layer_norm.default: _layer_norm,
    aten.native_layer_norm_backward.default: _layer_norm_backward,
    aten._native_batch_norm_legit_functional.default: _batch_norm_functional,
    aten._native_batch_norm_legit.no_stats: _batch_norm_no_stats,
    aten._native_batch_norm_legit_no_training.default: _batch_norm_inference,
    aten.native_batch_norm.default: _batch_norm,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.native_group_norm.default: _group_norm,
    aten.native_group_norm_backward.default: _group_norm_backward,
}
