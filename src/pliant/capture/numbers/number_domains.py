"""Where arithmetic on plain numbers raises, or leaves what expressions can say.

In:     an operation and its operands, some of them symbolic.
Out:    the operands, made concrete if Python has to do the operation itself: it then raises what it raises.
Holds:  otherwise a guard says that the operands are where the operation has a value, so that one entry never serves both.
        Of numbers that only running the graph tells it is assumed, and checked there: where it does not hold, the call
        runs eagerly and raises as it should, though the result may have no reader.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.signatures import Tracer
from pliant.capture.value_kinds import (
    concrete,
    exactly,
    is_fixed_number,
    is_int,
    is_number,
    is_symbolic,
    plain_class,
    varying,
)
from pliant.capture.varying_values import TensorOrNumber
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.unbacked import is_unbacked
from pliant.symbolic.sym_node import wrap_node

_LARGE = 700.0  # exp of more is no float
_LARGEST = sys.float_info.max
_WHOLE = 2.0**62  # of floats beyond, and of those that are no numbers, expressions have no integer


def _of_floats(*numbers: Any) -> bool:
    return any(issubclass(plain_class(one), float) for one in numbers)


def _known_power(base: Any, exponent: Any) -> tuple[Any, ...]:
    if not _of_floats(base, exponent):
        return (bool(exponent >= 0) or base != 0,)
    if not bool(base > 0):
        return (False,)
    if not bool(base <= 1 if exponent >= 0 else base >= 1):  # where no power is more than 1, as of a decay by a count of steps
        return _growing_power(base, exponent)
    return ()


def _growing_power(base: Any, exponent: Any) -> tuple[Any, ...]:
    """That a power is a float: what varies is below that at which it is none any more."""
    if not is_symbolic(base):
        limit = _LARGE / abs(math.log(base))
        return exponent >= -limit, exponent <= limit
    if not is_symbolic(exponent):
        limit = math.exp(_LARGE / max(abs(exponent), 1.0))
        return base >= 1 / limit, base <= limit
    return base > 1e-30, base < 1e30, exponent > -10, exponent < 10


def _between(value: Any, limit: float) -> tuple[Any, ...]:
    """That a float is a number of at most this size. One made of sizes alone is."""
    if varying(value) is not float or all(s.kind is not float for s in value.node.expr.free):
        return ()
    return value >= -limit, value <= limit


def _floor_division(a: Any, b: Any) -> tuple[Any, ...]:
    if not _of_floats(a, b) or varying(b) is not float and bool(b == 0):
        return (b != 0,)
    return b != 0, *_between(a / b, _WHOLE)


# What has to hold of the operands; a function of `math` has one.
_INSIDE: dict[str, Callable[..., tuple[Any, ...]]] = {
    **dict.fromkeys(("/", "%"), lambda a, b: (b != 0,)),
    "//": _floor_division,
    **dict.fromkeys(("floor", "ceil", "trunc", "int", "round"), lambda a: _between(a, _WHOLE)),
    **dict.fromkeys(("&", "|", "^"), lambda a, b: (not _of_floats(a, b),)),
    **dict.fromkeys(("<<", ">>"), lambda a, b: (not _of_floats(a, b), b >= 0)),
    "**": lambda base, exponent: () if isinstance(exponent, int) and exponent >= 0 else (base > 0,),
    "sqrt": lambda a: (a >= 0,),
    **dict.fromkeys(("log", "log2", "log10"), lambda a: (a > 0,)),
    "log1p": lambda a: (a > -1,),
    "acosh": lambda a: (a >= 1,),
    "atanh": lambda a: (a > -1, a < 1),
    **dict.fromkeys(("sin", "cos", "tan"), lambda a: _between(a, _LARGEST)),
    **dict.fromkeys(("fmod", "remainder"), lambda a, b: (*_between(a, _LARGEST), b != 0)),
    "gamma": lambda a: (a > 0, a < 171),
    "lgamma": lambda a: (a > 0, a < 1e300),
    **dict.fromkeys(("asin", "acos"), lambda a: (a >= -1, a <= 1)),
    **dict.fromkeys(("cosh", "sinh"), lambda a: (a >= -_LARGE, a <= _LARGE)),
    **dict.fromkeys(("exp", "expm1", "exp2"), lambda a: (a <= _LARGE,)),
}
# Of numbers that are known now, more may be asked.
_INSIDE_OF_KNOWN: dict[str, Callable[..., tuple[Any, ...]]] = {
    **_INSIDE,
    "//": lambda a, b: (not _of_floats(a, b), b != 0),
    "**": _known_power,
    **dict.fromkeys(("exp", "expm1", "exp2"), _INSIDE["sinh"]),
}


def within_domain(t: Tracer, operation: str, *operands: Any) -> tuple[Any, ...]:
    """The operands of an operator, or of a function of `math`: numbers, where they are symbolic."""
    symbolic = [v for v in operands if is_symbolic(v)]
    if not symbolic or any(map(is_fake, operands)):
        return operands
    if not all(map(is_number, operands)):
        return tuple(concrete(v) if varying(v) is bool else v for v in operands)
    numbers = tuple(map(_number, operands))
    conditions = (_INSIDE if any(map(is_unbacked, symbolic)) else _INSIDE_OF_KNOWN).get(operation)
    if conditions is None or len(numbers) > conditions.__code__.co_argcount:
        return numbers
    inside = all(_holds(t, condition) for condition in conditions(*numbers))
    return numbers if inside else tuple(map(concrete, operands))


def power_of_zero(base: Any, exponent: Any) -> float | None:
    """0.0 ** exponent where the exponent varies and is more than zero, as a count of steps is; None otherwise."""
    if type(base) is not float or base != 0 or math.copysign(1.0, base) < 0:
        return None
    if not is_symbolic(exponent) or not is_number(exponent) or is_unbacked(exponent):
        return None
    return 0.0 if bool(_number(exponent) > 0) else None


def floor_quotient(a: Any, b: Any) -> Any:
    """a // b of floats that are known now, as Python and NumPy compute it: from the remainder; None where that may be another
    number, or the sign of a zero is not told."""
    if not all(map(is_number, (a, b))) or not _of_floats(a, b) or any(map(is_unbacked, (a, b))) or varying(a) is varying(b) is None:
        return None
    a, b = (1.0 * one if plain_class(one) is float else exact_float(one) for one in (a, b))
    if a is None or b is None or not bool(a != 0) or not bool(b != 0):
        return None
    if not bool(abs(b) <= _LARGEST) or not all(map(bool, _between(a / b, _EXACT_QUOTIENT))):
        return None
    return 1.0 * round((a - a % b) / b)


def is_finite(number: Any) -> bool:
    """Whether a guard says that a symbolic number, which is known now, is neither infinite nor NaN.

    Operations on finite numbers may give others: the guard compares what the expression gives at each call.
    """
    if not is_number(number) or is_unbacked(number):
        return False
    if varying(number) is float:
        return all(map(bool, _between(number, _LARGEST)))
    return varying(number) is int and bool(number >= -_WHOLE) and bool(number <= _WHOLE)


def in_range(t: Tracer, numbers: range, item: Any) -> bool:
    """`item in range(...)`: of a size guards say where it lies, not what it is."""
    if varying(item) is not int or is_unbacked(item):
        return bool(t.native(operator.contains, numbers, concrete(item)))
    if not numbers or not bool(item >= min(numbers[0], numbers[-1])) or not bool(item <= max(numbers[0], numbers[-1])):
        return False
    return bool((item - numbers.start) % abs(numbers.step) == 0)


def exact_float(number: Any) -> Any:
    """An integer as a float, if it is one that is known and none is lost."""
    return float(number) if is_int(number) and abs(number) <= 2**53 else None


_EXACT_QUOTIENT = 2.0**50


def _number(value: Any) -> Any:
    """0 or 1 for a symbolic truth: a bool is an int."""
    if varying(value) is not bool:
        return value
    number = value.node.sym_int()
    return wrap_node(number) if number.constant is None else number.constant


def _holds(t: Tracer, condition: Any) -> bool:
    return t.recorder.assume(condition) if is_unbacked(condition) else bool(condition)


def _of_as_many_bits(number: Any) -> Any:
    """A number with the bits of this one, under a guard on how many these are."""
    if varying(number) is not int:
        return concrete(number)
    bits = number.node.require_hint().bit_length()
    return 2**bits - 1 if concrete(number >= 2**bits >> 1) and concrete(number < 2**bits) else concrete(number)


def _as_whole(number: Any) -> Any:
    """A float that is an integer where this one is."""
    return float(concrete(number % 1.0 == 0.0)) or 0.5 if varying(number) is float else concrete(number)


# Methods whose answer is that of other numbers, too.
LIKE_OTHERS = {"bit_length": _of_as_many_bits, "is_integer": _as_whole}
# Attributes that follow from the number, whichever it is.
KINDS = (int, float, bool)
PARTS: dict[tuple[Any, str], Callable[[Any], Any]] = {
    **dict.fromkeys(((int, "real"), (float, "real"), (int, "numerator")), lambda number: number),
    (int, "imag"): lambda _: 0,
    (float, "imag"): lambda _: 0.0,
    (int, "denominator"): lambda _: 1,
}


# ---- an item at a place that varies
_FEW = 16  # each is a question more for every call


def float_at(items: Any, place: Any) -> Any:
    """The item of a few floats at a place that varies: one of them, whichever the call says. None elsewhere. Of integers and
    other things the place is fixed: they are sizes, or decide something."""
    if varying(place) is not int or is_unbacked(place) or not are_few_floats(items):
        return None
    place = place if concrete(place >= 0) else place + len(items)
    if not concrete(place >= 0) or not concrete(place < len(items)):
        return None
    node = place.node
    found = node.wrap_float(items[-1])
    for k in reversed(range(len(items) - 1)):
        found = node.eq(node.wrap_int(k)).sym_ite(node.wrap_float(items[k]), found)
    return wrap_node(found) if found.constant is None else found.constant


def are_few_floats(items: Any) -> bool:
    return 1 < len(items) <= _FEW and all(map(_is_plain_float, items))


_is_float = exactly(float)


def _is_plain_float(item: Any) -> bool:
    """One that expressions tell from others: zeros of both signs are equal there."""
    return _is_float(item) and math.isfinite(item) and (item != 0.0 or math.copysign(1.0, item) > 0)


# ---- a tensor or a number
_PRECISE = (torch.float32, torch.float64)
_NUMBERS_OF: dict[torch.dtype, type] = {**dict.fromkeys(_PRECISE, float), torch.int64: int}
_ALIKE = frozenset(("+", "-", "*", "+=", "-=", "*="))


def settled_operands(symbol: str, left: Any, right: Any) -> tuple[Any, Any]:
    """What an operator is applied to beside what a branch on data gives as a tensor or as a number (`min(tensor, 2.0)`): the
    tensor of one element that `torch.where` took of both, where it is added to, subtracted from, multiplied with or divides a
    larger one. Then nobody can tell them apart: of one type, without a history, a number is rounded there as in the tensor; an
    integer is, where the other one is of floats, of which it makes no other dtype. Everything else settles it."""
    if _is_alike(left, right) and symbol in (*_ALIKE, "/", "/="):
        return left, right.tensor
    if _is_alike(right, left) and symbol in _ALIKE and not symbol.endswith("="):
        return left.tensor, right
    return concrete(left), concrete(right)


def _is_alike(tensor: Any, other: Any) -> bool:
    """Whether the tensor is computed with a number as with the other as a tensor."""
    if type(other) is not TensorOrNumber or not is_fake(tensor) or tensor.subclass_ is not None:
        return False
    rank = other.tensor.dim()
    if other.tensor.dtype_ is torch.int64 and tensor.dtype_ in _PRECISE:
        return tensor.dim() >= rank
    return tensor.dtype_ is other.tensor.dtype_ and tensor.dim() >= max(1, rank)


def may_be_number(tensor: FakeTensor, number: Any) -> bool:
    """Whether there are operators that compute the same with the tensor as with a number in its place."""
    kind = _NUMBERS_OF.get(tensor.dtype_)
    return type(number) is kind or kind is float and is_fixed_number(number)
