"""`contextvars.ContextVar`: read under guards, set at the end of the entry.

In:     the methods `get`, `set` and `reset` of variables from outside.
Out:    traced values; a store for each variable that the trace leaves with another value.
Holds:  what is set and reset within the trace is not seen outside.
"""

from __future__ import annotations

import contextvars
from typing import Any

from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import ContextSource, context_value
from pliant.records import dataclass

_PLACE = "value"  # under which the world keeps what the trace stored


@dataclass(eq=False)
class TracedToken:
    """What `set` returned during the trace; `before`: what the trace had stored, MISSING if nothing."""

    var: contextvars.ContextVar[Any]
    value: Any
    before: Any


def call_context_variable(t: Tracer, var: contextvars.ContextVar[Any], name: str, args: Args, kwargs: Kwargs) -> Any:
    """var.name(*args)"""
    if kwargs or not t.world.is_foreign(var):
        raise GraphBreak("unknown-call", f"the method {name} of a context variable")
    match name, args:
        case "get", ():
            return _get(t, var, MISSING)
        case "get", (default,):
            return _get(t, var, default)
        case "set", (value,):
            token = TracedToken(var, value, t.world.slot_get(var, _PLACE))
            t.world.slot_set(var, _PLACE, value, "context")
            return token
        case "reset", (TracedToken() as token,) if token.var is var:
            t.world.slot_set(var, _PLACE, token.before, "context")
            return None
    raise GraphBreak("unknown-call", f"the method {name} of a context variable")


def _get(t: Tracer, var: contextvars.ContextVar[Any], default: Any) -> Any:
    stored = t.world.slot_get(var, _PLACE)
    if stored is not MISSING:
        return stored
    source, value = ContextSource(t.world.place_of(var)), context_value(var)
    if value is not MISSING:
        return t.world.bring(value, source)
    t.world.guard(source, Kind.IDENTITY, MISSING)
    if default is not MISSING:
        return default
    try:
        return contextvars.Context().run(var.get)
    except LookupError as error:
        raise Raised(error.with_traceback(None)) from None
