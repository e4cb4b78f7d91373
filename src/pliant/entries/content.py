"""What an object that an entry names would do: a digest that differs wherever capture could have seen a difference.

In:     functions, classes, modules, code, descriptors, constants.
Out:    `digest(obj)`: text; `NotKept` for what has no content that could be told.
Holds:  no addresses, file names or times; nothing of the program runs. What of an object has guards of its own (closures,
        globals, attributes) is no part of it.
"""

from __future__ import annotations

import collections
import dis
import enum
import functools
import hashlib
import itertools
import json
import re
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from pliant.dispatch import markers
from pliant.entries.constants import spelled
from pliant.guards.facts import is_native_enum
from pliant.guards.standard import IDENTITY_TYPES, SENTINEL_TYPES, standard_class
from pliant.torch_adapter import OpOverload, OpOverloadPacket

_TPFLAGS_HEAPTYPE = 1 << 9  # classes implemented in C do not change
_DEEPEST = 8  # defaults that are functions with defaults that...


class NotKept(Exception):
    """Why an entry, or something that it refers to, cannot be on disk. `kind` is counted, the text says more."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


def digest(obj: Any) -> str:
    """24 hexadecimal digits."""
    return hashlib.sha256(json.dumps(_content(obj, 0)).encode()).hexdigest()[:24]


Content = Any  # lists of text and numbers


def _content(obj: Any, depth: int) -> Content:
    if depth > _DEEPEST:
        raise NotKept("no-content", f"{type(obj).__qualname__} lies too deep")
    constant = spelled(obj) if type(obj) not in _BY_TYPE else None
    if constant is not None or obj is None:
        return ["constant", constant]
    for cls in type(obj).__mro__:
        describe = _CONTENT.get(cls)
        if describe is not None:
            return [cls.__name__, *describe(obj, depth + 1)]
    return _instance(obj)


def _instance(obj: Any) -> Content:
    """An object of the program's: what was read of it has guards of its own."""
    cls = type(obj)
    if isinstance(obj, (*IDENTITY_TYPES, torch.Tensor)) or not cls.__flags__ & _TPFLAGS_HEAPTYPE:
        if is_native_enum(cls):
            return ["member", cls.__module__, cls.__qualname__, repr(obj)]
        if cls not in _BY_TYPE:
            raise NotKept("no-content", f"a {cls.__module__}.{cls.__qualname__}")
    return ["instance", cls.__module__, cls.__qualname__]


# Objects of classes in C of which all that matters has guards, or that stand for themselves.
_BY_TYPE = frozenset((dict, list, set, collections.deque, collections.OrderedDict, *SENTINEL_TYPES))


# ---- functions and code
def module_of(namespace: dict[str, Any]) -> str | None:
    """The name of the loaded module that this is the namespace of."""
    said = (namespace.get("__name__"), getattr(namespace.get("__spec__"), "name", None))
    return next((n for n in said if isinstance(n, str) and vars(sys.modules.get(n, object)) is namespace), None)


def _function(function: types.FunctionType, depth: int) -> Content:
    name = module_of(function.__globals__)
    if name is None:
        raise NotKept("no-name", f"the namespace of {function.__qualname__} is no module's")
    return [
        function.__module__,
        function.__qualname__,
        name,
        _code(function.__code__, depth),
        [_default(v, depth) for v in function.__defaults__ or ()],
        [[k, _default(v, depth)] for k, v in (function.__kwdefaults__ or {}).items()],
        str(markers.mark_of(function)),
        markers.substitute_of(function) is not None,
    ]


def _default(value: Any, depth: int) -> Content:
    """A default that is read has a guard of its own: of what has no content the type will do."""
    try:
        return _content(value, depth)
    except NotKept:
        return [type(value).__module__, type(value).__qualname__]


_codes: dict[tuple[int, bool], tuple[types.CodeType, Content]] = {}


def _code(code: types.CodeType, depth: int, *, read: bool = True) -> Content:
    """`read`: capture may have followed it, so that the order of its sets may matter."""
    known = _codes.get((id(code), read))
    if known is None:
        known = _codes[id(code), read] = code, _digest_of_code(code, depth, read)
    return known[1]


def _digest_of_code(code: types.CodeType, depth: int, read: bool) -> Content:
    """Of everything but the file and the lines."""
    if not _PROCESS_BOUND.isdisjoint(code.co_names):
        raise NotKept("process-bound", f"{code.co_qualname} reads what differs from process to process")
    ordered = read and _iterated_sets(code)
    parts = [
        code.co_qualname, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags,
        code.co_code.hex(), code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars,
        code.co_exceptiontable.hex(), [_constant(one, depth, ordered, read) for one in code.co_consts],
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


# Attributes whose values no guard tells, and that another process has other values of.
_PROCESS_BOUND = frozenset(("__hash__", "__sizeof__"))


def _constant(value: Any, depth: int, ordered: bool, read: bool) -> Content:
    if isinstance(value, types.CodeType):
        return _code(value, depth, read=read)
    if type(value) is frozenset and not ordered:
        return sorted(json.dumps(_constant(one, depth, ordered, read)) for one in value)
    if type(value) in (tuple, frozenset):
        return [type(value).__name__, *(_constant(one, depth, ordered, read) for one in value)]
    return ["constant", type(value).__name__, spelled(value)]


def _iterated_sets(code: types.CodeType) -> bool:
    """Whether a constant set is used otherwise than by `in`: its order, which processes differ in, may matter."""
    if not any(type(one) is frozenset for one in code.co_consts):
        return False
    steps = list(dis.get_instructions(code))
    uses = [after.opname for step, after in itertools.pairwise(steps) if type(step.argval) is frozenset]
    return any(name != "CONTAINS_OP" for name in uses)


# ---- classes
def _class(cls: type, depth: int) -> Content:
    """Of PyTorch's and Python's own classes the names: what is looked up in them has guards, as in any class."""
    bases = [[base.__module__, base.__qualname__] for base in cls.__mro__]
    own = [_members(base, depth) for base in cls.__mro__ if not standard_class(base)]
    return [bases, type(cls).__module__, type(cls).__qualname__, own]


_UNREAD = frozenset(("__doc__", "__dict__", "__weakref__", "__annotations__", "__firstlineno__", "__static_attributes__"))


def _members(cls: type, depth: int) -> Content:
    """What the class defines: code by content; values have guards where they are read, so their types will do."""
    return [[name, _member(value, depth)] for name, value in cls.__dict__.items() if name not in _UNREAD]


def _member(value: Any, depth: int) -> Content:
    match value:
        case types.FunctionType():
            return _code_of(value, depth)
        case property():
            return ["property", *(_code_of(one, depth) for one in (value.fget, value.fset, value.fdel))]
        case classmethod() | staticmethod():
            return [type(value).__name__, _code_of(value.__func__, depth)]
        case _:
            return [type(value).__module__, type(value).__qualname__]


def _code_of(function: Any, depth: int) -> Content:
    """A method that nobody read may do what it wants, so what has no content counts by its type, and sets have no order:
    the content of those that were read is told apart from their class."""
    if type(function) is not types.FunctionType:
        return [type(function).__module__, type(function).__qualname__]
    try:
        return [function.__qualname__, _code(function.__code__, depth, read=False)]
    except NotKept as refused:
        return [function.__qualname__, str(refused)]


# ---- others
def _named(obj: Any, depth: int) -> Content:
    """A function or a descriptor in C: which one it is."""
    owner = getattr(obj, "__self__", None)
    place = owner.__name__ if isinstance(owner, (types.ModuleType, type)) else type(owner).__qualname__
    of = getattr(obj, "__objclass__", None)
    return [getattr(obj, "__module__", None), obj.__name__, place, of.__qualname__ if isinstance(of, type) else None]


def _operator(operator: Any, depth: int) -> Content:
    name = str(operator)
    if name.partition(".")[0] not in ("aten", "prims"):
        raise NotKept("custom-operator", name)
    return [name]


def _partial(partial: functools.partial[Any], depth: int) -> Content:
    return [_content(partial.func, depth), [_content(a, depth) for a in partial.args],
            [[k, _content(v, depth)] for k, v in partial.keywords.items()]]  # fmt: skip


def _member_of_enum(member: enum.Enum, depth: int) -> Content:
    return [type(member).__module__, type(member).__qualname__, member.name, _default(member._value_, depth)]


_CONTENT: dict[type, Callable[[Any, int], Content]] = {
    tuple: lambda items, depth: [_content(item, depth) for item in items],
    types.FunctionType: _function,
    types.CodeType: lambda code, depth: [_code(code, depth)],
    type: _class,
    types.ModuleType: lambda module, depth: [module.__name__],
    types.BuiltinFunctionType: _named,
    types.MethodDescriptorType: _named,
    types.WrapperDescriptorType: _named,
    types.ClassMethodDescriptorType: _named,
    types.GetSetDescriptorType: _named,
    types.MemberDescriptorType: _named,
    property: lambda one, depth: [_member(one, depth)],
    classmethod: lambda one, depth: [_content(one.__func__, depth)],
    staticmethod: lambda one, depth: [_content(one.__func__, depth)],
    functools.cached_property: lambda one, depth: [one.attrname, _content(one.func, depth)],
    functools.partial: _partial,
    type(functools.lru_cache(len)): lambda one, depth: [_content(one.__wrapped__, depth)],
    enum.Enum: _member_of_enum,
    re.Pattern: lambda one, depth: [spelled(one.pattern), one.flags],
    OpOverload: _operator,
    OpOverloadPacket: _operator,
}
