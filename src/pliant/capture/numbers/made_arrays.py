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

from pliant.capture.numbers.array_memory import wrap
from pliant.capture.numbers.numpy_scalars import wrap_scalar
from pliant.capture.signatures import Args, Tracer
from pliant.capture.structures import is_list_or_tuple, leaves, mapped
from pliant.capture.value_kinds import NUMBERS, is_symbolic, plain_class, varying
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
    if not any(map(is_unbacked, leaves(args))):
        return args
    if of_list and is_list_or_tuple(given := t.internalize(args[0])):
        made = of_varying(t, given, None)
        return args if made is None else (made, *args[1:])
    plain = NUMBERS.issuperset(map(plain_class, args)) and getattr(function, "__name__", "") in _OF_NUMBERS
    return tuple([_scalar(t, one) if plain and is_unbacked(one) else one for one in args])


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
