"""What users said about functions: do not capture, put in the graph, constant result, substitute.

In:     `pliant.disable`, `allow_in_graph` and their kin; the attributes that torch's own markers leave on functions.
Out:    questions that the tracer asks of a callable.
Holds:  marks are by identity and keep the function alive; a mark made later wins over an earlier one.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from enum import Enum, auto
from typing import Any

import torch

from pliant import peer
from pliant.torch_adapter import PEER


class Compiled:
    """Base of the classes of compiled objects: a class can be asked for it without running its metaclass."""

    __slots__ = ()


class Mark(Enum):
    """How calls of a marked function are captured."""

    DISABLED = auto()  # never: a graph break, and what it calls runs eagerly
    IN_GRAPH = auto()  # as one call in the graph, not followed
    CONSTANT = auto()  # at capture; its result is a constant
    BREAK = auto()  # a graph break at the call


_marks: dict[int, tuple[Any, Mark, str | None]] = {}  # with the reason that was given
_substitutes: dict[int, tuple[Any, Callable[..., Any]]] = {}


# Attributes that PyTorch's own markers leave on functions.
_OF_TORCH = {"_torchdynamo_disable": Mark.DISABLED, "_dynamo_marked_constant": Mark.CONSTANT}
_REASON_OF_TORCH = "_torchdynamo_disable_msg"
# Attributes in which its wrappers keep what they wrap.
_WRAPPED_BY_TORCH = ("__marked_compile_region_fn__", "_torchdynamo_orig_callable")


def mark(fn: Any, how: Mark, reason: str | None = None) -> None:
    _marks[id(fn)] = (fn, how, reason)


def reason_of(fn: Any) -> str:
    """Why the callable was marked, where that was said."""
    found = _marks.get(id(fn))
    if found is not None:
        return found[2] or ""
    reason = fn.__dict__.get(_REASON_OF_TORCH) if type(fn) is types.FunctionType else None
    return reason if isinstance(reason, str) else ""


def substitute(original: Any, traceable: Callable[..., Any]) -> None:
    """Calls of `original` are captured as calls of `traceable`."""
    _substitutes[id(original)] = (original, traceable)


def mark_of(fn: Any) -> Mark | None:
    """The mark on a callable; torch's markers count too."""
    found = _marks.get(id(fn))
    if found is not None:
        return found[1]
    tables = peer.tables_with(fn)
    if "disallowed" in tables:
        return Mark.BREAK
    if type(fn) is not types.FunctionType:
        return None
    if "allowed" in tables:
        return Mark.IN_GRAPH
    if fn.__name__ == "graph_break" and fn.__module__ == f"{PEER}.decorators":
        return Mark.BREAK
    if not fn.__dict__ or _disabled_by_torch_itself(fn):
        return None
    return next((how for name, how in _OF_TORCH.items() if fn.__dict__.get(name)), None)


def _disabled_by_torch_itself(fn: types.FunctionType) -> bool:
    """Whether it is a function of PyTorch, kept from PyTorch's compiler once that is loaded; a user said nothing."""
    original = fn.__dict__.get("_torchdynamo_orig_callable")
    return type(original) is types.FunctionType and str(original.__module__).startswith("torch.")


def is_marked(fn: Any) -> bool:
    """Whether anything was said about this very function."""
    return id(fn) in _marks or id(fn) in _substitutes


def substitute_of(fn: Any) -> Callable[..., Any] | None:
    """What stands for the callable under capture."""
    found = _substitutes.get(id(fn))
    return found[1] if found is not None else None


ORIGINAL = "__pliant_original__"  # in the `__dict__` of a compiled function


def is_ours(function: types.FunctionType) -> bool:
    """Whether the compiler made it: one that `functools.wraps` made like it has its attributes, but not its globals."""
    return function.__globals__.get("__name__") == "pliant.dispatch.compiled_function"


def original_of(compiled: Any) -> Any:
    """What was compiled, by Pliant, `torch.compile` or `torch.jit.script`, if the object is a compiled function or
    module; else the object itself."""
    if type(compiled) is types.FunctionType:
        if is_ours(compiled):
            return compiled.__dict__.get(ORIGINAL, compiled)
        if compiled.__module__ == f"{PEER}.mutation_guard" and compiled.__name__ == "patched_init":
            return inspect.getclosurevars(compiled).nonlocals["init"]  # nn.Module.__init__, once the peer was used
        if not compiled.__dict__:
            return compiled
        if compiled.__dict__.get("_torchdynamo_disable") and not _disabled_by_torch_itself(compiled):
            return compiled
        return next((compiled.__dict__[name] for name in _WRAPPED_BY_TORCH if name in compiled.__dict__), compiled)
    if type(compiled).__name__ == "OptimizedModule" and type(compiled).__module__ == peer.EVAL_FRAME:
        disabled = type(compiled.__dict__.get("dynamo_ctx")).__name__ == "DisableContext"
        return compiled if disabled else compiled._orig_mod
    if issubclass(type(compiled), Compiled):
        return compiled._orig_mod
    if issubclass(type(compiled), torch.jit.ScriptFunction):
        return compiled.__dict__.get("_torchdynamo_inline", compiled)
    return compiled


def forget() -> None:
    """Drop all marks (tests)."""
    _marks.clear()
    _substitutes.clear()
