"""What a program's patterns would do, as content of the entries that depend on them.

In:     a `Pattern`.
Out:    `pattern_content(pattern)`; `NotKept` where its functions read what has no content.
Holds:  no guard watches what these functions read, as they run while graphs are compiled: all of it is content. They may read
        constants, functions of the same kind, and modules and functions of PyTorch, Python's builtins and `math`.
"""

from __future__ import annotations

import builtins
import math
import operator
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from pliant.entries.constants import spelled
from pliant.entries.content import Content, NotKept, content

if TYPE_CHECKING:
    from pliant.patterns.pattern import Pattern

_MODULES = (torch, math, operator, builtins)
_NAMED = (types.FunctionType, types.BuiltinFunctionType, type)


def pattern_content(pattern: Pattern) -> Content:
    """All that decides what is found and what takes its place."""
    functions = [one for one in (pattern.search, pattern.replacement, pattern.check) if one is not None]
    example = [[str(one.dtype), list(one.shape), list(one.stride()), str(one.device)] for one in pattern.example]
    numbers = [[name, spelled(value)] for name, value in pattern.numbers.items()]
    return [pattern.name, pattern.shared, example, numbers, [_function(one, ()) for one in functions]]


def _function(function: Any, callers: tuple[Any, ...]) -> Content:
    if type(function) is not types.FunctionType:
        raise NotKept("no-content", f"a pattern calls a {type(function).__qualname__}")
    if function in callers:
        return ["again", callers.index(function)]
    read = [[name, _read(name, value, (*callers, function))] for name, value in _names(function)]
    return [content(function), read]


def _names(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """What the function reads beside its arguments."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or ())
    yield from ((name, cell.cell_contents) for name, cell in cells)
    names = {name: None for code in _codes(function.__code__) for name in code.co_names}
    if "ops" in names:
        raise NotKept("no-content", f"{function.__qualname__} calls operators by name, whose derivatives no one watches")
    yield from ((name, function.__globals__[name]) for name in names if name in function.__globals__)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _read(name: str, value: Any, callers: tuple[Any, ...]) -> Content:
    if value is None or spelled(value) is not None:
        return ["constant", spelled(value)]
    if isinstance(value, types.ModuleType):
        root = value.__name__.partition(".")[0]
        if root in {module.__name__ for module in _MODULES}:
            return ["module", value.__name__]
    elif isinstance(value, _NAMED) and (value.__module__ or "").partition(".")[0] == "torch":
        return ["torch", value.__module__, value.__qualname__]
    elif type(value) is types.FunctionType:
        return _function(value, callers)
    raise NotKept("no-content", f"a pattern reads `{name}`, a {type(value).__qualname__}")
