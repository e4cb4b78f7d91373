"""The tables of callables that are not simply interpreted, and how rows get there.

In:     the `Rows` of each module, which `fill` puts together (`capture/callables.py` lists the modules).
Out:    `find(function)`: the row, if there is one.
Holds:  a callable has one row.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from pliant import arity
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.recording.torch_calls import call_torch
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.value_kinds import is_function, is_of_program, module_of
from pliant.tables import Table

Handler = Callable[["Tracer", Args, Kwargs], Any]
Rule = Callable[..., Any]
ClassHandler = Callable[["Tracer", Any, Args, Kwargs], Any]
ModuleRule = Callable[[types.FunctionType], Any]


def spread(rule: Rule, *first: Any) -> Handler:
    """The handler of a rule that has the callable's own parameters, behind the tracer and what is given here."""

    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
        if not _takes(rule, 1 + len(first) + len(args), kwargs):
            raise GraphBreak("bad-call", "the arguments do not fit")
        return rule(t, *first, *args, **kwargs)

    return handler


def refusal(kind: str, detail: str, do: str = "") -> Handler:
    """The handler, or another rule, of what leads out of every graph."""

    def handler(*given: Any) -> NoReturn:
        raise GraphBreak(kind, detail, do)

    return handler


def _instead(function: Any, rule: Rule) -> Handler:
    def handler(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
        made = rule(t, *args, **kwargs) if _takes(rule, 1 + len(args), kwargs) else None
        return call_torch(t, function, args, kwargs) if made is None else t.call(made[0], made[1], {})

    return handler


def _takes(rule: Rule, count: int, kwargs: Kwargs) -> bool:
    known = arity.of(rule)
    return known is None or known.takes(count, kwargs)


class _Callables(Table[Any, Handler]):
    """Rows by callable. A Python function of the program's that lies where a row's callable was, since before Pliant was loaded,
    gets none: what it does is what it says."""

    def __setitem__(self, function: Any, handler: Handler) -> None:
        if not is_of_program(function) or module_of(function) in _DECORATING:
            super().__setitem__(function, handler)


_DECORATING = ("typing_extensions",)  # some of PyTorch's own functions wear decorators of these modules


class Rows:
    """What one module says.

    `callables`: how they are called. `classes`: how classes written in C are instantiated. `modules`: for Python functions of
    these modules, a function that says how they are called (None: interpreted as any other).
    """

    def __init__(self) -> None:
        self.callables: Table[Any, Handler] = _Callables()
        self.handles = self.callables.row
        self.classes: Table[Any, ClassHandler] = Table()
        self.modules: Table[str, ModuleRule] = Table()

    def takes(self, *functions: Any) -> Callable[[Rule], Rule]:
        """The same for a rule that has their parameters, behind the tracer."""

        def add(rule: Rule) -> Rule:
            self.handles(*functions)(spread(rule))
            return rule

        return add

    def instead(self, *functions: Any) -> Callable[[Rule], Rule]:
        """The decorated rule has their parameters, and gives (what is called in their place, its arguments). Where it gives
        None, and for arguments that it does not take, the first of them is recorded."""

        def add(rule: Rule) -> Rule:
            self.handles(*functions)(_instead(functions[0], rule))
            return rule

        return add

    def each(self, functions: Iterable[Any], rule: Rule, *more: Any) -> None:
        """One rule for all of them, which gets the callable first."""
        for function in functions:
            self.callables[function] = functools.partial(rule, function, *more)

    def refuses(self, functions: Iterable[Any], kind: str, detail: str, do: str = "") -> None:
        """Calls of them are graph breaks; `{}` in the detail is the function's name."""
        for function in functions:
            told = detail.format(getattr(function, "__qualname__", function))
            self.callables[function] = refusal(kind, told, do)

    def add(self, rows: Rows) -> None:
        self.callables.add(rows.callables)
        self.classes.add(rows.classes)
        self.modules.add(rows.modules)


ALL = Rows()


def find(function: Any) -> Handler | None:
    """The handler of this very callable."""
    hashes: Any = type(function).__hash__
    if hashes is not object.__hash__ and is_of_program(hashes):
        return None  # an object of the program
    try:
        found = ALL.callables.get(function)
    except (TypeError, ValueError):  # unhashable, as a writable memoryview says
        return None
    if found is None and is_function(function) and "_torchdynamo_orig_callable" in function.__dict__:
        return find(function.__dict__["_torchdynamo_orig_callable"])  # PyTorch disables some of its own for its compiler
    return found


def find_special(function: types.FunctionType) -> Any:
    """How a function is called whose module has rules of its own; None if it has none."""
    module = module_of(function)
    package = ".".join(module.split(".")[:2]) if module.startswith("torch.") else module
    rule = ALL.modules.get(package)
    return None if rule is None else rule(function)
