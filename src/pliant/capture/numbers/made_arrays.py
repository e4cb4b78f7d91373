"""Arrays and scalars of NumPy made of Python's numbers that vary.

In:     a function of NumPy and its arguments; data of an array.
Out:    the arguments with what the graph computes with; the array.
Holds:  types are those that NumPy gives: they depend on which types the numbers are of, not on the numbers.
"""

from __future__ import annotations

import collections
import sys
from typing import Any

import torch

from pliant.capture.numbers.array_memory import is_array, wrap
from pliant.capture.numbers.numpy_scalars import is_scalar, wrap_scalar
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import is_list_or_tuple, leaves, mapped
from pliant.capture.value_kinds import NUMBERS, concrete, is_class, is_int, is_symbolic, plain_class, varying
from pliant.graph.unbacked import is_unbacked

# Functions of numbers whose type does not depend on who gives these: NumPy's numbers have widths, Python's have not.
_OF_NUMBERS = frozenset(
    """sqrt exp exp2 expm1 log log2 log10 log1p sin cos tan arctan arctan2 hypot tanh abs absolute fabs square negative sign floor ceil
    rint trunc isnan isinf isfinite add subtract multiply divide true_divide power maximum minimum""".split()
)
# Functions of the numbers in a list or deque.
_OF_LISTS = frozenset("mean sum prod std var max min amax amin average any all cumsum".split())


def in_graph(t: Tracer, function: Any, args: Args) -> Args:
    """The arguments with arrays and scalars that the graph has for numbers that only running it tells."""
    if not args:
        return args
    of_list = getattr(function, "__name__", "") in _OF_LISTS
    if of_list and type(given := t.internalize(args[0])) is collections.deque:
        args = (list(given), *args[1:])
    if not is_for_graph(t, function, args, {}):
        return args
    if of_list and is_list_or_tuple(given := t.internalize(args[0])):
        made = of_varying(t, given, None)
        return args if made is None else (made, *args[1:])
    plain = NUMBERS.issuperset(map(plain_class, args)) and getattr(function, "__name__", "") in _OF_NUMBERS
    return tuple([_scalar(t, one) if plain and is_unbacked(one) else one for one in args])


def is_for_graph(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> bool:
    """Whether the graph computes with the numbers: some are known when it runs, or a list has floats that vary, as logs do."""
    if any(map(is_unbacked, leaves(args, kwargs))):
        return True
    if not args or getattr(function, "__name__", "") not in _OF_LISTS:
        return False
    return any(is_symbolic(one) and varying(one) is float for one in leaves(t.internalize(args[0])))


def _scalar(t: Tracer, number: Any) -> Any:
    dtype = _DTYPES.get(varying(number))
    return number if dtype is None else wrap_scalar(t.call(torch.tensor, (number,), {"dtype": dtype, "device": "cpu"}))


def of_varying(t: Tracer, data: Any, dtype: Any) -> Any:
    """An array of Python numbers some of which vary; None of other things, and of types that tensors do not compute with."""
    if not any(map(is_symbolic, leaves(data))):
        return None
    numbers = mapped(data, lambda one: ONES[varying(one)] if is_symbolic(one) else one)
    made = t.native(sys.modules["numpy"].array, numbers, dtype=dtype)
    if not all(_is_held(made.dtype.name, one) for one in leaves(data)):
        return None
    return wrap(t.call(torch.tensor, (data,), {"dtype": getattr(torch, made.dtype.name)}))


def that_fit(name: str, args: Any, named: Any) -> Any:
    """The arguments, with numbers that vary as they are at this call where an array's type, or the one asked for, has not got
    them: NumPy refuses such a number, or compares it as it is, and tensors cast it. To be compared, arrays are made wider."""
    if name not in _OF_VALUES:
        return args, named
    types = [kind for kind in map(_type_of, leaves(args, named)) if kind in _INTEGERS]
    first = 2 if name == "__setitem__" else 0 if name in _COMPARING else 1  # what stands before is no value
    values, named = mapped((list(args[first:]), named), lambda one: _that_fits(one, types))
    args = (*args[:first], *values)
    if name in _COMPARING and not all(_has(kind, one) for kind in types for one in args if is_int(one)):
        args = tuple([_widened(one) if is_array(one) else one for one in args])
    return args, named


def _has(kind: torch.dtype, number: Any) -> Any:
    return concrete(number >= torch.iinfo(kind).min) and concrete(number <= torch.iinfo(kind).max)


def _widened(array: Any) -> Any:
    made = array.tensor.to(torch.int64) if array.tensor.dtype in _INTEGERS else array.tensor
    return wrap_scalar(made) if is_scalar(array) else wrap(made)


def _type_of(value: Any) -> Any:
    """The type of an array, or that which an argument names."""
    if is_array(value):
        return value.tensor.dtype
    numpy = sys.modules["numpy"]
    named = isinstance(value, numpy.dtype) or is_class(value) and issubclass(value, numpy.generic)
    return getattr(torch, numpy.dtype(value).name, None) if named else None


def _that_fits(number: Any, types: list[torch.dtype]) -> Any:
    kind = varying(number) if is_symbolic(number) and not is_unbacked(number) else None
    if kind is float:
        return concrete(number) if types else number
    return number if kind is not int or all(_has(one, number) for one in types) else concrete(number)


_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_COMPARING = frozenset(
    """__lt__ __le__ __gt__ __ge__ __eq__ __ne__ less less_equal greater greater_equal equal not_equal searchsorted""".split()
)
_OF_VALUES = _COMPARING | frozenset("__setitem__ fill put full full_like copyto fill_diagonal place putmask clip".split())


def _is_held(name: str, number: Any) -> bool:
    """Whether NumPy and tensors make the same of a Python number in an array of this type, and neither complains."""
    kind = plain_class(number)
    if kind is float:
        return name == "float64" or name == "float32" and not is_symbolic(number) and abs(number) < _LARGEST
    if kind not in NUMBERS or name in _SMALL and is_unbacked(number):
        return False
    return name in ("int64", "float64", "float32", *_SMALL) or name == "bool" and kind is bool


_SMALL = ("uint8", "int8", "int16", "int32")  # numbers that they have not got are an error
_LARGEST = 1e38
ONES: dict[Any, Any] = {int: 1, float: 1.0, bool: True}
_DTYPES: dict[Any, torch.dtype] = {int: torch.int64, float: torch.float64}
