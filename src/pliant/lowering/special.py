"""Special functions and rarer pointwise operators, as formulas of simpler ones: a row each.

In:     tensors and numbers.
Out:    a tensor whose element is a scalar expression of the arguments' elements.
Holds:  infinities, NaN and poles come out as in eager; errors against float64 are at most twice eager's. What needs more digits
        than a float32 sum has (doubles, and orders of `polygamma` above 1) is the library's.
Source: recurrences and asymptotic series are the textbook ones; other coefficients are least-squares fits, weighted until the
        largest error is the least.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.scalar import Scalar, apply, cast, const, where
from pliant.lowering.context import Lowering
from pliant.lowering.formulas import add, elu, lit, mul, plus, reciprocal, square, sub, times
from pliant.lowering.pointwise import by_formula, elements, only_floats
from pliant.lowering.tensors import Index, Tensor, opmath
from pliant.lowering.views import dim_of

aten = torch.ops.aten


def polynomial(x: Scalar, coefficients: Sequence[float]) -> Scalar:
    """Their sum with powers of `x`, from the constant on."""
    result = lit(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        result = plus(mul(result, x), c)
    return result


def _is(x: Scalar, op: str, value: float) -> Scalar:
    return apply(op, x, lit(x, value))


# -- gamma functions --------------------------------------------------------------------------------------------------

_DIGAMMA = (1 / 12, -1 / 120, 1 / 252, -1 / 240)  # of powers of 1 / z^2
_COTANGENT = (  # 1 / r - pi / tan(pi r), over r, by powers of r^2
    3.289868116378784, 2.164653778076172, 2.034174919128418, 2.0216481685638428, 1.8301292657852173, 3.153783082962036,
    -2.0498147010803223, 8.45264720916748,
)  # fmt: skip


def _pairs(x: Scalar) -> tuple[Scalar, Scalar, Scalar]:
    """x (x + 5), (x + 1) (x + 4), (x + 2) (x + 3)."""
    a = mul(x, plus(x, 5))
    return a, plus(a, 4), plus(a, 6)


def digamma(x: Scalar) -> Scalar:
    """Of negative numbers by reflection, of those below 6 by recurrence from six higher, there by the asymptotic series."""
    negative = _is(x, "lt", 0)
    y = where(negative, sub(lit(x, 1), x), x)
    low = _is(y, "lt", 6)
    z = where(low, plus(y, 6), y)
    inverse = reciprocal(z)
    w = square(inverse)
    far = sub(sub(apply("log", z), times(inverse, 0.5)), mul(w, polynomial(w, _DIGAMMA)))
    a, b, c = _pairs(y)
    bc = mul(b, c)
    slope = mul(plus(times(y, 2), 5), add(bc, mul(a, add(b, c))))
    positive = where(low, sub(far, apply("div", slope, mul(a, bc))), far)
    r = sub(x, apply("round", x))
    t = square(r)
    reflected = add(sub(positive, reciprocal(r)), mul(r, polynomial(t, _COTANGENT)))
    pole = where(apply("bit_and", negative, _is(r, "eq", 0)), lit(x, math.nan), where(negative, reflected, positive))
    result = where(apply("isinf", x), where(negative, lit(x, math.nan), x), pole)
    return where(_is(x, "eq", 0), apply("copysign", lit(x, math.inf), apply("neg", x)), result)


def trigamma(x: Scalar) -> Scalar:
    """The derivative of `digamma`: six terms of its series, and an asymptotic series for the rest; by reflection below 1/2."""
    low = _is(x, "lt", 0.5)
    y = where(low, sub(lit(x, 1), x), x)
    total = lit(x, 0)
    for k in range(6):
        total = add(total, reciprocal(square(plus(y, k) if k else y)))
    z = plus(y, 6)
    w = reciprocal(square(z))
    tail = polynomial(w, (1 / 6, -1 / 30, 1 / 42))
    near = add(total, apply("div", add(plus(reciprocal(times(z, 2)), 1), mul(w, tail)), z))
    sine = apply("sin", times(x, math.pi))
    return where(low, sub(apply("div", lit(x, math.pi**2), square(sine)), near), near)


# -- products with logarithms -----------------------------------------------------------------------------------------


def xlogy(x: Scalar, y: Scalar) -> Scalar:
    product = where(_is(x, "eq", 0), lit(x, 0), mul(x, apply("log", y)))
    return where(apply("isnan", y), y, product)


def xlog1py(x: Scalar, y: Scalar) -> Scalar:
    product = where(_is(x, "eq", 0), lit(x, 0), mul(x, apply("log1p", y)))
    return where(apply("isnan", y), y, product)


def entr(x: Scalar) -> Scalar:
    inside = where(_is(x, "eq", 0), lit(x, 0), lit(x, -math.inf))
    product = mul(apply("neg", x), apply("log", x))
    return where(apply("isnan", x), x, where(_is(x, "gt", 0), product, inside))


def _log_of_sum(op: str, scale: float) -> Callable[[Scalar, Scalar], Scalar]:
    """log(exp(a) + exp(b)), in another base if `op` is its exponential and `scale` its logarithm's inverse."""

    def formula(a: Scalar, b: Scalar) -> Scalar:
        far = apply("neg", apply("abs", sub(a, b)))
        more = apply("log1p", apply(op, far))
        total = add(apply("maximum", a, b), more if scale == 1 else times(more, scale))
        same = apply("bit_and", apply("isinf", a), apply("eq", a, b))
        return where(same, a, total)

    return formula


def sinc(x: Scalar) -> Scalar:
    scaled = times(x, math.pi)
    return where(_is(x, "eq", 0), lit(x, 1), apply("div", apply("sin", scaled), scaled))


def ldexp(x: Scalar, exponent: Scalar) -> Scalar:
    return mul(x, apply("exp2", exponent))


# -- signs and steps --------------------------------------------------------------------------------------------------


def heaviside(x: Scalar, at_zero: Scalar) -> Scalar:
    return where(apply("eq", x, lit(x, 0)), at_zero, cast(apply("gt", x, lit(x, 0)), x.dtype))


def _sign_bit(low: Lowering, out: torch.Tensor, x: Tensor) -> Tensor:
    if x.dtype is torch.bool:
        raise Unsupported("truth values")
    return elements(low, out, (x,), opmath(x.dtype), lambda a: apply("signbit", a))


def _is_infinity(infinity: float) -> Callable[..., Tensor]:
    def rule(low: Lowering, out: torch.Tensor, x: Tensor) -> Tensor:
        if not x.dtype.is_floating_point:
            return elements(low, out, (), torch.bool, lambda: const(False, torch.bool))
        return elements(low, out, (x,), opmath(x.dtype), lambda a: _is(a, "eq", infinity))

    return rule


# -- shifts of bits ---------------------------------------------------------------------------------------------------


def _shifted(op: str) -> Callable[..., Tensor]:
    """By fewer bits than there are as the processor shifts; else nothing is left, or the sign alone."""

    def rule(low: Lowering, out: torch.Tensor, x: Any, amount: Any) -> Tensor:
        if out.dtype not in _SHIFTED:
            raise Unsupported(f"a shift of {out.dtype}")
        most = torch.iinfo(out.dtype).bits - 1

        def formula(a: Scalar, by: Scalar) -> Scalar:
            if isinstance(amount, int) and 0 <= amount <= most:
                return apply(op, a, by)
            inside = apply("bit_and", _is(by, "ge", 0), _is(by, "le", most))
            if op == "shift_right" and out.dtype.is_signed:
                return apply(op, a, where(inside, by, lit(by, most)))
            return where(inside, apply(op, a, where(inside, by, lit(by, 0))), lit(a, 0))

        return elements(low, out, (x, amount), out.dtype, formula, 2)

    return rule


_SHIFTED = frozenset((torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64))


# -- activations ------------------------------------------------------------------------------------------------------


def _celu(x: Scalar, alpha: float = 1) -> Scalar:
    return elu(x, alpha, 1, 1 / alpha)


def hardshrink(x: Scalar, limit: Scalar) -> Scalar:
    within = apply("bit_and", apply("ge", x, apply("neg", limit)), apply("le", x, limit))
    return where(within, lit(x, 0), x)


def softshrink(x: Scalar, limit: float = 0.5) -> Scalar:
    inside = where(apply("isnan", x), x, lit(x, 0))
    return where(_is(x, "gt", limit), plus(x, -limit), where(_is(x, "lt", -limit), plus(x, limit), inside))


def shrink_backward(grad: Scalar, x: Scalar, limit: Scalar) -> Scalar:
    outside = apply("bit_or", apply("gt", x, limit), apply("lt", x, apply("neg", limit)))
    return where(outside, grad, lit(x, 0))  # 0 where x is NaN, as on eager's vectors


def logit_backward(grad: Scalar, x: Scalar, eps: float | None = None) -> Scalar:
    slope = apply("div", grad, mul(x, sub(lit(x, 1), x)))
    unlimited = where(_outside(x, 0.0, 1.0), lit(x, math.nan), slope)
    if eps is None:
        return unlimited
    limited = where(_outside(x, eps, 1 - eps), lit(x, 0.0), slope)
    return where(apply("lt", lit(x, eps), lit(x, 0)), unlimited, limited)


def _outside(x: Scalar, least: float, most: float) -> Scalar:
    return apply("bit_or", _is(x, "lt", least), _is(x, "gt", most))


def _halves(low: Lowering, x: Tensor, dim: int) -> tuple[int, Any]:
    d = dim_of(dim, len(x.shape))
    return d, x.shape[d] // 2


def _glu(low: Lowering, out: torch.Tensor, x: Tensor, dim: int = -1) -> Tensor:
    d, half = _halves(low, x, dim)
    if x.view is None:
        x.uses = max(x.uses, 2)

    def at(index: Index) -> Scalar:
        gate = x.math_at([e + half if k == d else e for k, e in enumerate(index)])
        return mul(x.math_at(index), apply("sigmoid", gate))

    return low.pointwise(out.dtype, low.shape_of(out), at, 18)


def _glu_backward(low: Lowering, out: torch.Tensor, grad: Tensor, x: Tensor, dim: int) -> Tensor:
    d, half = _halves(low, x, dim)
    for t in (grad, x):
        if t.view is None:
            t.uses = max(t.uses, 2)

    def at(index: Index) -> Scalar:
        other = [e - half if k == d else e for k, e in enumerate(index)]
        beyond = [e + half if k == d else e for k, e in enumerate(index)]
        inside = apply("lt", low.number(index[d]), low.number(half))
        first = mul(grad.math_at(index), apply("sigmoid", x.math_at(beyond)))
        gate = apply("sigmoid", x.math_at(index))
        slope = mul(sub(lit(gate, 1), gate), gate)
        second = mul(mul(slope, grad.math_at(other)), x.math_at(other))
        return where(inside, first, second)

    return low.pointwise(out.dtype, low.shape_of(out), at, 40)


# -- rows -------------------------------------------------------------------------------------------------------------


def _row(formula: Callable[..., Scalar], cost: int, tensors: int = 1) -> Callable[..., Tensor]:
    """A rule for a formula of floats: the first arguments, which may be numbers, and other numbers."""
    return only_floats(by_formula(formula, cost, tensors))


def _with_limit(formula: Callable[..., Scalar]) -> Callable[..., Tensor]:
    """The same of elements and a limit, which eager rounds to their dtype."""

    def rule(low: Lowering, out: torch.Tensor, *operands: Any) -> Tensor:
        return elements(low, out, operands, opmath(out.dtype), formula, 4, out.dtype)

    return only_floats(rule)


def _hardshrink(low: Lowering, out: torch.Tensor, x: Tensor, limit: Any = 0.5) -> Tensor:
    return _with_limit(hardshrink)(low, out, x, limit)


def _in_float32(formula: Callable[..., Scalar], cost: int) -> Callable[..., Tensor]:
    """The same without doubles, for which its series are too short."""
    rule = _row(formula, cost)

    def checked(low: Lowering, out: torch.Tensor, x: Tensor) -> Tensor:
        if opmath(out.dtype) is not torch.float32:
            raise Unsupported("doubles")
        return rule(low, out, x)

    return checked


_digamma, _trigamma = _in_float32(digamma, 70), _in_float32(trigamma, 90)


def _polygamma(low: Lowering, out: torch.Tensor, order: int, x: Tensor) -> Tensor:
    if order not in (0, 1):
        raise Unsupported("a higher order")
    return (_trigamma if order else _digamma)(low, out, x)


def _shifts(way: str) -> dict[Any, Callable[..., Tensor]]:
    named, spelled = getattr(aten, f"bitwise_{way}_shift"), getattr(aten, f"__{way[0]}shift__")
    overloads = (named.Tensor, named.Tensor_Scalar, named.Scalar_Tensor, spelled.Tensor, spelled.Scalar)
    return dict.fromkeys(overloads, _shifted(f"shift_{way}"))


RULES: dict[Any, Callable[..., Any]] = {
    aten.digamma.default: _digamma,
    aten.polygamma.default: _polygamma,
    **{getattr(aten.xlogy, kind): _row(xlogy, 18, 2) for kind in ("Tensor", "Scalar_Self", "Scalar_Other")},
    **{getattr(aten.special_xlog1py, kind): _row(xlog1py, 20, 2) for kind in ("default", "self_scalar", "other_scalar")},
    aten.special_entr.default: _row(entr, 20),
    aten.logaddexp.default: _row(_log_of_sum("exp", 1), 35, 2),
    aten.logaddexp2.default: _row(_log_of_sum("exp2", 1 / math.log(2)), 35, 2),
    aten.sinc.default: _row(sinc, 26),
    aten.ldexp.Tensor: _row(ldexp, 13, 2),
    aten.deg2rad.default: _row(lambda x: times(x, math.pi / 180), 1),
    aten.rad2deg.default: _row(lambda x: times(x, 180 / math.pi), 1),
    aten.heaviside.default: by_formula(heaviside, 3, 2),
    aten.signbit.default: _sign_bit,
    aten.isposinf.default: _is_infinity(math.inf),
    aten.isneginf.default: _is_infinity(-math.inf),
    **_shifts("left"),
    **_shifts("right"),
    aten.celu.default: _row(_celu, 18),
    aten.hardshrink.default: _hardshrink,
    aten.softshrink.default: _row(softshrink, 7),
    aten.hardshrink_backward.default: _with_limit(shrink_backward),
    aten.softshrink_backward.default: _with_limit(shrink_backward),
    aten.logit_backward.default: _row(logit_backward, 10, 2),
    aten.glu.default: _glu,
    aten.glu_backward.default: _glu_backward,
}
