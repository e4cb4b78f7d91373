"""Objects and classes that mean something by being themselves: Python's own and PyTorch's."""

from __future__ import annotations

import contextvars
import dataclasses
import datetime
import enum
import functools
import operator
import re
import struct
import sys
import types
import weakref
from typing import Any

import torch

from pliant.torch_adapter import HigherOrderOperator, OpOverload, OpOverloadPacket

LRU_CACHE = type(functools.lru_cache(len))

_OF_NUMPY = frozenset(("ufunc", "_ArrayFunctionDispatcher"))


def is_numpy_function(cls: type) -> bool:
    """Whether it is a class of NumPy's functions: objects in C, each of which is itself alone. NumPy need not be loaded."""
    return cls.__name__ in _OF_NUMPY and cls.__module__ == "numpy"


# Objects of the standard library that mean something by being themselves.
SENTINEL_TYPES = tuple(type(getattr(dataclasses, name)) for name in ("MISSING", "_HAS_DEFAULT_FACTORY", "_FIELD"))


@functools.cache
def identity_types() -> tuple[type, ...]:
    """Objects of these types never change what they mean: knowing which one it is is knowing it. Asked for by what compiles: what
    finds compiled code does not load `decimal`."""
    import decimal

    return (
        type,
        types.FunctionType,
        types.BuiltinFunctionType,
        types.ModuleType,
        types.MethodDescriptorType,
        types.WrapperDescriptorType,
        types.ClassMethodDescriptorType,
        types.GetSetDescriptorType,
        types.MemberDescriptorType,
        types.MethodWrapperType,
        types.CodeType,
        property,
        classmethod,
        staticmethod,
        functools.partial,
        LRU_CACHE,
        enum.Enum,
        re.Pattern,
        re.Match,
        datetime.date,
        datetime.time,
        datetime.timedelta,
        datetime.tzinfo,
        decimal.Decimal,
        weakref.ref,
        contextvars.ContextVar,
        types.GenericAlias,
        types.UnionType,
        OpOverload,
        OpOverloadPacket,
        HigherOrderOperator,
        torch.Generator,
        functools.singledispatchmethod,
        functools.cached_property,
        type(functools.cmp_to_key(max)),
        operator.attrgetter,
        operator.itemgetter,
        operator.methodcaller,
        struct.Struct,
    )


def can_change(cls: type) -> bool:
    """Whether it was made at run time, as by a class statement: classes that are part of a program in C do not change."""
    return bool(cls.__flags__ & 1 << 9)  # Py_TPFLAGS_HEAPTYPE


def is_immutable(cls: type) -> bool:
    """Whether Python refuses to change its attributes."""
    return bool(cls.__flags__ & 1 << 8)  # Py_TPFLAGS_IMMUTABLETYPE


def standard_globals(namespace: dict[str, Any]) -> bool:
    """Whether a namespace is of a module of PyTorch or the standard library."""
    name = namespace.get("__name__")
    return isinstance(name, str) and standard_module(name)


def standard_class(cls: type) -> bool:
    """Whether all classes along the MRO are PyTorch's or the standard library's."""
    return all(standard_module(base.__module__) for base in cls.__mro__ if isinstance(base.__module__, str))


@functools.cache
def standard_module(name: str) -> bool:
    """Whether it is PyTorch's, the standard library's, or ours."""
    top = name.partition(".")[0]
    return top in ("torch", "builtins", "pliant") or (top in sys.stdlib_module_names and top != "__main__")
