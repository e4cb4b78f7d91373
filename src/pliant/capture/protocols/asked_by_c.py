"""Methods of the program's own classes that C code would run unseen.

In:     a function written in C that is about to be called during the trace, and what it is given.
Holds:  a break where it may ask an object for a number, a length, items, a text..., and the program wrote the method that
        answers: it would run once, while the graph is captured, and in no later call.
"""

from __future__ import annotations

import collections
import functools
import operator
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.protocols import operators
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import parts_of
from pliant.capture.value_kinds import (
    CONSTANTS,
    DICT_TYPES,
    DICT_VIEWS,
    HOLDS_FUNCTIONS,
    MUTABLE_CONTAINERS,
    SYMBOLIC_TYPES,
    ByKind,
    derives,
    deriving,
)
from pliant.graph.fake_tensor import FakeTensor
from pliant.guards.standard import LRU_CACHE, can_change, standard_globals
from pliant.unpatched import BUILTINS

_OF_NUMBERS = """__index__ __int__ __float__ __complex__ __bool__ __round__ __trunc__ __floor__ __ceil__ __abs__ __neg__ __pos__
    __invert__""".split()
_OF_TWO = [f"__{way}{name}__" for name in "add sub mul matmul truediv floordiv mod divmod pow lshift rshift and xor or".split() for way in ("", "r", "i")]
_OF_CONTAINERS = "__len__ __length_hint__ __iter__ __next__ __getitem__ __contains__ __reversed__ __missing__ keys items".split()
_OF_TEXTS = "__str__ __repr__ __format__ __bytes__ __buffer__ __fspath__".split()
COMPARED = frozenset("__eq__ __ne__ __lt__ __gt__ __le__ __ge__ __hash__".split())
ASKED = frozenset((*_OF_NUMBERS, *_OF_TWO, *_OF_CONTAINERS, *_OF_TEXTS, *COMPARED))
ASKED_BY_TORCH = ASKED.difference(_OF_TEXTS) | {"__getattr__", "__getattribute__"}  # for `__torch_function__`; texts only to complain
ASKED_BY_TORCH_IN_PYTHON = ASKED_BY_TORCH.union(_OF_TEXTS)  # whose complaints show what it was given
ASKED_FOR_MORE = ASKED.difference(COMPARED)  # than to compare


def own_method(t: Tracer, value: Any, names: frozenset[str] = ASKED) -> str | None:
    """The name of a method that the program wrote for the object's class, of those that C code may ask for."""
    if type(value) in _WITHOUT:
        return None
    classes = [base for base in type(value).__mro__ if can_change(base) and not _is_ours(vars(base).get("__module__"))]
    written = {name for base in classes for name in names.intersection(vars(base))}
    return next((name for name in sorted(written) if is_own(operators.python_method(t, value, name), type(value))), None)


def _is_ours(module: Any) -> bool:
    return str(module).startswith("pliant.")


def is_own(method: types.FunctionType | None, cls: type) -> bool:
    """Whether the program wrote the method: PyTorch, the standard library and what makes data classes did not."""
    return method is not None and not standard_globals(method.__globals__) and not is_generated(method, cls)


def is_generated(method: types.FunctionType, cls: type) -> bool:
    """Whether the class' way to hash or compare was written by dataclasses or PyTorch: it reads only its own fields."""
    if cls.__module__.partition(".")[0] in ("torch", "enum", "collections"):
        return True
    return hasattr(cls, "__dataclass_fields__") and method.__code__.co_filename == "<string>"


def refuse_own(t: Tracer, function: Any, values: Iterable[Any], names: frozenset[str] = ASKED) -> None:
    """Break if one of the values has such a method."""
    for value in values:
        if (name := own_method(t, value, names)) is not None:
            what = getattr(function, "__name__", "C code")
            raise GraphBreak("unknown-object", f"{what} would call {name} of a {type(value).__name__}")


def refuse_asked(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> None:
    """Break if the function may call a method of the program's of one of the arguments, or of what is in them."""
    if CONSTANTS.issuperset(map(type, args)) and not kwargs:
        return
    if refuse_beside_tensor(t, function, args) or not _ASKS.of(function)(function, args):
        return
    values = (*args, *kwargs.values())
    refuse_own(t, function, values if _takes_items(function) else within(values))


def refuse_beside_tensor(t: Tracer, function: Any, args: Args) -> bool:
    """Break for operands of an operator that PyTorch answers, which asks them for numbers or items; whether it is one."""
    is_of_tensor = id(function) in _OPERATORS and FakeTensor in map(type, args[:2])
    if is_of_tensor:
        refuse_own(t, function, within(args), ASKED_BY_TORCH)
    return is_of_tensor


def within(values: Iterable[Any], seen: frozenset[int] = frozenset()) -> Iterator[Any]:
    """The values, and those in containers and iterators among them."""
    for value in values:
        parts = LOOKED_INTO.get(type(value))
        if parts is None:
            yield value
        elif id(value) not in seen:
            yield from within(parts(value), seen | {id(value)})


def _left(iterator: Any) -> Iterable[Any]:
    """What an iterator of Python's own has still to give: it is not taken."""
    return iterator.__reduce__()[1]  # type: ignore[no-any-return]


# Containers and iterators, in which C code finds objects of the program's.
LOOKED_INTO: dict[type, Callable[[Any], Iterable[Any]]] = {
    **dict.fromkeys((list, tuple, set, frozenset, collections.deque), iter),
    **dict.fromkeys(DICT_TYPES, lambda value: (*value, *value.values())),
    slice: parts_of,
    types.SimpleNamespace: lambda value: vars(value).values(),
    **dict.fromkeys(map(type, (iter([]), iter(()), reversed([]), iter({}), iter({}.values()), iter({}.items()), iter(set()))), _left),
}
_WITHOUT = frozenset(
    (
        *CONSTANTS, *MUTABLE_CONTAINERS, *SYMBOLIC_TYPES, tuple, FakeTensor, type, types.FunctionType, types.MethodType,
        types.BuiltinFunctionType, types.ModuleType, slice, range,
    )
)  # fmt: skip


# ---- what is written in C and asks objects for nothing, or has asked the program's methods before
_HOLD = frozenset(
    map(
        id,
        (
            *DICT_TYPES, property, staticmethod, classmethod, slice, object, type, functools.partial, types.MethodType, types.CellType,
            types.SimpleNamespace, LRU_CACHE, weakref.ref, BUILTINS.super,
        ),
    )
)  # fmt: skip
_TAKE_ITEMS = frozenset(
    map(
        id,
        (
            list, tuple, set, frozenset, collections.deque, zip, map, filter,
            enumerate, reversed, operator.add, operator.iadd, operator.mul, operator.imul, operator.concat, operator.iconcat,
        ),
    )
)  # fmt: skip
_LOOK_AT_CLASS = (BUILTINS.isinstance, BUILTINS.issubclass, BUILTINS.getattr, BUILTINS.callable, BUILTINS.id)
_COMPARE = (operator.eq, operator.ne, operator.lt, operator.gt, operator.le, operator.ge, operator.is_, BUILTINS.hash)
_OPERATORS = frozenset(id(getattr(operator, name)) for name in (*_OF_TWO, *COMPARED, "__setitem__") if hasattr(operator, name))
_AFTER_ASKING = (BUILTINS.len, BUILTINS.iter, BUILTINS.next)  # their handlers know the one method that they ask for
_BY_NAME = frozenset((*_LOOK_AT_CLASS, *_AFTER_ASKING))
_OF_PLACES = (operator.contains, operator.getitem, operator.setitem, operator.delitem)
_OF_ATTRIBUTES = frozenset("__get__ __set__ __delete__ __setattr__ __delattr__ __getattribute__ __new__ __init__ __set_name__".split())
_LOOK_AT_OPERANDS = COMPARED | {"__add__", "__radd__", "__sub__", "__rsub__", "__divmod__", "__rdivmod__"}  # at their classes alone
_NO_QUESTIONS = _OF_ATTRIBUTES | _LOOK_AT_OPERANDS
_HOLDERS = MUTABLE_CONTAINERS - {bytearray} | {tuple, frozenset}
_is_holder = deriving(*_HOLDERS)


def _takes_items(function: Any) -> bool:
    """Whether it takes items as they are."""
    return id(function) in _TAKE_ITEMS or getattr(function, "__module__", None) == "itertools"


def _asks_in_c(function: Any, args: Args) -> bool:
    """Of a function or a bound method: those of containers take what they hold."""
    if function in _BY_NAME or function.__name__ in _NO_QUESTIONS:
        return False
    if function in _COMPARE:
        return any(type(value) in DICT_VIEWS for value in args)  # which ask a set for its length and its items
    if function in _OF_PLACES:
        return bool(args) and not _is_holder(args[0])
    return HOLDS_FUNCTIONS.of(function.__self__) or type(function.__self__) not in _HOLDERS


_ASKS: ByKind[Callable[[Any, Args], bool]] = ByKind(
    lambda function, args: False,
    {
        **dict.fromkeys(
            (types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType),
            lambda function, args: function.__name__ not in _NO_QUESTIONS and getattr(function, "__objclass__", None) not in _HOLDERS,
        ),
        types.FunctionType: lambda function, args: not _is_ours(function.__module__),
    },
    {
        types.BuiltinFunctionType: _asks_in_c,  # a pattern's `sub` is of a class derived from it
        type: lambda cls, args: id(cls) not in _HOLD and not derives(cls, BaseException),
    },
)
