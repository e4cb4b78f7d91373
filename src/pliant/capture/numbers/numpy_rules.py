"""Where PyTorch's functions on arrays compute otherwise than NumPy's of the same name.

In:     the function for tensors, and NumPy's own.
Out:    `corrected(function, real)`: what is called in its place; it breaks the graph where tensors have no such function.
        `interp`, a function of arrays that PyTorch has not got. `check_bits(name, expected)`: which have the same bits.
Holds:  one row a name; results are NumPy's in value, sign of zeros and NaN included.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from pliant import config
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.numbers.array_memory import dtype_of, wrap
from pliant.capture.structures import is_list_or_tuple, leaves
from pliant.capture.value_kinds import concrete, is_int, plain_class, varying
from pliant.records import dataclass
from pliant.torch_adapter import numpy_on_tensors

Function = Callable[..., Any]
Rule = Callable[..., Any]


def corrected(function: Function, real: Any) -> Function:
    """The function for tensors as NumPy's own, `real`, computes; most are themselves."""
    name = getattr(real, "__name__", "")
    rule = _RULES.get(name)
    return function if rule is None else functools.partial(rule, _Named(function, name))


# Names of NumPy, of methods and operators too, whose floats have PyTorch's bits: elements that are moved or chosen,
_MOVES = frozenset(
    """getitem item array asarray asanyarray ascontiguousarray copy astype reshape ravel flatten transpose T swapaxes moveaxis
    rollaxis squeeze expand_dims atleast_1d atleast_2d atleast_3d broadcast_to broadcast_arrays concatenate stack vstack
    hstack dstack column_stack row_stack split array_split hsplit vsplit dsplit tile repeat roll flip fliplr flipud rot90
    take take_along_axis diagonal diag diagflat tril triu where real imag conj conjugate zeros ones empty full zeros_like
    ones_like empty_like full_like eye identity fill tolist pos positive""".split()
)
# and what is rounded once, to the nearest number.
_ROUNDED_ONCE = frozenset(
    """add sub subtract mul multiply truediv divide true_divide neg negative abs absolute fabs sign square reciprocal floor
    ceil trunc rint""".split()
)


def check_bits(name: str, expected: Any) -> None:
    """Break where results are to be eager's bit for bit, and NumPy may round otherwise than PyTorch (sums are in pairs there,
    functions its own). `expected`: what NumPy's own gives for arrays of these kinds."""
    kinds = {plain_kind(one) for one in leaves(expected)} & {"f", "c"}
    if not kinds or not config.get().bitwise:
        return
    plain = name.strip("_")
    names = {plain, plain[1:]} if name.startswith(("__i", "__r")) else {plain}
    if names.isdisjoint(_MOVES | _ROUNDED_ONCE if kinds == {"f"} else _MOVES):
        raise GraphBreak("unknown-call", f"numpy.{name}, whose bits may be other ones for tensors")


def plain_kind(value: Any) -> str:
    """ "f", "c", "i"... of what has a dtype of NumPy's, or is a number."""
    return "f" if type(value) is float else getattr(getattr(value, "dtype", None), "kind", "")


@dataclass(frozen=True, slots=True, eq=False)
class _Named:
    """A function for tensors under NumPy's name."""

    function: Function
    name: str

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def _kind(value: Any) -> str:
    """ "f", "i", "u", "b" or "c", of an array or a number."""
    if hasattr(value, "tensor"):
        return str(dtype_of(value).kind)
    return {bool: "b", int: "i", float: "f", complex: "c"}.get(type(value), "?")


def _refuse(function: _Named, *args: Any, **kwargs: Any) -> Any:
    raise GraphBreak("unknown-call", f"numpy.{function.name}, which tensors do not compute in this way")


def _refuse_floats(function: _Named, *args: Any, **kwargs: Any) -> Any:
    """NaN, or the sign of a zero, would go another way."""
    if "f" in map(_kind, args):
        _refuse(function)
    return function(*args, **kwargs)


def _sign(function: _Named, x: Any, *args: Any, **kwargs: Any) -> Any:
    """NaN has itself for a sign."""
    found = function(x, *args, **kwargs)
    if args or kwargs or _kind(x) != "f" or not hasattr(x, "tensor"):
        return found
    return type(found)(torch.where(x.tensor.isnan(), x.tensor, found.tensor))


def _clip(function: _Named, x: Any, *bounds: Any, **named: Any) -> Any:
    """Bounds that the array's type does not have are as good as its first or last number."""
    if _kind(x) not in "iu" or not hasattr(x, "tensor"):
        return function(x, *bounds, **named)
    info = torch.iinfo(x.tensor.dtype)
    lower = {"min", "a_min"}
    given = [*zip(("min", "max"), bounds), *named.items()]
    for name, bound in given:
        if is_int(bound) and (bound > info.max if name in lower else bound < info.min):
            _refuse(function)

    def inside(bound: Any) -> Any:
        return max(info.min, min(info.max, bound)) if is_int(bound) else bound

    return function(x, *map(inside, bounds), **{name: inside(bound) for name, bound in named.items()})


def _round(function: _Named, x: Any, decimals: Any = 0, **kwargs: Any) -> Any:
    if _kind(x) in "iu" and decimals != 0:  # tensors of integers stay as they are
        _refuse(function)
    return function(x, decimals, **kwargs)


def _power(function: _Named, base: Any, exponent: Any, *args: Any, **kwargs: Any) -> Any:
    """NumPy refuses negative powers of integers, takes 0.5 for a square root, and no other power for another function; squares of
    booleans are of another type than their other powers."""
    signed = _kind(exponent) == "i" or varying(exponent) is int
    if _kind(base) in "iub" and signed and (hasattr(exponent, "tensor") or not concrete(exponent >= 0)):
        _refuse(function)
    if _kind(base) == "b" and varying(exponent) is int:
        concrete(exponent == 2)  # under a guard
    if _kind(base) == "f" and plain_class(exponent) is float and concrete(abs(exponent) == 0.5):
        if args or kwargs or function.name == "__ipow__":
            _refuse(function)
        if concrete(exponent > 0):
            return numpy_on_tensors().sqrt(base)
        return function(base, numpy_on_tensors().full_like(base, -0.5))
    return function(base, exponent, *args, **kwargs)


def _reflected_power(function: _Named, exponent: Any, base: Any) -> Any:
    return _power(_Named(lambda base, exponent: function(exponent, base), function.name), base, exponent)


def _remainder(function: _Named, *args: Any, **kwargs: Any) -> Any:
    """A remainder of nothing has the divisor's sign; a tensor's has the dividend's."""
    if "f" not in map(_kind, args[:2]):
        return function(*args, **kwargs)
    if len(args) != 2 or kwargs or function.name == "__imod__":
        _refuse(function)
    divisor = args[0 if function.name == "__rmod__" else 1]
    found = function(*args)
    zeros = torch.copysign(torch.zeros_like(found.tensor), divisor.tensor if hasattr(divisor, "tensor") else divisor)
    return type(found)(torch.where(found.tensor == 0, zeros, found.tensor))


def _cumsum(function: _Named, x: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """It starts from the first number, where tensors start from zero: sums of negative zeros are such."""
    found = function(x, axis, dtype, out)
    if _kind(x) != "f" or not hasattr(x, "tensor") or not found.tensor.is_floating_point():
        return found
    if out is not None:
        _refuse(function)
    given = x.tensor.flatten() if axis is None else x.tensor
    is_other = (given != 0) | ~given.signbit()
    others = is_other.to(torch.int64).cumsum(0 if axis is None else concrete(axis))
    return type(found)(torch.where(others == 0, given.to(found.tensor.dtype), found.tensor))


# ---- functions to which numbers that vary are given, which the functions for tensors would fix
def _linspace(function: _Named, start: Any, stop: Any, num: Any = 50, **kwargs: Any) -> Any:
    """As NumPy computes it: steps from the start, and the end as it was given."""
    if kwargs or {type(start), type(stop)} - {int, float} or varying(num) is not int or not concrete(num > 1):
        return function(start, stop, num, **kwargs)
    place = torch.arange(num, dtype=torch.float64)
    return wrap(torch.where(place == num - 1, float(stop), place * ((stop - start) / (num - 1)) + start))


def _tile(function: _Named, array: Any, reps: Any) -> Any:
    counts = reps if is_list_or_tuple(reps) else (reps,)
    if not hasattr(array, "tensor") or any(plain_class(count) is not int for count in counts):
        return function(array, reps)
    return wrap(array.tensor.tile(tuple(counts)))


def _pad(function: _Named, array: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Any:
    value = kwargs.get("constant_values", 0)
    widths = _widths(pad_width, array.ndim) if hasattr(array, "tensor") else None
    if widths is None or mode != "constant" or _kind(value) not in "if" or _kind(array) not in "iuf":
        return function(array, pad_width, mode, **kwargs)
    if not all(concrete(width >= 0) for width in widths):
        _refuse(function)
    value = float(value) if _kind(array) == "f" else int(value)
    return wrap(torch.nn.functional.pad(array.tensor, widths, value=value))


def _widths(given: Any, dims: int) -> tuple[Any, ...] | None:
    """How much is put before and behind each dimension, from the last to the first; None for a form that is not known."""
    pairs = given if is_list_or_tuple(given) else (given,)
    if all(plain_class(width) is int for width in pairs):
        pairs = (pairs,)
    pairs = [tuple(pair) * (2 // len(pair)) for pair in pairs if is_list_or_tuple(pair) and len(pair) in (1, 2)]
    pairs = pairs * dims if len(pairs) == 1 else pairs
    widths = tuple([width for pair in reversed(pairs) for width in pair])
    return widths if len(widths) == 2 * dims and all(plain_class(width) is int for width in widths) else None


def interp(x: Any, xp: Any, fp: Any) -> Any:
    """np.interp, which tensors do not have."""
    arrays = numpy_on_tensors()
    at, places, values = (arrays.asarray(one, dtype=arrays.float64).tensor for one in (x, xp, fp))
    last = places.shape[0] - 1
    if concrete(last < 1):
        return wrap(torch.zeros_like(at) + values[0])
    left = (torch.searchsorted(places, at.contiguous(), right=True) - 1).clamp(0, last - 1)
    right = left + 1
    slope = (values[right] - values[left]) / (places[right] - places[left])
    found = slope * (at - places[left]) + values[left]
    found = torch.where(found.isnan(), slope * (at - places[right]) + values[right], found)
    found = torch.where(found.isnan() & (values[left] == values[right]), values[left], found)
    found = torch.where(at == places[left], values[left], found)
    found = torch.where(at >= places[-1], values[-1], torch.where(at < places[0], values[0], found))
    return wrap(torch.where(at.isnan(), at, found))


_RULES: dict[str, Rule] = {
    "linspace": _linspace,
    "tile": _tile,
    "pad": _pad,
    "cumsum": _cumsum,
    **dict.fromkeys(("cbrt", "modf"), _refuse),
    **dict.fromkeys(("searchsorted", "unique", "divmod", "__divmod__", "__rdivmod__"), _refuse_floats),
    "fix": lambda function, x, *args, **kwargs: numpy_on_tensors().trunc(x, *args, **kwargs),
    "sign": _sign,
    "clip": _clip,
    **dict.fromkeys(("round", "around", "round_"), _round),
    **dict.fromkeys(("power", "__pow__", "__ipow__"), _power),
    "__rpow__": _reflected_power,
    **dict.fromkeys(("remainder", "__mod__", "__rmod__", "__imod__"), _remainder),
}
