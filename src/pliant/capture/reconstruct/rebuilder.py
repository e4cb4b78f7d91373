"""Objects of a trace -> Python statements of the entry that make them again.

In:     a value as the traced program saw it.
Out:    `Rebuilder.value(obj)`: an expression; the statements it needs are appended to `lines`.
Holds:  what existed before the trace is loaded by its source, once; what the trace made is made anew, with its
        identity, sharing and cycles; no user code runs (no `__init__`, `__setitem__`, `__setattr__` of the program's
        classes). Anything else raises `CannotReconstruct`.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import inspect
import re
import types
from typing import Any

import torch

from pliant.capture.numbers.array_memory import is_array
from pliant.capture.reconstruct import classes, generators, instances, objects
from pliant.capture.reconstruct.statements import CannotReconstruct, Recipe, Statements
from pliant.capture.trace import NULL
from pliant.capture.value_kinds import ByKind, is_numpy_scalar
from pliant.guards.facts import PLAIN
from pliant.guards.standard import SENTINEL_TYPES, can_change
from pliant.torch_adapter import OpOverload, OpOverloadPacket

# Kept by reference: immutable, or global by nature.
_ATOMS: tuple[type, ...] = (
    *PLAIN, *SENTINEL_TYPES, complex, enum.Enum, types.ModuleType, types.CodeType, re.Pattern, re.Match,
    datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, decimal.Decimal, inspect.Signature,
    inspect.Parameter, types.GenericAlias, OpOverload, OpOverloadPacket, torch.finfo, torch.iinfo,
)  # fmt: skip


_DESCRIPTORS = (
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
)


def _object(b: Statements, obj: Any) -> str:
    if obj is NULL:
        raise CannotReconstruct("null-on-stack", obj)
    if hasattr(type(obj), "n_sequence_fields"):
        return objects.struct_sequence(b, obj)
    if is_array(obj):
        return objects.array(b, obj)
    return objects.atom(b, obj) if is_numpy_scalar(obj) else instances.instance(b, obj)


def _scalar(b: Statements, obj: Any) -> str:
    """A string or a number: itself, but of a class of the program each call makes its own."""
    shared = not can_change(type(obj)) or isinstance(obj, enum.Enum)
    return objects.atom(b, obj) if shared else instances.instance(b, obj)


def _tensor(b: Statements, obj: torch.Tensor) -> str:
    raise CannotReconstruct("unknown-tensor", obj)


_RECIPES: ByKind[Recipe] = ByKind(
    _object,
    {**objects.RECIPES, **generators.RECIPES},
    {
        **dict.fromkeys((*_ATOMS, *_DESCRIPTORS), objects.atom),
        torch.Tensor: _tensor,
        type: classes.class_,
        **dict.fromkeys((int, str, bytes), _scalar),
    },
)


class Rebuilder(Statements):
    recipes = _RECIPES
