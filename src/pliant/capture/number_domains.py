"""Where arithmetic on plain numbers raises, or leaves what expressions can say.

In:     an operation and its operands, some of them symbolic.
Out:    the operands, made concrete if Python has to do the operation itself: it then raises what it raises.
Holds:  otherwise a guard says that the operands are where the operation has a value, so that one entry never serves both.
        Of numbers that only running the graph tells it is assumed, and checked there: where it does not hold, the call
        runs eagerly and raises as it should, though the result may have no reader.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.value_kinds import SYMBOLIC_TYPES, concrete
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.unbacked import is_unbacked
from pliant.symbolic.sym_node import wrap_node

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer

_FLOATS = (float, torch.SymFloat)
_LARGE = 700.0  # exp of more is no float


def _divides_by_zero(a: Any, b: Any) -> bool:
    return bool(b == 0)


def _floors(a: Any, b: Any) -> bool:
    return isinstance(a, _FLOATS) or isinstance(b, _FLOATS) or _divides_by_zero(a, b)


def _of_no_bits(a: Any, b: Any) -> bool:
    return isinstance(a, _FLOATS) or isinstance(b, _FLOATS)


def _shifts_back(a: Any, b: Any) -> bool:
    return _of_no_bits(a, b) or bool(b < 0)


def _power(base: Any, exponent: Any) -> bool:
    if isinstance(base, _FLOATS) or isinstance(exponent, _FLOATS):
        return not (bool(base > 0) and bool(base < 1e30) and bool(exponent > -10) and bool(exponent < 10))
    return bool(exponent < 0) and bool(base == 0)


def _negative(a: Any) -> bool:
    return bool(a < 0)


def _not_positive(a: Any) -> bool:
    return bool(a <= 0)


def _not_within_one(a: Any) -> bool:
    return bool(a < -1) or bool(a > 1)


def _large(a: Any) -> bool:
    return bool(a > _LARGE) or bool(a < -_LARGE)


_OUTSIDE: dict[str, Callable[..., bool]] = {
    "/": _divides_by_zero,
    "%": _divides_by_zero,
    "//": _floors,
    "<<": _shifts_back,
    ">>": _shifts_back,
    "&": _of_no_bits,
    "|": _of_no_bits,
    "^": _of_no_bits,
    "**": _power,
    "sqrt": _negative,
    "log": _not_positive,
    "log2": _not_positive,
    "asin": _not_within_one,
    "acos": _not_within_one,
    "exp": _large,
    "cosh": _large,
    "sinh": _large,
}


def _no_zero(a: Any, b: Any) -> tuple[Any, ...]:
    return (b != 0,)


def _has_bits(a: Any, b: Any) -> tuple[Any, ...]:
    return (not _of_no_bits(a, b),)


def _not_back(a: Any, b: Any) -> tuple[Any, ...]:
    return (not _of_no_bits(a, b), b >= 0)


def _no_reciprocal_of_zero(base: Any, exponent: Any) -> tuple[Any, ...]:
    return () if isinstance(exponent, int) and exponent >= 0 else (base > 0,)


# What has to hold of numbers that only running the graph tells.
_INSIDE: dict[str, Callable[..., tuple[Any, ...]]] = {
    "/": _no_zero,
    "%": _no_zero,
    "//": _no_zero,
    "<<": _not_back,
    ">>": _not_back,
    "&": _has_bits,
    "|": _has_bits,
    "^": _has_bits,
    "**": _no_reciprocal_of_zero,
    "sqrt": lambda a: (a >= 0,),
    "log": lambda a: (a > 0,),
    "log2": lambda a: (a > 0,),
    "asin": lambda a: (a >= -1, a <= 1),
    "acos": lambda a: (a >= -1, a <= 1),
    "exp": lambda a: (a <= _LARGE,),
    "cosh": lambda a: (a >= -_LARGE, a <= _LARGE),
    "sinh": lambda a: (a >= -_LARGE, a <= _LARGE),
}


def within_domain(t: Tracer, operation: str, *operands: Any) -> tuple[Any, ...]:
    """The operands of an operator, or of a function of `math`: numbers, where they are symbolic."""
    symbolic = [v for v in operands if type(v) in SYMBOLIC_TYPES]
    if not symbolic or any(type(v) is FakeTensor for v in operands):
        return operands
    if not all(type(v) in SYMBOLIC_TYPES or isinstance(v, (int, float)) for v in operands):
        return tuple(concrete(v) if type(v) is torch.SymBool else v for v in operands)
    numbers = tuple(map(_number, operands))
    outside = _OUTSIDE.get(operation)
    if outside is None or len(numbers) > outside.__code__.co_argcount:
        return numbers
    if any(map(is_unbacked, symbolic)):
        inside = all(_holds(t, condition) for condition in _INSIDE[operation](*numbers))
        return numbers if inside else tuple(map(concrete, operands))
    return tuple(map(concrete, operands)) if outside(*numbers) else numbers


def _number(value: Any) -> Any:
    """0 or 1 for a symbolic truth: a bool is an int."""
    if type(value) is not torch.SymBool:
        return value
    number = value.node.sym_int()
    return wrap_node(number) if number.constant is None else number.constant


def _holds(t: Tracer, condition: Any) -> bool:
    if type(condition) is torch.SymBool and is_unbacked(condition):
        return t.recorder.assume(condition)
    return bool(condition)
