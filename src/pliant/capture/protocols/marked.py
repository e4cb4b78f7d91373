"""Calls of functions that users marked, under capture.

In:     a callable that the tracer is about to call.
Out:    what to do: follow another callable, or the result.
Holds:  compiled functions and modules stand for what they were made from; everything unmarked comes back as it is.
"""

from __future__ import annotations

from typing import Any

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.value_kinds import is_class, is_function, is_str
from pliant.debug import events
from pliant.dispatch import markers
from pliant.dispatch.entry import Answer
from pliant.dispatch.markers import Mark
from pliant.graph.fake_tensor import is_fake
from pliant.guards.kinds import Kind
from pliant.guards.sources import held
from pliant.torch_adapter import PEER, DisableTorchFunction, without_dispatch_modes

NOT_MARKED: Any = object()


def resolve(t: Tracer, function: Any) -> Any:
    """What is to be followed in place of the callable: its substitute, or what a compiled function was made from."""
    found = markers.substitute_of(function)
    if found is None:
        found = markers.original_of(function)
    if found is function:
        return function
    source = t.world.source_of(function)
    if source is not None:
        t.world.guard(source, Kind.IDENTITY, function)
    if t.world.source_of(found) is None:
        t.world.hold(found, getattr(found, "__qualname__", type(found).__qualname__))
    return found


def call_marked(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """The result of calling a marked function; NOT_MARKED if it has no mark."""
    mark = markers.mark_of(function)
    if mark is None:
        _warn_of_what_is_not_honoured(function)
        return NOT_MARKED
    name = getattr(function, "__qualname__", str(function))
    match mark:
        case Mark.DISABLED:
            raise GraphBreak("user-request", _with(f"{name} is disabled for compilation", markers.reason_of(function)))
        case Mark.BREAK:
            raise GraphBreak("user-request", _with(f"{name} was called", _message(function, args, kwargs)))
        case Mark.IN_GRAPH:
            return _in_graph(t, function, args, kwargs)
        case Mark.CONSTANT:
            return _constant(t, function, name, args, kwargs)


def _message(function: Any, args: Args, kwargs: Kwargs) -> Any:
    """What the program says of the break, where it asks for one."""
    return next(iter((*args, kwargs.get("msg", "")))) if function.__name__ == "graph_break" else ""


def _with(what: str, reason: Any) -> str:
    return f"{what}: {reason}" if is_str(reason) and reason else what


def _warn_of_what_is_not_honoured(function: Any) -> None:
    if not (is_function(function) or is_class(function)):  # others are not asked: they may answer anything
        return
    name, module = "error_on_graph_break", f"{PEER}.decorators"
    if function.__name__ == name and function.__module__ == module:
        events.warn_once(name, f"{PEER}.{name} inside a compiled function does nothing; put it around the call")


def _in_graph(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """One node: the function runs on fake tensors unseen by the recorder."""
    args, kwargs = t.internalize((args, dict(kwargs)))
    with DisableTorchFunction():
        result = function(*args, **kwargs)
    return t.recorder.record(_named(function), args, kwargs, result)


def _named(function: Any) -> Any:
    """The callable; an object without a name, which nodes need, in a function that has its class's."""
    if hasattr(function, "__name__"):
        return function

    def called(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    called.__name__ = called.__qualname__ = type(function).__name__
    return called


def _constant(t: Tracer, function: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    values = [t.concrete_tree(a) for a in (*args, *kwargs.values())]
    if any(map(is_fake, values)):
        raise GraphBreak("unknown-call", f"{name} is marked constant, but its arguments are computed here")
    with DisableTorchFunction(), without_dispatch_modes():
        result = function(*values[: len(args)], **dict(zip(kwargs, values[len(args) :])))
    t.answers.append(Answer(function, tuple(values[: len(args)]), dict(zip(kwargs, values[len(args) :])), result))
    return t.world.bring(result, held(result, f"{name}()"))
