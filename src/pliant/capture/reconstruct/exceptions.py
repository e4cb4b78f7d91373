"""How exceptions are made again: their arguments, the fields that classes in C keep beside these, and what they are chained to.

In:     an exception of the trace, the class in C whose memory it has, and the `Statements` it is for.
Out:    the statements. No `__new__`, `__init__` or `__setattr__` of the program's classes runs.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator
from typing import Any

from pliant.capture.reconstruct.statements import Statements
from pliant.capture.value_kinds import exactly
from pliant.guards.standard import can_change

_CHAIN = ("__traceback__", "__cause__", "__context__", "__suppress_context__")
_is_field = exactly(types.MemberDescriptorType, types.GetSetDescriptorType)


def new_exception(b: Statements, obj: BaseException, base: Any) -> str:
    """An empty one; groups are made with what they hold, which nothing changes later."""
    given = ""
    if isinstance(obj, BaseExceptionGroup):
        given = f", {b.value(_read(BaseExceptionGroup, obj, 'message'))}, [{b.items(_read(BaseExceptionGroup, obj, 'exceptions'))}]"
    return f"{b.hold(base)}.__new__({b.value(type(obj))}{given})"


def fill_exception(b: Statements, obj: BaseException, name: str) -> None:
    for base, field in _fields(type(obj)):
        value = _read(base, obj, field)
        if value is not None:
            b.fill(functools.partial(_store, b, obj, name, base, field, value))
    if obj.__suppress_context__ and obj.__cause__ is None:
        b.lines.append(f"{name}.__suppress_context__ = True")


def _fields(cls: type) -> Iterator[tuple[type, str]]:
    """What instances of the classes in C keep, in the order in which it is stored."""
    for base in cls.__mro__:
        if base in (BaseExceptionGroup, BaseException) or can_change(base):
            continue
        for field, descriptor in vars(base).items():
            if _is_field(descriptor) and not field.startswith("__"):
                yield base, field
    yield from ((BaseException, field) for field in ("args", *_CHAIN[:-1]))


def _read(base: type, obj: BaseException, field: str) -> Any:
    try:
        return vars(base)[field].__get__(obj)
    except AttributeError:
        return None  # unset


def _store(b: Statements, obj: BaseException, name: str, base: type, field: str, value: Any) -> str:
    """As a statement of Python's, unless a class of the program's says what that does."""
    own = type(obj).__setattr__ is not BaseException.__setattr__
    if own or inspect.getattr_static(type(obj), field) is not vars(base)[field]:
        return f"{b.hold(base)}.{field}.__set__({name}, {b.value(value)})"
    return f"{name}.{field} = {b.value(value)}"
