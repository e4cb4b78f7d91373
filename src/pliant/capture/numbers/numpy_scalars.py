"""Scalars of NumPy that vary from call to call: tensors without dimensions, beside the number that each of them is.

In:     a scalar from outside whose value has changed, or operands of which some are such scalars.
Out:    a `Scalar` (`arrays`), which computes in the graph as NumPy does and leaves the trace as NumPy's scalar. Its `number`,
        if it has one, is a symbolic number of exactly that value: branches, sizes and indexes are made of it, under guards.
Holds:  operations that Python's numbers or tensors do otherwise (overflow, division by zero, powers) are done by NumPy, on
        values that guards fix.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.numbers.number_domains import exact_float, floor_quotient, is_finite
from pliant.capture.signatures import Args, Kwargs, Tracer, World
from pliant.capture.value_kinds import (
    NUMBERS,
    concrete,
    is_bound,
    is_fixed_number,
    is_int,
    is_numpy_scalar,
    is_slice,
    is_symbolic,
    plain_class,
    varying,
)
from pliant.graph.unbacked import is_unbacked
from pliant.guards.kinds import Kind
from pliant.guards.sources import MethodSource, ScalarTensorSource, Source
from pliant.torch_adapter import DisableTorchFunction, below_python_dispatch, numpy_on_tensors
from pliant.unpatched import BUILTINS

abs, max, min, round, sum = map(vars(BUILTINS).get, ("abs", "max", "min", "round", "sum"))
_FOLLOWED = frozenset(("int64", "int32", "int16", "int8", "uint8", "float64", "float32", "float16"))


def scalar_class() -> Any:
    """The class of arrays without dimensions that NumPy gives as scalars."""
    if not _CLASS:
        members = {"number": None, "__hash__": _hash_of_the_number, "__module__": __name__}
        _CLASS.append(type("Scalar", (numpy_on_tensors().ndarray,), members))
    return _CLASS[0]


def _hash_of_the_number(scalar: Any) -> int:
    """It has one, by which code tells immutable values from others, and which only its number can give."""
    raise TypeError("unhashable type: 'Scalar'")


_CLASS: list[Any] = []


def is_scalar(value: Any) -> bool:
    """Whether it is one that is computed."""
    return type(value) is (_CLASS[0] if _CLASS else None)


def wrap_scalar(tensor: Any, number: Any = None) -> Any:
    made = scalar_class()(tensor)
    made.number = number
    return made


def bring_scalar(world: World, value: Any, source: Source) -> Any:
    """A scalar from outside: itself under a guard, or one that varies."""
    name = value.dtype.name if hasattr(value, "dtype") else ""
    number = value.item() if name in _FOLLOWED and type(value) is sys.modules["numpy"].dtype(name).type else None
    if number is None or not world.inputs.number_varies(number, source):
        world.guard(source, Kind.EQUALS, value)
        return value
    world.guard(source, Kind.NUMBER_TYPE, type(value))
    place = ScalarTensorSource(source)
    with DisableTorchFunction(), below_python_dispatch():
        example = torch.tensor(number, dtype=getattr(torch, name), device="cpu")
    tensor = world.inputs.drawn_tensor(example, place)
    made = wrap_scalar(tensor, world.inputs.symbolic(number, MethodSource(source, "item")))
    world.set_origin(made, source)
    return made


def to_symbol(t: Tracer, number: Any, scalar: Any) -> tuple[Any, Any]:
    """A symbolic number and a scalar that does not vary, so that NumPy's rules hold for what is made of both."""
    name = scalar.dtype.name if hasattr(scalar, "dtype") else ""
    if name not in _FOLLOWED or varying(number) is bool or is_unbacked(number):
        return concrete(number), scalar
    if name == "int64" and varying(number) is int:  # NumPy takes it in the scalar's type: it is no plain number for that
        number = _in_graph(t, number, name)
    return number, _in_graph(t, scalar.item(), name)


def _in_graph(t: Tracer, number: Any, name: str) -> Any:
    return wrap_scalar(t.call(torch.tensor, (number,), {"dtype": getattr(torch, name), "device": "cpu"}), number)


def by_python(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """NumPy's function of numbers that vary where Python has it to the last digit; NotImplemented for others."""
    name = getattr(function, "__name__", "")
    if kwargs or function is not getattr(sys.modules.get("numpy"), name, None):
        return NotImplemented
    found = None
    if name in _OF_SEVERAL and len(args) == 1:
        found = _of_several(t, _OF_SEVERAL[name], t.internalize(args[0]))
    elif name in _OF_NUMBERS and any(is_symbolic(plain_number(a)) for a in args):
        found = _of_numbers(t, _OF_NUMBERS[name], args)
    if found is None or type(found) is bool:  # a bool is what guards say of the numbers
        return NotImplemented if found is None else sys.modules["numpy"].bool_(found)
    return _in_graph(t, found, _AS_NUMPY[plain_class(found)])


def _of_several(t: Tracer, function: Any, numbers: Any) -> Any:
    """Of integers of which some vary, as of a shape; None for others."""
    if type(numbers) not in (tuple, list, torch.Size) or int not in map(varying, numbers) or {*map(plain_class, numbers)} != {int}:
        return None
    number = t.call(function, (numbers,), {})
    if any(map(is_unbacked, numbers)) or not concrete(number < 2**63) or not concrete(number >= -(2**63)):
        return None
    return number


def _of_numbers(t: Tracer, rule: Any, args: Args) -> Any:
    kind, numbers = _of_one_kind(args)
    if kind is None or any(map(is_unbacked, numbers)) or rule.__code__.co_argcount != len(args) + 1:
        return None
    return rule(t, *numbers)


def _rounded(function: Any, t: Tracer, number: Any) -> Any:
    """A float that is rounded to a whole one, where that is not a zero, whose sign would be told."""
    if plain_class(number) is not float or not concrete(number < 2.0**53) or not concrete(number > -(2.0**53)):
        return None
    whole = t.call(function, (number,), {})
    return t.call(float, (whole,), {}) if concrete(whole != 0) or concrete(number > 0) else None


def _sign(t: Tracer, number: Any) -> Any:
    if concrete(number > 0) or concrete(number < 0):
        return plain_class(number)(1 if concrete(number > 0) else -1)
    return plain_class(number)(0) if concrete(number == 0) else None


def _chosen(function: Any, t: Tracer, *numbers: Any) -> Any:
    """The largest or the smallest of two; None where one is no number, or both are zeros, of which NumPy gives either."""
    if None in numbers or not all(is_int(one) or concrete(one == one) for one in numbers):
        return None
    if concrete(numbers[0] == numbers[1]) and float in map(plain_class, numbers) and concrete(numbers[0] == 0):
        return None
    return t.call(function, numbers, {})


def _root(t: Tracer, number: Any) -> Any:
    """Rounded as `math.sqrt` rounds."""
    if not concrete(number >= 0) or plain_class(number) is int and not concrete(number < 2**53):
        return None
    return t.call(math.sqrt, (number,), {})


def _if_finite(answer: bool, number: Any) -> bool | None:
    return answer if is_finite(number) else None


_OF_SEVERAL: dict[str, Any] = {"prod": math.prod, "sum": sum, "max": max, "amax": max, "min": min, "amin": min}
_OF_NUMBERS: dict[str, Callable[..., Any]] = {
    "maximum": lambda t, a, b: _chosen(max, t, a, b),
    "minimum": lambda t, a, b: _chosen(min, t, a, b),
    "clip": lambda t, a, low, high: _chosen(min, t, _chosen(max, t, a, low), high),
    **dict.fromkeys(("absolute", "abs"), lambda t, a: t.call(abs, (a,), {})),
    "floor": lambda t, a: _rounded(math.floor, t, a),
    "ceil": lambda t, a: _rounded(math.ceil, t, a),
    "trunc": lambda t, a: _rounded(math.trunc, t, a),
    "rint": lambda t, a: _rounded(round, t, a),
    "sign": _sign,
    "sqrt": _root,
    "isfinite": lambda t, a: _if_finite(True, a),
    **dict.fromkeys(("isinf", "isnan"), lambda t, a: _if_finite(False, a)),
}


def scalar_of(t: Tracer, cls: type, args: tuple[Any, ...]) -> Any:
    """numpy.int64(number) or numpy.float64 of a number that varies; NotImplemented for others."""
    kind = {"int64": int, "float64": float}.get(cls.__name__)
    if kind is None or len(args) != 1 or varying(args[0]) is not kind or is_unbacked(args[0]):
        return NotImplemented
    return _in_graph(t, args[0], cls.__name__)


def rounded_number(value: Any) -> Any:
    """What `round` gives the integer of that is next to a scalar; None for other values."""
    kind, number = _operand(value, None) if is_scalar(value) else (None, None)
    return number if kind is not None else None


def fixed(scalar: Any) -> Any:
    """NumPy's scalar of this value, which a guard fixes."""
    if scalar.number is None:
        raise GraphBreak("data-dependent", "a number that NumPy computes from one that varies")
    return sys.modules["numpy"].dtype(_dtype_name(scalar)).type(concrete(scalar.number))


def holds_scalars(*values: Any) -> bool:
    """Whether one is such a scalar, or a slice of one, or a method of such a slice."""
    return any(is_scalar(part) for value in values for part in _parts(value))


def _parts(value: Any) -> tuple[Any, ...]:
    value = value.__self__ if is_bound(value) else value
    return (value.start, value.stop, value.step) if is_slice(value) else (value,)


def as_numpy(value: Any) -> Any:
    """The value for C code that takes NumPy's own scalars alone: in place of those that vary, what guards fix them to."""
    if not holds_scalars(value):
        return value
    if is_bound(value):
        return getattr(as_numpy(value.__self__), value.__name__)
    return slice(*map(as_numpy, _parts(value))) if is_slice(value) else fixed(value)


def _dtype_name(scalar: Any) -> str:
    return str(scalar.tensor.dtype).removeprefix("torch.")


def shown_number(scalar: Any) -> Any:
    """What has the same text: the number, where Python's numbers are shown as NumPy's."""
    same = scalar.number is not None and (_dtype_name(scalar) == "float64" or "int" in _dtype_name(scalar))
    return scalar.number if same else fixed(scalar)


# ---- operators
_DIRECT = "pow add sub mul neg pos abs eq ne lt le gt ge floordiv mod truediv".split()
_REFLECTED = "add sub mul floordiv mod truediv".split()
_EXACT = {f"__{name}__": (getattr(operator, name), 1) for name in _DIRECT}
_EXACT |= {f"__r{name}__": (getattr(operator, name), -1) for name in _REFLECTED}  # of the operands the other way round
_OTHER_WIDTHS = dict.fromkeys(("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"), "all")
_OTHER_WIDTHS |= dict.fromkeys(("__neg__", "__pos__", "__abs__"), "float")
_DIVISIONS = frozenset(("__floordiv__", "__mod__", "__divmod__", "__rfloordiv__", "__rmod__", "__rdivmod__"))
_TEXTS = frozenset(("__repr__", "__str__", "__format__", "__hash__", "__round__"))
_BY_NUMPY = frozenset(("__rpow__", "__lshift__", "__rlshift__", "__rshift__", "__rrshift__"))


def are_scalars(args: tuple[Any, ...]) -> bool:
    """Whether all are numbers, of Python or NumPy, of which some vary."""
    rest = [a for a in args if not is_scalar(a) and not is_numpy_scalar(a)]
    return any(map(is_scalar, args)) and NUMBERS.issuperset(map(plain_class, rest)) and bool not in map(varying, rest)


def all_fixed(args: tuple[Any, ...]) -> list[Any]:
    """The numbers as they are at this call, under guards."""
    return [fixed(a) if is_scalar(a) else concrete(a) for a in args]


def by_numpy(name: str, args: tuple[Any, ...]) -> bool:
    """Whether NumPy itself is to do the operation: tensors do it otherwise, or fail where NumPy warns."""
    if name in _TEXTS or not are_scalars(args):
        return name in _TEXTS
    return name in _BY_NUMPY or name in (*_DIVISIONS, "__pow__") and number_of(name, args) is None


def of_one_type(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The operands with Python's float in the type of a scalar of less precision, in which NumPy computes."""
    types = [_dtype_name(a) for a in args if is_scalar(a)]
    if len(args) != 2 or len(types) != 1 or types[0] not in ("float32", "float16"):
        return args
    kind = sys.modules["numpy"].dtype(types[0]).type
    return tuple(kind(a) if is_fixed_number(a) else a for a in args)


def number_of(name: str, args: tuple[Any, ...]) -> Any:
    """The number that the operation gives, exactly as NumPy computes it; None if that is not so."""
    if name not in _EXACT:
        return None
    function, order = _EXACT[name]
    kind, values = _of_one_kind(of_one_type(args), _OTHER_WIDTHS.get(name))
    values = values[::order]
    if kind is None or function is operator.pow and not (kind is int and is_int(values[1]) and 0 <= values[1] <= 62):
        return None
    if function is operator.truediv and (kind is int or any(map(is_unbacked, values))):
        return None
    if function in _QUOTIENTS and not concrete(values[1] != 0):
        return None
    if kind is float and function in _WHOLE_QUOTIENTS:
        return _of_remainder(function, *values)
    found = function(*values)
    fits = plain_class(found) is not int or concrete(found >= -(2**63)) and concrete(found < 2**63)
    return found if fits else None


def _of_remainder(function: Any, a: Any, b: Any) -> Any:
    """a // b, or a % b, of floats. A remainder of nothing has its sign from b, which that of tensors has from a."""
    quotient = floor_quotient(a, b)
    if quotient is None or function is not operator.mod:
        return quotient
    return a % b if concrete(a % b != 0) else None


_WHOLE_QUOTIENTS = (operator.floordiv, operator.mod)
_QUOTIENTS = (*_WHOLE_QUOTIENTS, operator.truediv)


def _as_float(kind: Any, number: Any) -> tuple[Any, Any]:
    """An integer beside a float, which it becomes; neither kind where that may round."""
    if kind is not int:
        return kind, number
    made = exact_float(number)
    return (None, None) if made is None else (float, made)


def _of_one_kind(args: Args, widths: str | None = None) -> tuple[type | None, list[Any]]:
    """int or float, if all operands are such numbers, or become floats beside others."""
    operands = [_operand(a, widths) for a in args]
    if {kind for kind, _ in operands} == {int, float}:
        operands = [_as_float(*one) for one in operands]
    kinds = {kind for kind, _ in operands}
    return kinds.pop() if len(kinds) == 1 else None, [number for _, number in operands]


_AS_NUMPY = {int: "int64", float: "float64"}


def _operand(value: Any, widths: str | None) -> tuple[type | None, Any]:
    """int or float with the number, of operands that are computed with in 64 bits, or of other `widths` ("float", "all")."""
    if is_scalar(value):
        name, number = _dtype_name(value), value.number
    elif is_numpy_scalar(value) and hasattr(value, "dtype"):
        name, number = value.dtype.name, value.item()
    else:
        name, number = _AS_NUMPY.get(plain_class(value), ""), value
    kind = {"int64": int, "float64": float}.get(name)
    if kind is None and name in _FOLLOWED and widths in ("all", name[:5]):
        kind = float if name.startswith("float") else int
    return (None, None) if number is None else (kind, number)


def plain_number(value: Any) -> Any:
    """The number of a scalar, for what takes numbers of Python and scalars of NumPy alike; other values are themselves."""
    return value.number if is_scalar(value) and value.number is not None else value
