"""What an object that an entry names would do: a digest that differs wherever capture could have seen a difference.

In:     functions, classes, modules, code, descriptors, constants.
Out:    `content(obj)`: all that counts, which no later change of the object changes; `NotKept` for what has no content that
        could be told. `digest_of(content)`, `digest(obj)`: text.
Holds:  no addresses, file names or times; nothing of the program runs. What of an object has guards of its own (closures,
        globals, attributes) is no part of it.
"""

from __future__ import annotations

import _thread
import abc
import collections
import contextvars
import datetime
import enum
import functools
import hashlib
import importlib
import inspect
import json
import marshal
import operator
import re
import struct
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from importlib.machinery import ExtensionFileLoader
from typing import Any

import torch

from pliant import torch_adapter
from pliant.cpython import registered_classes
from pliant.dispatch import markers
from pliant.entries.constants import spelled
from pliant.guards.facts import CacheToken, is_native_enum
from pliant.guards.standard import (
    LRU_CACHE,
    SENTINEL_TYPES,
    can_change,
    identity_types,
    is_numpy_function,
    standard_class,
)

_DEEPEST = 8  # defaults that are functions with defaults that...


class NotKept(Exception):
    """Why an entry, or something that it refers to, cannot be on disk. `kind` is counted, the text says more."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


Content = Any  # lists of text, numbers and code


def digest(obj: Any) -> str:
    """24 hexadecimal digits."""
    return digest_of(content(obj))


def digest_of(content: Content) -> str:
    """24 hexadecimal digits."""
    return hashlib.sha256(_encode(content).encode()).hexdigest()[:24]


def content(obj: Any) -> Content:
    """What counts of the object."""
    return _content(obj, 0)


def _content(obj: Any, depth: int) -> Content:
    if depth > _DEEPEST:
        raise NotKept("no-content", f"{type(obj).__qualname__} lies too deep")
    constant = spelled(obj) if type(obj) not in _BY_TYPE else None
    if constant is not None or obj is None:
        return ["constant", constant]
    for cls in type(obj).__mro__:
        if cls in _BY_OPERATORS and cls not in _CONTENT:
            importlib.import_module("pliant.entries.operators")
        describe = _CONTENT.get(cls)
        if describe is not None:
            return [cls.__name__, *describe(obj, depth + 1)]
    return _instance(obj)


def _instance(obj: Any) -> Content:
    """An object of the program's: what was read of it has guards of its own. What a class in C keeps in its objects no guard
    reads: capture takes it from the object itself."""
    cls = type(obj)
    if is_native_enum(cls):
        return ["member", cls.__module__, cls.__qualname__, repr(obj)]
    if cls in _BY_TYPE:
        return ["instance", cls.__module__, cls.__qualname__]
    if cls is getattr(sys.modules.get("decimal"), "Decimal", None):
        return ["value", "decimal", str(obj)]
    if is_of_numpy(obj):
        return [cls.__name__, home_of(obj), obj.__name__]
    for base, plain in _PLAIN_VALUES.items():
        if base in cls.__mro__:
            return ["value", cls.__module__, cls.__qualname__, spelled(plain(obj))]
    if isinstance(obj, (*identity_types(), torch.Tensor)) or not all(map(_is_read_by_guards, cls.__mro__)):
        raise NotKept("no-content", f"a {cls.__module__}.{cls.__qualname__}")
    return ["instance", cls.__module__, cls.__qualname__]


# What a class of the program's that derives from one of these has of it: no method of the program's is asked.
_PLAIN_VALUES: dict[type, Callable[[Any], Any]] = {
    int: int.__int__, float: float.__float__, str: str.__str__, bytes: bytes.__bytes__, complex: complex.__complex__,
}  # fmt: skip


def home_of(function: Any) -> str:
    """The module that a function of NumPy's is from: older releases do not say it of those that are objects in C."""
    return getattr(function, "__module__", None) or "numpy"


def is_of_numpy(obj: Any) -> bool:
    """Whether it is one of NumPy's own functions of arrays, which do not change and are found under their names."""
    home = sys.modules.get(home_of(obj)) if is_numpy_function(type(obj)) else None
    return home is not None and vars(home).get(obj.__name__) is obj


# What descriptors hold.
PARTS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    functools.cached_property: ("func",),
}


def homeless_parts(obj: Any) -> Iterator[tuple[str, types.FunctionType]]:
    """Functions that a descriptor holds, by the attribute, whose globals are no module's."""
    for name in PARTS.get(type(obj), ()):
        if is_homeless(part := getattr(obj, name)):
            yield name, part


def is_homeless(value: Any) -> bool:
    """Whether it is a function whose globals are no module's."""
    return type(value) is types.FunctionType and module_of(value.__globals__) is None


# Classes in C: all that matters of their objects has guards, or they stand for themselves.
_BY_TYPE = frozenset(
    (dict, list, set, collections.deque, collections.OrderedDict, collections.defaultdict, _thread.LockType, _thread.RLock, _thread._local, *SENTINEL_TYPES)
)


# Of one container: what they will give.
ITERATORS: tuple[type, ...] = (
    *map(type, (iter([]), reversed([]), iter(()), iter(range(0)), iter(range(1 << 70)), iter(""), iter("é"), iter(b""))),
    *map(type, (iter({}), iter({}.values()), iter({}.items()), reversed({}), reversed({}.values()), reversed({}.items()))),
    type(iter(set())), reversed,
)  # fmt: skip

# Objects of these hold what capture reads under guards of its own.
_READ: tuple[type, ...] = (
    dict, list, set, frozenset, collections.deque, tuple, slice, BaseException, types.FunctionType, types.MethodType,
    types.ModuleType, types.SimpleNamespace, types.CellType, types.GeneratorType, types.BuiltinFunctionType, types.MethodWrapperType,
    functools.partial, torch.Tensor, torch.finfo, torch.iinfo, types.MappingProxyType, *ITERATORS,
)  # fmt: skip
_OF_NUMPY = ("numpy", "numpy.dtypes")


def check_type(cls: type) -> None:
    """Of an object only the type has a guard: no more of it may be in the entry than guards say of its parts. NotKept."""
    if not (issubclass(cls, _READ) or all(map(_is_read_by_guards, cls.__mro__)) or cls.__module__ in _OF_NUMPY):
        raise NotKept("no-content", f"what a {cls.__module__}.{cls.__qualname__} holds")


def _is_read_by_guards(cls: type) -> bool:
    """Whether objects have nothing of this class but what is in their `__dict__` and slots, or in a container."""
    made_in_c = not can_change(cls) or isinstance(cls.__dict__.get("__new__"), types.BuiltinMethodType)
    return cls is object or cls in _BY_TYPE or not made_in_c


# ---- functions and code
def module_of(namespace: dict[str, Any]) -> str | None:
    """The name of the loaded module that this is the namespace of."""
    said = (namespace.get("__name__"), getattr(namespace.get("__spec__"), "name", None))
    return next((n for n in said if isinstance(n, str) and vars(sys.modules.get(n, object)) is namespace), None)


def _function(function: types.FunctionType, depth: int) -> Content:
    name = module_of(function.__globals__)
    if name is None and depth > 1:  # else whoever has a name for the function, or its descriptor, has one for its namespace
        raise NotKept("no-name", f"the namespace of {function.__qualname__} is no module's")
    return [
        function.__module__,
        function.__qualname__,
        name,
        _code(function.__code__),
        [_default(v, depth) for v in function.__defaults__ or ()],
        [[k, _default(v, depth)] for k, v in (function.__kwdefaults__ or {}).items()],
        str(markers.mark_of(function)),
        _default(markers.substitute_of(function), depth),
    ]


def _part(value: Any, depth: int) -> Content:
    """What a property calls: of what is no function the type will do."""
    return _content(value, depth - 1) if type(value) is types.FunctionType else _default(value, depth)


def _default(value: Any, depth: int) -> Content:
    """A default that is read has a guard of its own: of what has no content the type will do."""
    try:
        return _content(value, depth)
    except NotKept:
        return [type(value).__module__, type(value).__qualname__]


_checked: dict[int, types.CodeType] = {}
_digests: dict[int, tuple[types.CodeType, str]] = {}


def _code(code: types.CodeType) -> Content:
    """The code itself, which does not change: `digest_of` works out what it does."""
    if id(code) not in _checked:
        if not _PROCESS_BOUND.isdisjoint(code.co_names):
            raise NotKept("process-bound", f"{code.co_qualname} reads what differs from process to process")
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                _code(constant)
        _checked[id(code)] = code
    return code


def _digest_of_code(code: types.CodeType) -> str:
    """Of everything but the file and the lines."""
    known = _digests.get(id(code))
    if known is None:
        parts = (
            code.co_qualname, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags,
            code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
            code.co_exceptiontable, [one if type(one) in _EXACT else _constant(one) for one in code.co_consts],
        )  # fmt: skip
        known = _digests[id(code)] = code, hashlib.sha256(_exactly(parts)).hexdigest()[:24]
    return known[1]


def _spelled_out(value: Any) -> Content:
    """Code, and what classes in C have in place of their names."""
    return _digest_of_code(value) if isinstance(value, types.CodeType) else ["a", type(value).__name__]


_encode = json.JSONEncoder(default=_spelled_out).encode


# Attributes whose values no guard tells, and that another process has other values of.
_PROCESS_BOUND = frozenset(("__hash__", "__sizeof__"))


# Of these `marshal` tells type and bits, and the same in every process.
_EXACT = frozenset((type(None), bool, int, float, complex, str, bytes, type(...)))


def _exactly(value: Any) -> bytes:
    """Tuples, lists and what is exact: the version of the format that does not tell how often an object is used."""
    return marshal.dumps(value, 2)


def _constant(value: Any) -> Any:
    """A list stands for what is no constant to `marshal`. Sets have no order: a capture that relied on one says so."""
    if type(value) in _EXACT:
        return value
    if isinstance(value, types.CodeType):
        return ["code", _digest_of_code(value)]
    if type(value) is frozenset:
        return ["set", *sorted(_exactly(_constant(one)) for one in value)]
    if type(value) is tuple:
        return tuple([_constant(one) for one in value])
    return ["constant", type(value).__name__, json.dumps(spelled(value))]


# ---- classes
def _class(cls: type, depth: int) -> Content:
    """Of PyTorch's and Python's own classes the names: what is looked up in them has guards, as in any class."""
    bases = [[base.__module__, base.__qualname__] for base in cls.__mro__]
    own = [_members(base, depth) for base in cls.__mro__ if not standard_class(base)]
    return [bases, type(cls).__module__, type(cls).__qualname__, own]


_UNREAD = frozenset(("__doc__", "__dict__", "__weakref__", "__firstlineno__", "__static_attributes__"))


def _members(cls: type, depth: int) -> Content:
    """What the class defines: code by content; values have guards where they are read, so their types will do. Not so in an
    enumeration, whose members are themselves wherever they are read, and of annotations, which are read as they are."""
    found = [[name, _member(value, depth)] for name, value in cls.__dict__.items() if name not in _UNREAD]
    if type(abstract := cls.__dict__.get("__abstractmethods__")) is frozenset:  # whether there are any decides if objects can be made
        found.append(["abstract", len(abstract)])
    if isinstance(cls, enum.EnumMeta):
        found += [[name, _member_of_enum(member, depth)] for name, member in cls.__dict__.get("_member_map_", {}).items()]
    annotations = cls.__dict__.get("__annotations__", {})  # noqa: RUF063  # which may run code
    of_python = annotations if type(annotations) is dict else {}  # what Cython makes has none of its own
    return [*found, *([name, _annotation(value)] for name, value in of_python.items())]


def _annotation(value: Any) -> Content:
    """A class by its name, what is made of others as these, a constant as itself."""
    if isinstance(value, type) and not isinstance(value, types.GenericAlias):
        return [value.__module__, value.__qualname__]
    if type(value).__module__ not in ("typing", "types"):
        return [type(value).__qualname__, spelled(value)]
    said = [getattr(value, name, None) for name in ("_name", "__name__", "__forward_arg__")]
    parts = [getattr(value, name, None) or () for name in ("__args__", "__metadata__", "__constraints__")]
    of = [getattr(value, name, None) for name in ("__origin__", "__bound__")]
    return [
        type(value).__qualname__, [one if type(one) is str else None for one in said],
        [[*map(_annotation, part)] if type(part) is tuple else None for part in parts],
        [None if one is None or one is value else _annotation(one) for one in of],
    ]  # fmt: skip


def _registered(cls: type) -> Content:
    """Classes registered with an abstract one or with those derived from it, which `isinstance` asks."""
    below: list[type] = [cls]
    seen: set[type] = set()
    while below:
        one = below.pop()
        seen.add(one)
        below += set(type.__subclasses__(one)) - seen
    known = [registered_classes(one) for one in seen if isinstance(one, abc.ABCMeta)]
    if None in known:
        raise NotKept("no-content", f"which classes are registered with {cls.__qualname__}")
    found = {one for classes in known for one in classes or () if not _is_of_extension(one)}
    return sorted(f"{one.__module__}.{one.__qualname__}" for one in found)


def _is_of_extension(cls: type) -> bool:
    """Whether an extension module keeps the class to itself, as those that Cython makes do: what registers it is the module, where
    it is loaded, and without it there are no objects of the class."""
    space = vars(sys.modules.get(cls.__module__, object))
    return isinstance(getattr(space.get("__spec__"), "loader", None), ExtensionFileLoader) and cls.__name__ not in space


def _member(value: Any, depth: int) -> Content:
    match value:
        case types.FunctionType():
            return _code_of(value, depth)
        case property():
            return ["property", *(_code_of(one, depth) for one in (value.fget, value.fset, value.fdel))]
        case classmethod() | staticmethod():
            return [type(value).__name__, _code_of(value.__func__, depth)]
        case tuple():  # the interpreter reads some by their names: `__match_args__`, `__slots__`
            return _default(value, depth)
        case _:
            return [type(value).__module__, type(value).__qualname__]


def _code_of(function: Any, depth: int) -> Content:
    """A method that nobody read may do what it wants, so what has no content counts by its type: the content of those that
    were read is told apart from their class."""
    if type(function) is not types.FunctionType:
        return [type(function).__module__, type(function).__qualname__]
    try:
        return [function.__qualname__, _code(function.__code__)]
    except NotKept as refused:
        return [function.__qualname__, str(refused)]


# ---- others
def _module(module: types.ModuleType, depth: int) -> Content:
    if type(module).__getattribute__ is not types.ModuleType.__getattribute__:  # the program's own, which is not run here
        raise NotKept("no-content", "a module that looks up its attributes in its own way")
    return [module.__name__]


def _named(obj: Any, depth: int) -> Content:
    """A function or a descriptor in C: which one it is, and of what."""
    of = getattr(obj, "__objclass__", None)
    place = _owner(getattr(obj, "__self__", None), depth)
    return [getattr(obj, "__module__", None), obj.__name__, place, of.__qualname__ if isinstance(of, type) else None]


def _owner(owner: Any, depth: int) -> Content:
    if isinstance(owner, (types.ModuleType, type)):
        return owner.__name__
    if type(owner).__name__.startswith(("pybind11_detail_function_record", "PyCapsule")):  # of a module of PyTorch's
        return type(owner).__name__.partition("record")[0]
    return _content(owner, depth)


def _partial(partial: functools.partial[Any], depth: int) -> Content:
    return [_content(partial.func, depth), [_content(a, depth) for a in partial.args],
            [[k, _content(v, depth)] for k, v in partial.keywords.items()]]  # fmt: skip


def _member_of_enum(member: enum.Enum, depth: int) -> Content:
    """It is known by being itself, so all that it has counts."""
    more = {name: value for name, value in vars(member).items() if name != "__objclass__"}
    return [type(member).__module__, type(member).__qualname__, [[name, _default(value, depth)] for name, value in more.items()]]


def _made_of(obj: Any, depth: int) -> Content:
    """Of what says by which call it can be made again."""
    if type(obj).__module__ not in ("datetime", "operator"):
        raise NotKept("no-content", f"a {type(obj).__module__}.{type(obj).__qualname__}")
    make, args, *_ = obj.__reduce__()
    return [_content(make, depth), *(_content(one, depth) for one in args)]


_CONTENT: dict[type, Callable[[Any, int], Content]] = {
    tuple: lambda items, depth: [_content(item, depth) for item in items],
    types.FunctionType: _function,
    types.CodeType: lambda code, depth: [_code(code)],
    type: _class,
    types.ModuleType: _module,
    types.BuiltinFunctionType: _named,
    types.MethodDescriptorType: _named,
    types.WrapperDescriptorType: _named,
    types.ClassMethodDescriptorType: _named,
    types.GetSetDescriptorType: _named,
    types.MemberDescriptorType: _named,
    property: lambda one, depth: [_part(part, depth) for part in (one.fget, one.fset, one.fdel)],
    classmethod: lambda one, depth: [_content(one.__func__, depth - 1)],
    staticmethod: lambda one, depth: [_content(one.__func__, depth - 1)],
    functools.cached_property: lambda one, depth: [one.attrname, _content(one.func, depth - 1)],
    functools.partial: _partial,
    LRU_CACHE: lambda one, depth: [_content(one.__wrapped__, depth)],
    enum.Enum: _member_of_enum,
    type(inspect.FullArgSpec.args): lambda field, depth: [field.__reduce__()[1][0]],  # which item it reads
    CacheToken: lambda token, depth: [_registered(cls) for cls in token.asked],
    re.Pattern: lambda one, depth: [spelled(one.pattern), one.flags],
    types.GenericAlias: lambda one, depth: [_annotation(one)],
    types.UnionType: lambda one, depth: [_annotation(one)],
    weakref.ref: lambda one, depth: [type(one).__qualname__],  # what it leads to is read under guards
    functools.singledispatchmethod: lambda one, depth: [],  # as what it holds
    torch.Generator: lambda one, depth: [str(one.device)],  # its state is read where it draws
    contextvars.ContextVar: lambda var, depth: [var.name],  # what it gives is read under guards
    struct.Struct: lambda one, depth: [one.format],
    **dict.fromkeys((operator.attrgetter, operator.itemgetter, operator.methodcaller), _made_of),
    **dict.fromkeys((datetime.date, datetime.datetime, datetime.time, datetime.timedelta), _made_of),
    datetime.timezone: lambda one, depth: [_content(part, depth) for part in one.__getinitargs__()],
}


# Of these `operators` says what counts, which is loaded where one is met: most of what finds its entry names none.
_BY_OPERATORS = frozenset((torch_adapter.OpOverload, torch_adapter.OpOverloadPacket, torch_adapter.CustomOperator))


def describe(cls: type, what: Callable[[Any], Content]) -> None:
    """What counts of an object of the class."""
    _CONTENT[cls] = lambda obj, depth: what(obj)
