"""What kinds of objects the capture tells apart, and what it knows of each kind without looking at its contents.

In:     classes and values of the traced program.
Out:    sets of types for `in` and `isinstance`; questions about a class, a namespace or a number.
"""

from __future__ import annotations

import _thread
import collections
import functools
import re
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, NamedTuple, TypeGuard

import torch

from pliant.capture.graph_breaks import Raised
from pliant.capture.varying_values import NUMBERS as NUMBERS
from pliant.capture.varying_values import PLAIN_TYPES as PLAIN_TYPES
from pliant.capture.varying_values import concrete as concrete
from pliant.capture.varying_values import is_text as is_text
from pliant.capture.varying_values import plain_class as plain_class
from pliant.capture.varying_values import plain_text as plain_text
from pliant.capture.varying_values import varying as varying
from pliant.guards.standard import standard_globals
from pliant.tables import ByKind as ByKind
from pliant.tables import by_kind as by_kind
from pliant.torch_adapter import NUMPY

# Plain values, from the fewest to the most.
LITERALS: frozenset[type] = NUMBERS | {str, bytes, type(None)}
COMPARED_IN_C: frozenset[type] = LITERALS | {complex, torch.dtype, torch.device}
CONSTANTS: frozenset[type] = COMPARED_IN_C | {type(...), type(NotImplemented), torch.layout, torch.memory_format, torch.qscheme}
CONSTANT_TYPES = CONSTANTS - {int, float}  # which may vary
SYMBOLIC_TYPES: frozenset[type] = frozenset((torch.SymInt, torch.SymFloat, torch.SymBool))
SIZES: frozenset[type] = frozenset((int, torch.SymInt))
MUTABLE_CONTAINERS: frozenset[type] = frozenset(
    (
        list, dict, set, collections.OrderedDict, collections.defaultdict, collections.deque, collections.Counter,
        bytearray,
    )
)


class LockKind(NamedTuple):
    """How a lock is made, and asked whether it is held; whether who holds it may take it again."""

    make: Any
    held: str
    reentrant: bool


LOCKS: dict[type, LockKind] = {
    _thread.LockType: LockKind(threading.Lock, "locked", False),
    _thread.RLock: LockKind(threading.RLock, "_is_owned", True),
}
# Dicts whose copies and joins are of the object's own class.
MADE_ANEW: tuple[type, ...] = (collections.OrderedDict, collections.defaultdict, collections.Counter)
DICT_TYPES: frozenset[type] = frozenset((dict, *MADE_ANEW))
_DICTS: tuple[dict[Any, Any], ...] = ({}, collections.OrderedDict())
DICT_VIEWS: dict[type, str] = {
    type(getattr(made, name)()): name for made in _DICTS for name in ("keys", "values", "items")
}


def times_held(lock: Any) -> int:
    """How often a lock of `LOCKS` is taken: a plain one by anyone, the other by this thread."""
    kind = LOCKS[type(lock)]
    held = getattr(lock, kind.held)()
    if not kind.reentrant or not held:
        return int(held)
    state = lock._release_save()
    lock._acquire_restore(state)
    return int(state[0])


def is_nan(value: Any) -> bool:
    """Whether it is a NaN of Python's own."""
    return type(value) in (float, complex) and value != value


# Whether C functions of such an owner (their `__self__`) are functions alone: all others are methods of an object.
HOLDS_FUNCTIONS: ByKind[bool] = ByKind(False, families=dict.fromkeys((types.ModuleType, type, type(None)), True))


# Whether `==` finds it equal to itself, and to nothing that it must be told from: no NaN, nothing of the program's.
is_told_by_value: Callable[[Any], bool] = by_kind(
    lambda value: False,
    {
        **dict.fromkeys((tuple, torch.Size, frozenset), lambda value: all(map(is_told_by_value, value))),
        slice: lambda value: all(map(is_told_by_value, (value.start, value.stop, value.step))),
        **dict.fromkeys(COMPARED_IN_C, lambda value: not is_nan(value)),
        **dict.fromkeys((range, torch.SymInt, torch.SymBool), lambda value: True),
    },
)


def is_hashed_by_identity(value: Any) -> bool:
    cls: Any = type(value)
    return cls.__hash__ is object.__hash__


def function_of(member: Any) -> types.FunctionType | None:
    """The Python function that a member of a class is, or that its `classmethod` or `staticmethod` holds; else None."""
    function: Any = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
    return function if is_function(function) else None


def is_of_program(member: Any) -> bool:
    """Whether a member of a class is a Python function that neither PyTorch nor the standard library has."""
    function = function_of(member)
    return function is not None and not standard_globals(function.__globals__)


def module_of(function: types.FunctionType) -> str:
    """The name of the module that the function was written in; none where its globals have none."""
    name = function.__globals__.get("__name__")
    return name if isinstance(name, str) else ""


_OF_ARRAYS = (f"{NUMPY}._ndarray", f"{__package__}.numbers.numpy_scalars")


def class_in_numpy(value: Any) -> Any:
    """The class that NumPy has for the traced form of an array, or of a scalar that is computed; None of other values."""
    if type(value).__module__ not in _OF_ARRAYS or not hasattr(value, "tensor"):
        return None
    numpy = sys.modules["numpy"]
    is_scalar = type(value).__module__ == _OF_ARRAYS[1]
    return numpy.dtype(str(value.tensor.dtype).removeprefix("torch.")).type if is_scalar else numpy.ndarray


def is_iterable(value: Any) -> bool:
    """Whether `iter(value)` finds what to ask, which is not asked here."""
    cls: Any = class_in_numpy(value) or plain_class(value)
    if has_method(cls, "__iter__"):
        return cls.__iter__ is not None
    return has_method(cls, "__getitem__") and cls.__module__ != "numpy" and _has_items_by_index(value)


def _has_items_by_index(value: Any) -> bool:
    """Of what has `__getitem__` but no `__iter__`: keys are all that some classes in C take, as `re.Match` does. Only CPython
    knows; it looks at the class and runs nothing."""
    try:
        iter(value)
    except TypeError:
        return False
    return True


def has_method(cls: Any, name: str) -> bool:
    """Whether objects of the class have it; the class itself may have another, of its metaclass."""
    return any(name in vars(base) for base in cls.__mro__)


def own_field(obj: Any, name: str) -> Any:
    """An attribute, None if there is none. A `__getattribute__` of the program's is not asked."""
    try:
        return object.__getattribute__(obj, name)
    except (AttributeError, TypeError):
        return None


def own_dict(obj: Any) -> Any:
    """The `__dict__` of an object, None if it has none."""
    try:
        return object.__getattribute__(obj, "__dict__")
    except (AttributeError, TypeError):
        return None


def name_of_class(value: Any) -> str:
    """The name of the value's class in CPython's errors: with its module if the class is written in C."""
    if (plain := varying(value)) is not None:
        return plain.__name__
    if (cls := class_in_numpy(value)) is not None:
        return f"numpy.{cls.__name__}"
    if type(value).__module__.startswith("pliant."):  # a tensor
        return value.__class__.__name__  # type: ignore[no-any-return]
    others: tuple[Any, ...] = (list, str)  # which take only their own, and run nothing of the program's
    for other in others:
        try:
            other.__add__(other(), value)
        except TypeError as error:
            found = re.search('not "(.*)"', str(error))
            if found is not None:
                return found[1]
    return type(value).__name__


def misused(value: Any, text: str, error: type[Exception] = TypeError) -> Raised:
    """CPython's error of what a value's class does not have; `{}` in the text is the name of the class."""
    return Raised(error(text.replace("{}", name_of_class(value))))


def shown_callable(function: Any) -> str:
    """A callable as CPython's errors of calls name it."""
    name, module = getattr(function, "__qualname__", None), getattr(function, "__module__", None)
    if name is None:
        return str(type(function))
    if type(receiver := getattr(function, "__self__", None)).__module__.startswith("pliant."):  # a tensor
        name = f"{name_of_class(receiver)}.{function.__name__}"
    return f"{name}()" if module in (None, "builtins") else f"{module}.{name}()"


def derives(value: Any, base: type) -> bool:
    """Whether it is a class, the base or one derived from it."""
    return is_class(value) and issubclass(value, base)


def deriving(*classes: type) -> Callable[[Any], bool]:
    """The question whether a value's class derives from one of these. What it only claims to be, as mocks do, is not asked:
    that may run code of the program."""
    return lambda value: issubclass(type(value), classes)


is_set, is_any_dict = deriving(set, frozenset), deriving(dict)


# ---- classes themselves: their subclasses may have methods of their own
def exactly(*classes: type) -> Callable[[Any], bool]:
    """The question whether a value is of one of these classes, not of a class derived from them."""
    known = frozenset(classes)
    return lambda value: type(value) in known


# Both for type checkers, which take the answers for what they say.
_deriving: Any = deriving
_exactly: Any = exactly
is_class: Callable[[Any], TypeGuard[type]] = _deriving(type)
is_exception: Callable[[Any], TypeGuard[BaseException]] = _deriving(BaseException)
is_tensor: Callable[[Any], TypeGuard[torch.Tensor]] = _deriving(torch.Tensor)  # of whatever class, a fake one too
is_module: Callable[[Any], TypeGuard[torch.nn.Module]] = _deriving(torch.nn.Module)
# Written in Python. What only claims the class, as mocks do, is none.
is_function: Callable[[Any], TypeGuard[types.FunctionType]] = _exactly(types.FunctionType)
is_method: Callable[[Any], TypeGuard[types.MethodType]] = _exactly(types.MethodType)
# A function of a module in C, or a bound method of an object in C.
is_builtin: Callable[[Any], TypeGuard[types.BuiltinFunctionType]] = _exactly(types.BuiltinFunctionType)


def is_parameter(value: Any) -> bool:
    return is_tensor(value) and isinstance(value, torch.nn.Parameter)


is_constant = exactly(*CONSTANTS)
is_int = exactly(int)  # of one value: no truth, none that varies
is_fixed_number = exactly(int, float)
is_symbolic = exactly(*SYMBOLIC_TYPES)  # a number, or a truth, that varies from call to call
is_str = exactly(str)
is_text_or_bytes = exactly(str, bytes)
is_tuple = exactly(tuple)
is_size = exactly(torch.Size)
is_list = exactly(list)
is_slice = exactly(slice)
is_plain_dict = exactly(dict)
is_dict = exactly(*DICT_TYPES)
is_mutable_container = exactly(*MUTABLE_CONTAINERS)
is_bound = exactly(types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)  # to an object, or a module's in C
is_cell = exactly(types.CellType)
is_plain_tensor = exactly(torch.Tensor)


def is_same_constant(one: Any, other: Any) -> bool:
    """Whether one constant can stand for the other: of one class and of one value, zeros of one sign too."""
    if type(one) is not type(other) or not is_constant(one) or one != other:
        return False
    return bool(one) or repr(one) == repr(other)


# ---- numbers
def is_number(value: Any) -> bool:
    """Of Python's, be it one that varies."""
    return issubclass(plain_class(value), (int, float))


def _of_numpy(*names: str) -> Callable[[Any], bool]:
    """The question whether a value is of one of these classes of NumPy, which need not be loaded."""
    return lambda value: "numpy" in sys.modules and issubclass(type(value), _classes_of_numpy(names))


@functools.cache
def _classes_of_numpy(names: tuple[str, ...]) -> tuple[type, ...]:
    return tuple([getattr(sys.modules["numpy"], name) for name in names])


is_numpy_array = _of_numpy("ndarray")
is_numpy_number = _of_numpy("generic")
is_numpy_scalar = _of_numpy("generic", "dtype")  # a number of NumPy's, or the description of such numbers


def reader(value: Any, base: type) -> str | None:
    """The name of the class in C whose `__getitem__` reads an item of the value; None where that is the value's own class."""
    return None if type(value) is base else base.__name__


def tuple_of(cls: type, items: list[Any], like: Any = None) -> Any:
    """A tuple of the class, without running its own constructor. What a struct sequence has beside its items, as
    `os.stat_result` has times as floats, is that of the one it is like."""
    if cls is torch.Size:
        return torch.Size(items) if SIZES.issuperset(map(type, items)) else tuple(items)
    if has_method(cls, "n_sequence_fields"):  # a struct sequence (torch.return_types), made by its type alone
        return cls(items, like.__reduce__()[1][1] if type(like) is cls else {})
    return tuple.__new__(cls, items)
