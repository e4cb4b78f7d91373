"""The scalar operators: one row each.

In:     nothing; this is a table.
Out:    `OPS[name]`: arity, kind of result, reference meaning on torch tensors, spelling in C (and in Triton).
Holds:  arguments have one common dtype (except `where`'s condition), which is never bf16 or f16: those are computed in
        f32. Integers wrap around (C code needs -fwrapv). No division of integers by zero is ever lowered to this table.
C:      a template may use an argument more than once, so arguments are printed as names or literals. `{t}` is the C
        type of the result. Names that start with `p_` are functions of the C prelude, with the suffix `f` for float.
Adding: one row here, one row in `lowering/pointwise.py`, one row in `tests/ops/samples.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from pliant.records import dataclass

Meaning = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class ScalarOp:
    """One operator.

    result: "same" (as the first argument), "bool", or "second" (as the second argument).
    `c_float`, `c_double`, `c_int`, `c_bool`: templates by the dtype of the *second* argument for `where`, else of the
    first;
    None: not defined for that kind. `c_int` serves all integer types, signed or not.
    `cost`: rough number of cycles a vector lane spends, in units of one addition.
    """

    name: str
    arity: int
    result: str
    meaning: Meaning
    c_float: str | None = None
    c_double: str | None = None
    c_int: str | None = None
    c_bool: str | None = None
    cost: int = 1

    def c_template(self, dtype: torch.dtype) -> str | None:
        """The C spelling for arguments of `dtype`."""
        if dtype is torch.float32:
            return self.c_float
        if dtype is torch.float64:
            return self.c_double
        return self.c_bool if dtype is torch.bool else self.c_int


def _same(
    name: str, text: str, meaning: Meaning, *, kinds: str = "fdi", result: str = "same", cost: int = 1
) -> ScalarOp:
    """A row whose C text is the same for all `kinds` (f, d, i, b)."""
    arity = 1 + max(int(c) for c in "0123" if "{" + c + "}" in text)
    f, d, i, b = (text if k in kinds else None for k in "fdib")
    return ScalarOp(name, arity, result, meaning, f, d, i, b, cost=cost)


def _libm(name: str, function: str, meaning: Meaning, arity: int = 1, cost: int = 20) -> ScalarOp:
    """A row that calls `function` with double, `functionf` with float."""
    args = ", ".join("{" + str(k) + "}" for k in range(arity))
    return ScalarOp(name, arity, "same", meaning, f"{function}f({args})", f"{function}({args})", cost=cost)


def _kinds(name: str, meaning: Meaning, f: str, d: str, i: str, b: str | None = None, *, cost: int = 1) -> ScalarOp:
    """A row of two arguments with a text for each kind."""
    return ScalarOp(name, 2, "same", meaning, f, d, i, b, cost=cost)


def _compare(name: str, symbol: str, meaning: Meaning) -> ScalarOp:
    return _same(name, "{0} " + symbol + " {1}", meaning, kinds="fdib", result="bool")


def _where(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.where(c, a, b)


def _truncated(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="trunc")


def _floored(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.div(a, b, rounding_mode="floor")


def _checked_index(i: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    if bool(((i < -size) | (i >= size)).any()):
        raise IndexError("index out of range in self")
    return torch.where(i < 0, i + size, i)


def _fused(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    return torch.addcmul(c.double(), a.double(), b.double()).to(c.dtype)


def _gelu_slope(x: torch.Tensor) -> torch.Tensor:
    slope: torch.Tensor = torch.special.ndtr(x) + x * torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)
    return slope


_MIN, _MAX = "({0} < {1} ? {0} : {1})", "({0} > {1} ? {0} : {1})"
# written so that compilers turn it into compare-and-blend: NaN in either argument wins
_NAN_MIN, _NAN_MAX = "({0} != {0} || {0} < {1} ? {0} : {1})", "({0} != {0} || {0} > {1} ? {0} : {1})"
_INT_FLOORDIV = "({0} / {1} - (({0} % {1} != 0) & (({0} < 0) != ({1} < 0))))"
# no choice, of which the C compiler would make a branch
_INT_REMAINDER = "({0} % {1} + ({1} & -(({0} % {1} != 0) & (({0} % {1} < 0) != ({1} < 0)))))"
_ROWS: tuple[ScalarOp, ...] = (
    # arithmetic
    _same("add", "{0} + {1}", torch.add),
    _same("sub", "{0} - {1}", torch.sub),
    _same("mul", "{0} * {1}", torch.mul),
    _same("div", "{0} / {1}", torch.true_divide, kinds="fd", cost=4),
    # a * b + c, rounded once where the processor can: for sums of products whose order is ours
    ScalarOp("fma", 3, "same", _fused, "fmaf({0}, {1}, {2})", "fma({0}, {1}, {2})"),
    # the same, in two roundings where the processor cannot
    ScalarOp("muladd", 3, "same", _fused, "p_muladdf({0}, {1}, {2})"),
    _kinds("floordiv", _floored, "p_floordivf({0}, {1})", "p_floordiv({0}, {1})", _INT_FLOORDIV, cost=10),
    _kinds("truncdiv", _truncated, "truncf({0} / {1})", "trunc({0} / {1})", "{0} / {1}", cost=8),
    _kinds("remainder", torch.remainder, "p_remainderf({0}, {1})", "p_remainder({0}, {1})", _INT_REMAINDER, cost=15),
    _kinds("fmod", torch.fmod, "p_fmodf({0}, {1})", "p_fmod({0}, {1})", "{0} % {1}", cost=20),
    _same("neg", "-{0}", torch.neg),
    ScalarOp("abs", 1, "same", torch.abs, "fabsf({0})", "fabs({0})", "({0} < 0 ? -{0} : {0})"),
    _kinds("minimum", torch.minimum, _NAN_MIN, _NAN_MIN, _MIN, "{0} & {1}"),
    _kinds("maximum", torch.maximum, _NAN_MAX, _NAN_MAX, _MAX, "{0} | {1}"),
    _kinds("fmin", torch.fmin, "fminf({0}, {1})", "fmin({0}, {1})", _MIN, "{0} & {1}"),
    _kinds("fmax", torch.fmax, "fmaxf({0}, {1})", "fmax({0}, {1})", _MAX, "{0} | {1}"),
    ScalarOp("sqrt", 1, "same", torch.sqrt, "sqrtf({0})", "sqrt({0})", cost=5),
    ScalarOp("rsqrt", 1, "same", torch.rsqrt, "1.0f / sqrtf({0})", "1.0 / sqrt({0})", cost=9),
    _libm("copysign", "copysign", torch.copysign, 2, cost=2),
    _libm("nextafter", "p_nextafter", torch.nextafter, 2, cost=8),
    # rounding
    _libm("floor", "floor", torch.floor, cost=1),
    _libm("ceil", "ceil", torch.ceil, cost=1),
    _libm("trunc", "trunc", torch.trunc, cost=1),
    _libm("round", "nearbyint", torch.round, cost=1),  # halves to even
    # exponentials and logarithms
    _libm("exp", "p_exp", torch.exp, cost=12),
    _libm("exp2", "p_exp2", torch.exp2, cost=12),
    _libm("expm1", "p_expm1", torch.expm1, cost=16),
    _libm("log", "p_log", torch.log, cost=14),
    _libm("log2", "p_log2", torch.log2, cost=14),
    _libm("log10", "p_log10", torch.log10, cost=14),
    _libm("log1p", "p_log1p", torch.log1p, cost=16),
    _libm("pow", "p_pow", torch.pow, 2, cost=40),
    _libm("sigmoid", "p_sigmoid", torch.sigmoid, cost=16),
    # trigonometric, hyperbolic
    _libm("sin", "p_sin", torch.sin),
    _libm("cos", "p_cos", torch.cos),
    _libm("tan", "p_tan", torch.tan),
    _libm("asin", "p_asin", torch.asin),
    _libm("acos", "p_acos", torch.acos),
    _libm("atan", "p_atan", torch.atan),
    _libm("atan2", "p_atan2", torch.atan2, 2),
    _libm("sinh", "sinh", torch.sinh),
    _libm("cosh", "cosh", torch.cosh),
    _libm("tanh", "p_tanh", torch.tanh, cost=16),
    _libm("asinh", "asinh", torch.asinh),
    _libm("acosh", "acosh", torch.acosh),
    _libm("atanh", "atanh", torch.atanh),
    _libm("hypot", "hypot", torch.hypot, 2, cost=10),
    # special functions
    _libm("erf", "p_erf", torch.erf, cost=20),
    # the normal distribution's part below the argument, and the derivative of the argument times it: what is small has
    # errors as what is large
    ScalarOp("normal_cdf", 1, "same", torch.special.ndtr, "p_normal_cdff({0})", cost=14),
    ScalarOp("gelu_slope", 1, "same", _gelu_slope, "p_gelu_slopef({0})", cost=16),
    # of floats, for `numerics="fast"`: an error of a few units in the last place more
    *(
        ScalarOp(f"fast_{name}", 1, "same", meaning, f"p_fast_{name}f({{0}})", cost=cost)
        for name, meaning, cost in (
            ("exp", torch.exp, 12), ("tanh", torch.tanh, 16), ("erf", torch.erf, 20), ("sigmoid", torch.sigmoid, 16),
            ("normal_cdf", torch.special.ndtr, 14),
        )
    ),
    _libm("erfc", "p_erfc", torch.erfc, cost=30),
    _libm("lgamma", "p_lgamma", torch.lgamma, cost=50),
    # comparisons: false if one is NaN, except `ne`
    _compare("eq", "==", torch.eq),
    _compare("ne", "!=", torch.ne),
    _compare("lt", "<", torch.lt),
    _compare("le", "<=", torch.le),
    _compare("gt", ">", torch.gt),
    _compare("ge", ">=", torch.ge),
    _same("isnan", "{0} != {0}", torch.isnan, kinds="fd", result="bool"),
    ScalarOp("isinf", 1, "bool", torch.isinf, "fabsf({0}) == INFINITY", "fabs({0}) == INFINITY"),
    ScalarOp("signbit", 1, "bool", torch.signbit, "signbit({0}) != 0", "signbit({0}) != 0", "{0} < 0"),
    # bits; on booleans these are the logical operators
    _same("bit_and", "{0} & {1}", torch.bitwise_and, kinds="ib"),
    _same("bit_or", "{0} | {1}", torch.bitwise_or, kinds="ib"),
    _same("bit_xor", "{0} ^ {1}", torch.bitwise_xor, kinds="ib"),
    ScalarOp("bit_not", 1, "same", torch.bitwise_not, c_int="~{0}", c_bool="!{0}"),
    _same("shift_left", "{0} << {1}", torch.bitwise_left_shift, kinds="i"),
    _same("shift_right", "{0} >> {1}", torch.bitwise_right_shift, kinds="i"),
    # choice: only the chosen argument is evaluated, so a load in the other one may be out of range
    _same("where", "({0} ? {1} : {2})", _where, kinds="fdib", result="second"),
    # conversion to the node's dtype, as C converts; to bool: != 0
    _same("cast", "({t}){0}", torch.Tensor.to, kinds="fdib"),
    # (i, size): i, plus size where i is negative; the kernel reports an index error where it is outside -size..size-1
    _same("check_index", "p_check_index({0}, {1})", _checked_index, kinds="i", cost=2),
)

OPS: dict[str, ScalarOp] = {row.name: row for row in _ROWS}
