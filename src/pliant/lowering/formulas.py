"""The formulas of pointwise operators over scalars, in eager's order of operations.

In:     scalars of one floating-point dtype, and Python numbers.
Out:    a scalar of the same dtype.
Holds:  infinities and NaN come out as in eager; branches are `where`s.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.scalar import Scalar, apply, cast, const, index_value, where
from pliant.symbolic.expr import Expr


def lit(x: Scalar, value: Any) -> Scalar:
    """A number of the operator, in the type of `x`: a constant, or what an expression gives at each call."""
    if isinstance(value, Expr):
        return cast(index_value(value, torch.int64 if value.kind is int else torch.float64), x.dtype)
    return const(value, x.dtype)


def add(a: Scalar, b: Scalar) -> Scalar:
    return apply("add", a, b)


def sub(a: Scalar, b: Scalar) -> Scalar:
    return apply("sub", a, b)


def mul(a: Scalar, b: Scalar) -> Scalar:
    return apply("mul", a, b)


def times(a: Scalar, value: float) -> Scalar:
    return apply("mul", a, lit(a, value))


def plus(a: Scalar, value: float) -> Scalar:
    return apply("add", a, lit(a, value))


def reciprocal(x: Scalar) -> Scalar:
    return apply("div", lit(x, 1), x)


def square(x: Scalar) -> Scalar:
    return mul(x, x)


def sign(x: Scalar) -> Scalar:
    if x.dtype is torch.bool:
        return x
    zero = lit(x, 0)
    if x.dtype.is_floating_point:
        return where(apply("gt", x, zero), lit(x, 1), where(apply("lt", x, zero), lit(x, -1), zero))
    result = sub(cast(apply("gt", x, zero), x.dtype), cast(apply("lt", x, zero), x.dtype))
    return result if x.dtype is not torch.uint8 else cast(apply("gt", x, zero), x.dtype)


def frac(x: Scalar) -> Scalar:
    return sub(x, apply("trunc", x))


TESTS: dict[str, Callable[[Scalar], Scalar]] = {
    "isnan": lambda x: apply("isnan", x),
    "isinf": lambda x: apply("isinf", x),
    # |x| < inf is false for NaN too
    "isfinite": lambda x: apply("lt", apply("abs", x), lit(x, math.inf)),
}


def power_of(exponent: Any, dtype: torch.dtype) -> Callable[[Scalar], Scalar] | None:
    """x ** exponent where multiplications give eager's bits."""
    if exponent == 2:
        return square
    if exponent == 1:
        return lambda x: x
    if exponent == 3:
        return lambda x: mul(mul(x, x), x)
    if exponent == 0:
        return lambda x: lit(x, 1)
    if not dtype.is_floating_point:
        return _integer_power(exponent) if type(exponent) is int and 0 < exponent < 64 else None
    rows: dict[float, Callable[[Scalar], Scalar]] = {
        0.5: lambda x: apply("sqrt", x),
        -0.5: lambda x: apply("rsqrt", x),
        -1: reciprocal,
        -2: lambda x: reciprocal(square(x)),
    }
    return rows.get(exponent)


def _integer_power(exponent: int) -> Callable[[Scalar], Scalar]:
    def formula(x: Scalar) -> Scalar:
        result = x
        for _ in range(exponent - 1):  # wraps around as eager's repeated products do
            result = mul(result, x)
        return result

    return formula


def lerp(start: Scalar, end: Scalar, weight: Scalar) -> Scalar:
    # eager starts from the nearer end
    difference = sub(end, start)
    near = add(start, mul(weight, difference))
    far = sub(end, mul(difference, sub(lit(weight, 1), weight)))
    return where(apply("lt", apply("abs", weight), lit(weight, 0.5)), near, far)


# -- activations ------------------------------------------------------------------------------------------------------


def relu(x: Scalar) -> Scalar:
    if x.dtype is torch.bool:
        raise Unsupported("relu of booleans")
    return apply("maximum", x, lit(x, 0))


_SQRT_HALF = math.sqrt(0.5)
_TANH_SCALE = math.sqrt(2 / math.pi)
_TANH_CUBIC = 0.044715


def _tanh_inner(x: Scalar) -> Scalar:
    return times(add(x, times(mul(mul(x, x), x), _TANH_CUBIC)), _TANH_SCALE)


def gelu(x: Scalar, approximate: str = "none") -> Scalar:
    if approximate == "tanh":
        return mul(times(x, 0.5), plus(apply("tanh", _tanh_inner(x)), 1))
    if x.dtype is torch.float32:
        return mul(x, apply("normal_cdf", x))
    return mul(times(x, 0.5), plus(apply("erf", times(x, _SQRT_HALF)), 1))


def gelu_backward(grad: Scalar, x: Scalar, approximate: str = "none") -> Scalar:
    if approximate == "tanh":
        return _gelu_tanh_backward(grad, x)
    if x.dtype is torch.float32:
        return mul(grad, apply("gelu_slope", x))
    cdf = times(plus(apply("erf", times(x, _SQRT_HALF)), 1), 0.5)
    pdf = times(apply("exp", times(mul(x, x), -0.5)), 1 / math.sqrt(2 * math.pi))
    return mul(grad, add(cdf, mul(x, pdf)))


def _gelu_tanh_backward(grad: Scalar, x: Scalar) -> Scalar:
    tanh = apply("tanh", _tanh_inner(x))
    left = times(plus(tanh, 1), 0.5)
    slope = times(plus(times(mul(x, x), 3 * _TANH_CUBIC), 1), _TANH_SCALE)
    right = mul(mul(times(x, 0.5), sub(lit(x, 1), mul(tanh, tanh))), slope)
    return mul(grad, add(left, right))


def silu(x: Scalar) -> Scalar:
    return apply("div", x, plus(apply("exp", apply("neg", x)), 1))


def silu_backward(grad: Scalar, x: Scalar) -> Scalar:
    s = apply("sigmoid", x)
    return mul(mul(grad, s), plus(mul(x, sub(lit(x, 1), s)), 1))


def mish(x: Scalar) -> Scalar:
    return mul(x, apply("tanh", apply("log1p", apply("exp", x))))


def softplus(x: Scalar, beta: float = 1, threshold: float = 20) -> Scalar:
    scaled = times(x, beta)
    smooth = apply("div", apply("log1p", apply("exp", scaled)), lit(x, beta))
    return where(apply("gt", scaled, lit(x, threshold)), x, smooth)


def softplus_backward(grad: Scalar, x: Scalar, beta: float, threshold: float) -> Scalar:
    z = apply("exp", times(x, beta))
    smooth = apply("div", mul(grad, z), plus(z, 1))
    return where(apply("gt", times(x, beta), lit(x, threshold)), grad, smooth)


def log_sigmoid(x: Scalar) -> Scalar:
    smallest = apply("minimum", x, lit(x, 0))
    return sub(smallest, apply("log1p", apply("exp", apply("neg", apply("abs", x)))))


def log_sigmoid_backward(grad: Scalar, x: Scalar) -> Scalar:
    negative = apply("lt", x, lit(x, 0))
    z = apply("exp", apply("neg", apply("abs", x)))
    ratio = apply("div", z, plus(z, 1))
    slope = where(negative, sub(lit(x, 1), ratio), ratio)
    return mul(grad, slope)


def elu(x: Scalar, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Scalar:
    negative = times(apply("expm1", times(x, input_scale)), alpha * scale)
    return where(apply("lt", x, lit(x, 0)), negative, times(x, scale))


def elu_backward(grad: Scalar, x: Scalar, alpha: float, scale: float, input_scale: float, is_result: bool) -> Scalar:
    if is_result:
        slope = times(plus(x, alpha * scale), input_scale)
    else:
        slope = times(apply("exp", times(x, input_scale)), input_scale * alpha * scale)
    return where(apply("le", x, lit(x, 0)), mul(grad, slope), times(grad, scale))


def leaky_relu(x: Scalar, slope: float = 0.01) -> Scalar:
    return where(apply("gt", x, lit(x, 0)), x, times(x, slope))


def leaky_relu_backward(grad: Scalar, x: Scalar, slope: float, is_result: bool) -> Scalar:
    return where(apply("gt", x, lit(x, 0)), grad, times(grad, slope))


def prelu(x: Scalar, slope: Scalar) -> Scalar:
    return where(apply("gt", x, lit(x, 0)), x, mul(slope, x))


def prelu_backward(grad: Scalar, x: Scalar, slope: Scalar) -> Scalar:
    return where(apply("gt", x, lit(x, 0)), grad, mul(slope, grad))


def prelu_slope_backward(grad: Scalar, x: Scalar) -> Scalar:
    return where(apply("gt", x, lit(x, 0)), lit(x, 0), mul(x, grad))


def hardtanh(x: Scalar, low: float = -1, high: float = 1) -> Scalar:
    return apply("minimum", apply("maximum", x, lit(x, low)), lit(x, high))


def hardtanh_backward(grad: Scalar, x: Scalar, low: float, high: float) -> Scalar:
    outside = apply("bit_or", apply("le", x, lit(x, low)), apply("ge", x, lit(x, high)))
    return where(outside, lit(x, 0), grad)


def _relu6(x: Scalar) -> Scalar:
    return apply("minimum", apply("maximum", x, lit(x, 0)), lit(x, 6))


def hardsigmoid(x: Scalar) -> Scalar:
    return apply("div", _relu6(plus(x, 3)), lit(x, 6))


def hardsigmoid_backward(grad: Scalar, x: Scalar) -> Scalar:
    inside = apply("bit_and", apply("gt", x, lit(x, -3)), apply("lt", x, lit(x, 3)))
    return where(inside, times(grad, 1 / 6), lit(x, 0))


def hardswish(x: Scalar) -> Scalar:
    return apply("div", mul(x, _relu6(plus(x, 3))), lit(x, 6))


def hardswish_backward(grad: Scalar, x: Scalar) -> Scalar:
    middle = mul(grad, plus(apply("div", x, lit(x, 3)), 0.5))
    upper = where(apply("lt", x, lit(x, 3)), middle, grad)
    return where(apply("le", x, lit(x, -3)), lit(x, 0), upper)


def threshold(x: Scalar, limit: float, value: float) -> Scalar:
    return where(apply("le", x, lit(x, limit)), lit(x, value), x)


def threshold_backward(grad: Scalar, x: Scalar, limit: float) -> Scalar:
    return where(apply("le", x, lit(x, limit)), lit(x, 0), grad)


def sigmoid_backward(grad: Scalar, y: Scalar) -> Scalar:
    return mul(mul(grad, sub(lit(y, 1), y)), y)


def tanh_backward(grad: Scalar, y: Scalar) -> Scalar:
    return mul(grad, sub(lit(y, 1), mul(y, y)))


def logit(x: Scalar, eps: float | None = None) -> Scalar:
    if eps is not None:
        least, most = lit(x, eps), lit(x, 1 - eps)
        limited = where(apply("lt", x, least), least, where(apply("gt", x, most), most, x))
        x = where(apply("lt", least, lit(x, 0)), x, limited)  # a negative one is none
    return apply("log", apply("div", x, sub(lit(x, 1), x)))


def nan_to_num(x: Scalar, nan: float | None = None, posinf: float | None = None, neginf: float | None = None) -> Scalar:
    info = torch.finfo(x.dtype)
    largest, smallest = posinf if posinf is not None else info.max, neginf if neginf is not None else info.min
    above = where(apply("eq", x, lit(x, math.inf)), lit(x, largest), x)
    below = where(apply("eq", x, lit(x, -math.inf)), lit(x, smallest), above)
    return where(apply("isnan", x), lit(x, 0.0 if nan is None else nan), below)
