"""Float arithmetic and conversions: constants are folded with Python's own operations, nothing is reordered.

Mixed arguments are converted as Python does (a boolean to 0 or 1, an integer to the nearest float).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from pliant.symbolic.nodes import (
    FALSE,
    ONE,
    TRUE,
    ZERO,
    Apply,
    Constant,
    Expr,
    Float,
    Integer,
    interned_atom,
    lit,
)
from pliant.symbolic.operations import (
    MATH_CLASSES,
    Ceil,
    FloatAbs,
    FloatAdd,
    FloatApply,
    FloatMax,
    FloatMin,
    FloatMod,
    FloatMul,
    FloatNeg,
    FloatPow,
    FloatSub,
    Floor,
    IntTrueDiv,
    IsInteger,
    Round,
    RoundDigits,
    Select,
    ToFloat,
    ToInt,
    TrueDiv,
)

MATH = {cls.function: cls for cls in MATH_CLASSES}


def add(a: Expr, b: Expr) -> Expr:
    return _arithmetic(FloatAdd, a, b, lambda x, y: x + y)


def sub(a: Expr, b: Expr) -> Expr:
    return _arithmetic(FloatSub, a, b, lambda x, y: x - y)


def mul(a: Expr, b: Expr) -> Expr:
    return _arithmetic(FloatMul, a, b, lambda x, y: x * y)


def floordiv(a: Expr, b: Expr) -> Expr:
    """`a // b` with a float in it: the floor of the quotient, as a float (as `torch.SymFloat` defines it)."""
    if float not in (a.kind, b.kind):
        return to_int(a) // to_int(b)
    return to_float(floor(truediv(a, b)))


def mod(a: Expr, b: Expr) -> Expr:
    return _arithmetic(FloatMod, a, b, lambda x, y: x % y)


def power(a: Expr, b: Expr) -> Expr:
    """`a ** b` of floats."""
    a, b = to_float(a), to_float(b)
    if isinstance(a, Float) and isinstance(b, Float):
        value = a.value**b.value
        if isinstance(value, float):  # a negative base can give a complex number
            return Float(value)
    return interned_atom(FloatPow, a, b)


def neg(a: Expr) -> Expr:
    if a.kind is bool:
        return -to_int(a)
    return Float(-a.value) if isinstance(a, Float) else interned_atom(FloatNeg, a)


def absolute(a: Expr) -> Expr:
    return Float(abs(a.value)) if isinstance(a, Float) else interned_atom(FloatAbs, a)


def minimum(a: Expr, b: Expr) -> Expr:
    """`min(a, b)` of floats, in Python's order of comparison."""
    a, b = to_float(a), to_float(b)
    if isinstance(a, Float) and isinstance(b, Float):
        return Float(min(a.value, b.value))
    # min(x, x) = x
    return a if a is b else interned_atom(FloatMin, a, b)


def maximum(a: Expr, b: Expr) -> Expr:
    """`max(a, b)` of floats, in Python's order of comparison."""
    a, b = to_float(a), to_float(b)
    if isinstance(a, Float) and isinstance(b, Float):
        return Float(max(a.value, b.value))
    # max(x, x) = x
    return a if a is b else interned_atom(FloatMax, a, b)


def truediv(a: Expr, b: Expr) -> Expr:
    """`a / b`: of two integers the exact quotient rounded once, otherwise a division of floats."""
    if float in (a.kind, b.kind):
        a, b = to_float(a), to_float(b)
        if isinstance(a, Float) and isinstance(b, Float) and b.value != 0.0:
            return Float(a.value / b.value)
        return interned_atom(TrueDiv, a, b)
    a, b = to_int(a), to_int(b)
    if not a.terms and not b.terms and b is not ZERO:
        return Float(a.const / b.const)
    return interned_atom(IntTrueDiv, a, b)


def to_float(a: Expr) -> Expr:
    """`float(a)`."""
    if a.kind is float:
        return a
    if isinstance(a, Constant):
        return Float(float(a.value))
    return interned_atom(ToFloat, to_int(a))


def to_int(a: Expr) -> Expr:
    """`int(a)`: a boolean as 0 or 1, a float toward zero."""
    if a.kind is int:
        return a
    if a.kind is bool:
        return Integer(int(a.value)) if isinstance(a, Constant) else interned_atom(Select, a, ONE, ZERO)
    return _rounding(ToInt, a, math.trunc)


def floor(a: Expr) -> Expr:
    return a if a.kind is int else _rounding(Floor, a, math.floor)


def ceil(a: Expr) -> Expr:
    return a if a.kind is int else _rounding(Ceil, a, math.ceil)


def round_to_int(a: Expr) -> Expr:
    return a if a.kind is int else _rounding(Round, a, round)


def round_digits(a: Expr, digits: Expr) -> Expr:
    if isinstance(a, Float) and isinstance(digits, Integer):
        return Float(round(a.value, digits.value))
    return interned_atom(RoundDigits, to_float(a), digits)


def is_integer(a: Expr) -> Expr:
    """`a.is_integer()`."""
    if a.kind is not float:
        return TRUE
    if isinstance(a, Float):
        return TRUE if a.value.is_integer() else FALSE
    return interned_atom(IsInteger, a)


def math_call(name: str, *args: Expr) -> Expr:
    """`math.<name>(*args)`."""
    args = tuple(map(to_float, args))
    if all(isinstance(a, Float) for a in args):
        return lit(cast(float, getattr(math, name)(*[cast(Float, a).value for a in args])))
    return interned_atom(MATH[name], *args)


def _rounding(cls: type[Apply], a: Expr, function: Callable[[float], int]) -> Expr:
    if isinstance(a, Float) and math.isfinite(a.value):
        return Integer(function(a.value))
    return interned_atom(cls, a)


def _arithmetic(cls: type[FloatApply], a: Expr, b: Expr, function: Callable[[float, float], float]) -> Expr:
    """A float operation; without a float among its arguments the integer one (an argument is a boolean)."""
    if float not in (a.kind, b.kind):
        return _integer_operation(cls, to_int(a), to_int(b))
    a, b = to_float(a), to_float(b)
    if isinstance(a, Float) and isinstance(b, Float) and not (cls is FloatMod and b.value == 0.0):
        return Float(function(a.value, b.value))
    return interned_atom(cls, a, b)


def _integer_operation(cls: type[FloatApply], a: Expr, b: Expr) -> Expr:
    """The integer operation that corresponds to a float one."""
    table: dict[type[FloatApply], Callable[[Expr, Expr], Expr]] = {
        FloatAdd: lambda x, y: x + y,
        FloatSub: lambda x, y: x - y,
        FloatMul: lambda x, y: x * y,
        FloatMod: lambda x, y: x % y,
    }
    return table[cls](a, b)
