"""Values of a graph as JSON: nodes, sizes, constants, operators.

In:     arguments of nodes, outputs.
Out:    `Writer`: JSON; `Reader`: the values again, or an exception of `READ_ERRORS`.
Holds:  sizes are Python expressions, finite numbers are JSON's, everything else has a word. Reading looks up operators
        of ATen (and of libraries that the caller names); nothing is imported, and nothing of the file runs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import fx

from pliant.autograd.places import FromInput, FromResult, Literal, Output, SameAs, ViewOf
from pliant.autograd.views import ViewStep
from pliant.entries import constants
from pliant.errors import ExportError, FileError
from pliant.exporting.allowed import is_allowed
from pliant.graph.effects import OURS, acts, refusal
from pliant.graph.special_calls import SPECIAL
from pliant.graph.unbacked import assume, check, unlearnt
from pliant.symbolic.expr import Expr, Symbol
from pliant.symbolic.parse import can_be_read, parse
from pliant.symbolic.printer import to_python
from pliant.symbolic.shape_env import ShapeEnv
from pliant.torch_adapter import OpOverload

Json = Any
READ_ERRORS = (
    ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError, OverflowError, RecursionError, MemoryError,
    NotImplementedError, AssertionError, ArithmeticError,
)  # fmt: skip
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
_PLAIN = (type(None), bool, int, str)
_FUNCTIONS: dict[str, Callable[..., Any]] = {"item": operator.getitem, "check": check, "assume": assume}
_NAMES = {function: name for name, function in _FUNCTIONS.items()}


# ---- writing
def written_value(value: Any) -> Json:
    """The JSON of an argument."""
    match value:
        case fx.Node():
            return {"node": value.name}
        case list() | tuple():
            return [written_value(one) for one in value]
        case torch.SymInt() | torch.SymFloat() | torch.SymBool():
            return {"size": written_expr(unlearnt(value))}
        case type() if issubclass(value, Exception) and value.__module__ == "builtins":
            return value.__name__
    if isinstance(value, _PLAIN) or type(value) is float and value - value == 0:
        return value
    if not constants.is_constant(value):
        raise unsaved(f"a {type(value).__qualname__} among the arguments of an operator")
    return {"constant": constants.spelled(value)}


def written_expr(e: Expr) -> str:
    if not can_be_read(e):
        raise unsaved(f"the number `{to_python(e)}`")
    return to_python(e)


def written_operator(target: Any) -> str:
    if isinstance(target, OpOverload) and target.namespace not in OURS:
        return str(target)
    if target not in _NAMES:
        raise unsaved(f"`{getattr(target, '__qualname__', target)}`, which is no operator of PyTorch")
    return _NAMES[target]


def written_output(output: Output) -> Json:
    match output:
        case FromInput(position):
            return {"input": position}
        case FromResult(position):
            return {"result": position}
        case Literal(value):
            return {"constant": constants.spelled(value)}
        case SameAs(place):
            return {"same": place}
        case ViewOf(source, steps):
            return {"view": written_output(source), "by": [_written_step(step) for step in steps]}
    raise unsaved(f"a result that is a {type(output).__name__}")


def _written_step(step: ViewStep) -> Json:
    args = [written_output(a) if isinstance(a, FromResult) else [_step_item(i) for i in a] if isinstance(a, list) else
            written_value(a) for a in step.args]  # fmt: skip
    return {"operator": written_operator(step.func), "args": args, "index": step.index,
            "kwargs": {name: written_value(value) for name, value in step.kwargs.items()}}  # fmt: skip


def _step_item(value: Any) -> Json:
    return written_output(value) if isinstance(value, FromResult) else written_value(value)


def unsaved(what: str) -> ExportError:
    """That a file has no form for something of a program."""
    return ExportError(f"the program cannot be saved: it has {what}", kind="unsaved", why="a file has no form for it")


# ---- reading
class Reader:
    """Reads values of one file. `symbols`: by name; `libraries`: whose operators may be looked up. Those of ATen may be whose
    kernels check what they are given; all of them, if ATen is among the libraries."""

    def __init__(self, env: ShapeEnv, symbols: Mapping[str, Symbol], libraries: Collection[str]) -> None:
        self.env, self.symbols, self.libraries = env, symbols, frozenset(libraries) | {"aten"}
        self.trusted = "aten" in libraries
        self.nodes: dict[str, fx.Node] = {}

    def value(self, json: Json) -> Any:
        if isinstance(json, list):
            return [self.value(one) for one in json]
        if not isinstance(json, dict):
            return json
        ((word, rest),) = json.items()
        match word:
            case "node":
                return self.nodes[rest]
            case "size":
                return self.env.as_written(self.expr(rest))
            case "constant":
                return constants.read(rest)
        raise ValueError(f"`{word}` is no kind of value")

    def expr(self, json: Json) -> Expr:
        return parse(json, self.symbols) if type(json) is str else parse(str(whole(json)), {})

    def number(self, json: Json) -> Any:
        """A size: a number or a symbolic one."""
        return self.env.wrap(self.expr(json))

    def operator(self, name: Json) -> Any:
        if type(name) is str and name in _FUNCTIONS:
            return _FUNCTIONS[name]
        namespace, packet, overload = name.split(".")
        if namespace not in self.libraries:
            raise _of_a_library(name, namespace)
        found = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
        if not isinstance(found, OpOverload) or found._schema.is_mutable or not _may_run(found):
            raise ValueError(f"`{name}` is no operator for a saved program")
        if not self.trusted and not is_allowed(found):
            raise _unchecked(name)
        return found

    def outputs(self, json: Json, inputs: int, results: int) -> tuple[Output, ...]:
        """What the leaves of the result are; of one that is an earlier one, the place of that."""
        found: list[Output] = []
        for one in json:
            match one:
                case {"same": int(place)} if 0 <= place < len(found):
                    found.append(SameAs(place))
                case _:
                    found.append(self.output(one, inputs, results))
        return tuple(found)

    def output(self, json: Json, inputs: int, results: int) -> Output:
        match json:
            case {"input": int(position)} if 0 <= position < inputs:
                return FromInput(position)
            case {"result": int(position)} if 0 <= position < results:
                return FromResult(position)
            case {"constant": rest}:
                return Literal(constants.read(rest))
            case {"view": source, "by": list(steps)}:
                start: Any = self.output(source, inputs, results)
                if not isinstance(start, (FromInput, FromResult)):
                    raise ValueError("a view of what is no tensor")
                return ViewOf(start, tuple(self._step(step, inputs, results) for step in steps))
        raise ValueError("no result")

    def _step(self, json: Json, inputs: int, results: int) -> ViewStep:
        def argument(one: Json) -> Any:
            if isinstance(one, list):
                return [argument(item) for item in one]
            is_result = isinstance(one, dict) and "result" in one
            return self.output(one, inputs, results) if is_result else self.value(one)

        index = json["index"]
        kwargs = {text(name): self.value(value) for name, value in json["kwargs"].items()}
        return ViewStep(
            self.operator(json["operator"]), tuple(map(argument, json["args"])), kwargs,
            None if index is None else whole(index), False,
        )  # fmt: skip


def _of_a_library(name: str, namespace: str) -> FileError:
    """The caller alone decides whose operators a file may call."""
    return FileError(
        f"the program calls `{name}`, which is no operator of ATen", kind="library",
        why="operators of a library run what the library does, so whoever loads a file names those that it may call",
        do=f"if you trust it: import what registers `{namespace}`, and pliant.load(path, libraries=({namespace!r},))",
        doc="docs/export.md#files",
    )  # fmt: skip


def _unchecked(name: str) -> FileError:
    return FileError(
        f"the program calls `{name}`, which is no operator that any file may call", kind="operator",
        why="its kernel is not known to check what it is given, so a made-up file could have it read memory of others",
        do="if you trust the file: pliant.load(path, libraries=('aten',))", doc="docs/export.md#files",
    )  # fmt: skip


def _may_run(func: Any) -> bool:
    known = func in SPECIAL or not refusal(func) or acts(func)
    return known and func.name() not in _FOREIGN and not func._schema.is_mutable


# They read files or memory that they are told the place of.
_FOREIGN = frozenset(
    ("aten::from_file", "aten::_cudnn_init_dropout_state", "aten::_nested_view_from_buffer", "aten::_reshape_alias")
)


def whole(json: Json) -> int:
    if type(json) is not int or abs(json) >= 2**63:
        raise ValueError(f"{json!r} is no number")
    return json


def text(json: Json) -> str:
    if type(json) is not str:
        raise ValueError(f"{json!r} is no text")
    return json
