"""The tables of callables that are not simply interpreted, and how rows get there.

In:     `handles(function, ...)` adds a row; `CLASSES` says how classes written in C are instantiated.
Out:    `find(function)`: the row, if there is one.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.torch_calls import constant_answers
from pliant.guards.standard import standard_globals

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Handler = Callable[["Tracer", Args, Kwargs], Any]
TABLE: dict[Any, Handler] = {}
ClassHandler = Callable[["Tracer", Any, Args, Kwargs], Any]
CLASSES: dict[Any, ClassHandler] = {}


def handles(*functions: Any) -> Callable[[Handler], Handler]:
    def add(handler: Handler) -> Handler:
        for function in functions:
            TABLE[function] = handler
        return handler

    return add


def find(function: Any) -> Handler | None:
    """The handler of this very callable."""
    hashed = type(function).__hash__
    if isinstance(hashed, types.FunctionType) and not standard_globals(hashed.__globals__):
        return None  # an object of the program
    try:
        found = TABLE.get(function)
    except TypeError:  # unhashable callable
        return None
    if found is None and type(function) is types.FunctionType and "_torchdynamo_orig_callable" in function.__dict__:
        return find(
            function.__dict__["_torchdynamo_orig_callable"]
        )  # PyTorch disables some of its own for its compiler
    if found is None and type(function) in (types.FunctionType, types.BuiltinFunctionType):
        answers = constant_answers()
        if function in answers:
            return lambda t, args, kwargs: answers[function]
    return found
