"""Operations as nodes: what is neither a leaf nor a sum of products.

In:     arguments that the rules (`rules/`) have put in canonical form; `interned_atom(FloorDiv, a, b)` makes a node.
Out:    one class an operation, whose first line says how it is printed and what it means.
Holds:  `rank` tells operations apart in sorting keys and digests, the same in every process.

Import from `expr.py`, which has all names.
"""

from __future__ import annotations

from typing import ClassVar, cast

from pliant.symbolic.nodes import Apply

# -- integers -----------------------------------------------------------------------------------------------------------


class FloorDiv(Apply):
    """text: a // b      Python's floor division of integers."""

    __slots__ = ()
    rank = 3


class Mod(Apply):
    """text: a % b      Python's remainder of integers: zero, or the divisor's sign."""

    __slots__ = ()
    rank = 4


class Min(Apply):
    """text: min(a, b, ...)      integers, two or more."""

    __slots__ = ()
    rank = 5


class Max(Apply):
    """text: max(a, b, ...)      integers, two or more."""

    __slots__ = ()
    rank = 6


class Pow(Apply):
    """text: a**b      integers, b >= 0."""

    __slots__ = ()
    rank = 7


class Factored(Apply):
    """text: (a)*(b)      a product of sums too long to expand."""

    __slots__ = ()
    rank = 8


class LeftShift(Apply):
    """text: a << b      integers, b >= 0."""

    __slots__ = ()
    rank = 9


class RightShift(Apply):
    """text: a >> b      integers, b >= 0; rounds down."""

    __slots__ = ()
    rank = 10


class BitAnd(Apply):
    """text: a & b"""

    __slots__ = ()
    rank = 11


class BitOr(Apply):
    """text: a | b"""

    __slots__ = ()
    rank = 12


class BitXor(Apply):
    """text: a ^ b"""

    __slots__ = ()
    rank = 13


class ToInt(Apply):
    """text: math.trunc(x)      a float toward zero."""

    __slots__ = ()
    rank = 14


class Floor(Apply):
    """text: math.floor(x)      a float to the integer below."""

    __slots__ = ()
    rank = 15


class Ceil(Apply):
    """text: math.ceil(x)      a float to the integer above."""

    __slots__ = ()
    rank = 16


class Round(Apply):
    """text: round(x)      a float to the nearest integer, halves to even."""

    __slots__ = ()
    rank = 17


class Select(Apply):
    """text: (a if c else b)      integers."""

    __slots__ = ()
    rank = 18


# -- floats -----------------------------------------------------------------------------------------------------------


class FloatApply(Apply):
    """An operation whose value is a float, with IEEE double meaning and exactly this evaluation order."""

    __slots__ = ()
    kind = float
    rank = 30


class ToFloat(FloatApply):
    """text: float(n)      n an integer, rounded to nearest."""

    __slots__ = ()
    rank = 31


class TrueDiv(FloatApply):
    """text: a / b      floats."""

    __slots__ = ()
    rank = 32


class IntTrueDiv(FloatApply):
    """text: a / b      integers; the exact quotient rounded once, as Python does."""

    __slots__ = ()
    rank = 33


class FloatAdd(FloatApply):
    """text: a + b"""

    __slots__ = ()
    rank = 34


class FloatSub(FloatApply):
    """text: a - b"""

    __slots__ = ()
    rank = 35


class FloatMul(FloatApply):
    """text: a * b"""

    __slots__ = ()
    rank = 36


class FloatNeg(FloatApply):
    """text: -a"""

    __slots__ = ()
    rank = 37


class FloatMod(FloatApply):
    """text: a % b      Python's float remainder."""

    __slots__ = ()
    rank = 38


class FloatPow(FloatApply):
    """text: a ** b      floats, real results only."""

    __slots__ = ()
    rank = 39


class FloatMin(FloatApply):
    """text: min(a, b)      Python's: the second only if it is smaller."""

    __slots__ = ()
    rank = 40


class FloatMax(FloatApply):
    """text: max(a, b)      Python's: the second only if it is greater."""

    __slots__ = ()
    rank = 41


class FloatAbs(FloatApply):
    """text: abs(a)"""

    __slots__ = ()
    rank = 42


class RoundDigits(FloatApply):
    """text: round(x, n)      n an integer."""

    __slots__ = ()
    rank = 43


class FloatSelect(FloatApply):
    """text: (a if c else b)      floats."""

    __slots__ = ()
    rank = 44


class MathCall(FloatApply):
    """A function of `math` of one or two numbers; concrete classes below name it."""

    __slots__ = ()
    function: ClassVar[str] = ""
    arity: ClassVar[int] = 1


def _math_class(name: str, rank: int, arity: int) -> type[MathCall]:
    """A concrete `MathCall`, text `math.<name>(x)` or `math.<name>(x, y)`."""
    text = f"text: math.{name}({'x' if arity == 1 else 'x, y'})"
    fields = {"__slots__": (), "function": name, "rank": rank, "arity": arity, "__doc__": text}
    fields["__module__"] = __name__
    return cast("type[MathCall]", type(name.capitalize(), (MathCall,), fields))


_OF_ONE = """sqrt cos cosh sin sinh tan tanh asin acos atan log log2 exp log10 log1p expm1 exp2 cbrt asinh acosh atanh erf erfc
fabs gamma lgamma""".split()
_OF_TWO = "atan2 fmod copysign remainder nextafter hypot".split()
MATH_CLASSES: tuple[type[MathCall], ...] = tuple(
    _math_class(name, 100 + i, 1 if name in _OF_ONE else 2) for i, name in enumerate([*_OF_ONE, *_OF_TWO])
)
Sqrt, Cos, Cosh, Sin, Sinh, Tan, Tanh, Asin, Acos, Atan, Log, Log2, Exp = MATH_CLASSES[:13]
# Python rounds these in its own way, and C has no function that does.
PYTHON_ALONE: tuple[type[FloatApply], ...] = (
    RoundDigits,
    *(cls for cls in MATH_CLASSES if cls.function in ("gamma", "lgamma", "hypot")),
)


# -- booleans ---------------------------------------------------------------------------------------------------------


class BoolApply(Apply):
    """An operation whose value is a boolean."""

    __slots__ = ()
    kind = bool
    rank = 70


class Eq(BoolApply):
    """text: p == 0      integer p, leading coefficient positive, coefficients coprime."""

    __slots__ = ()
    rank = 71


class Ne(BoolApply):
    """text: p != 0      the negation of `Eq`."""

    __slots__ = ()
    rank = 72


class Le(BoolApply):
    """text: p <= 0      integer p, coefficients of the monomials coprime."""

    __slots__ = ()
    rank = 73


class FloatEq(BoolApply):
    """text: a == b      floats."""

    __slots__ = ()
    rank = 74


class FloatLt(BoolApply):
    """text: a < b      floats; false if one is NaN, so its negation is `Not`."""

    __slots__ = ()
    rank = 75


class FloatLe(BoolApply):
    """text: a <= b      floats."""

    __slots__ = ()
    rank = 76


class IsInteger(BoolApply):
    """text: x.is_integer()"""

    __slots__ = ()
    rank = 77


class Not(BoolApply):
    """text: not a      only around what has no negated form of its own."""

    __slots__ = ()
    rank = 78


class And(BoolApply):
    """text: a and b      two or more, sorted."""

    __slots__ = ()
    rank = 79


class Or(BoolApply):
    """text: a or b      two or more, sorted."""

    __slots__ = ()
    rank = 80


class BoolEq(BoolApply):
    """text: a == b      booleans, sorted."""

    __slots__ = ()
    rank = 81
