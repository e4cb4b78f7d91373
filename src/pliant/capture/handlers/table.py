"""The tables of callables that are not simply interpreted, and how rows get there.

In:     the `Rows` of each module, which `fill` puts together (`capture/callables.py` lists the modules).
Out:    `find(function)`: the row, if there is one.
Holds:  a callable has one row.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.torch_calls import constant_answers
from pliant.guards.standard import standard_globals
from pliant.tables import Table

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Handler = Callable[["Tracer", Args, Kwargs], Any]
ClassHandler = Callable[["Tracer", Any, Args, Kwargs], Any]
ModuleRule = Callable[[types.FunctionType], Any]


class Rows:
    """What one module says.

    `callables`: how they are called. `classes`: how classes written in C are instantiated. `modules`: for Python functions of
    these modules, a function that says how they are called (None: interpreted as any other).
    """

    def __init__(self) -> None:
        self.callables: Table[Any, Handler] = Table()
        self.classes: Table[Any, ClassHandler] = Table()
        self.modules: Table[str, ModuleRule] = Table()

    def handles(self, *functions: Any) -> Callable[[Handler], Handler]:
        """The decorated function is the row of these callables."""

        def add(handler: Handler) -> Handler:
            for function in functions:
                self.callables[function] = handler
            return handler

        return add

    def add(self, rows: Rows) -> None:
        self.callables.add(rows.callables)
        self.classes.add(rows.classes)
        self.modules.add(rows.modules)


ALL = Rows()


def find(function: Any) -> Handler | None:
    """The handler of this very callable."""
    hashed = type(function).__hash__
    if isinstance(hashed, types.FunctionType) and not standard_globals(hashed.__globals__):
        return None  # an object of the program
    try:
        found = ALL.callables.get(function)
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


def find_special(function: types.FunctionType) -> Any:
    """How a function is called whose module has rules of its own; None if it has none."""
    module = function.__globals__.get("__name__")
    if not isinstance(module, str) or not module.startswith("torch."):
        return None
    package = ".".join(module.split(".")[:2])
    rule = ALL.modules.get(package)
    return None if rule is None else rule(function)
