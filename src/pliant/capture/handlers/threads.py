"""Locks, context variables, and which thread this is.

In:     uses of a lock that other threads may hold too, or of one that the trace made; the methods `get`, `set` and `reset` of
        context variables from outside.
Out:    a trace that says which lock its entry must hold. Context variables are read under guards, and set at the end of the
        entry where the trace leaves them with another value.
Holds:  an entry holds the lock from before its guards until its effects are done: whatever the program reads and writes
        under the lock, it does under the lock. A trace that breaks while or after it uses a lock, or that
        ends while it holds it, is cut before that use.
        One that the trace made works as any of its objects, but capture never waits for it.
        A lock that was taken before the trace is released when the effects are done, and none is taken behind it.
        What is set and reset within the trace is not seen outside.
        Behind a break in a block of a lock, the compiler runs while the program holds the lock. So no break is in a function that
        holds one which the compiler's own threads take as they start: such a call is left to Python.
"""

from __future__ import annotations

import _thread
import contextvars
import types
from typing import Any

from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.handlers.table import Rows, spread
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.value_kinds import LOCKS
from pliant.guards.contexts import ContextSource, DefaultSource, context_default, context_value
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import MethodSource, question
from pliant.records import dataclass
from pliant.source import SourceLocation

ROWS = Rows()


@dataclass(slots=True)
class UsedLock:
    """The lock of a trace. `step`: the operation at which it was first taken, in a frame that can be cut."""

    lock: Any
    step: int
    where: SourceLocation | None
    depth: int = 0


def call_lock_method(t: Tracer, lock: Any, name: str, args: Args) -> Any:
    """A method of a lock from outside."""
    if name in ("__enter__", "acquire") and not args:
        return _take(t, lock)
    used = t.lock
    if name in ("__exit__", "release") and used is not None and used.lock is lock and used.depth:
        used.depth -= 1
        return None
    source = t.world.source_of(lock)
    if name in ("__exit__", "release") and used is None and source is not None and not t.released:
        held = LOCKS[type(lock)].held
        if getattr(lock, held)():
            t.world.guard(MethodSource(source, held), Kind.EQUALS, True)
            t.released.append(lock)
            return None
    raise GraphBreak("unknown-call", f"the method {name} of a {type(lock).__name__}")


def check_own(lock: Any, name: str, args: Args, kwargs: Kwargs) -> None:
    """Break where the program would wait for a lock that it made itself: until another thread, or nobody, releases it."""
    if name in ("__enter__", "acquire") and not LOCKS[type(lock)].reentrant and lock.locked():
        if args != (False,) and kwargs != {"blocking": False}:
            raise GraphBreak("unknown-call", "a lock is taken that the program holds")


def _take(t: Tracer, lock: Any) -> bool:
    source, step = t.world.source_of(lock), t.step_to_cut()
    if source is None or t.released or step is None or t.lock is not None and t.lock.lock is not lock:
        raise GraphBreak("unknown-call", "a lock is taken")
    if t.lock is None:
        t.world.guard(source, Kind.IDENTITY, lock)
        t.lock = UsedLock(lock, step, t.location())
    if t.lock.depth and not LOCKS[type(lock)].reentrant:
        raise GraphBreak("unknown-call", "a lock is taken that the program holds")
    t.lock.depth += 1
    return True


# By module: names of the standard library's own locks that every thread may need, and of what takes them.
_SHARED = {
    "threading": {"_active_limbo_lock", "_shutdown_locks_lock"},
    "logging": {"_lock", "_acquireLock"},
    "tempfile": {"_once_lock"},
}


def takes_shared_lock(function: types.FunctionType) -> bool:
    names = _SHARED.get(function.__globals__.get("__name__", ""))
    return names is not None and not names.isdisjoint(function.__code__.co_names)


ROWS.callables[_thread.get_ident] = spread(lambda t: t.world.bring(_thread.get_ident(), question(_thread.get_ident)))


# ---- context variables
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
    place, value = t.world.place_of(var), context_value(var)
    source = ContextSource(place)
    if value is not MISSING:
        return t.world.bring(value, source)
    t.world.guard(source, Kind.IDENTITY, MISSING)
    if default is not MISSING:
        return default
    try:
        given = context_default(var)
    except LookupError as error:
        raise Raised(error.with_traceback(None)) from None
    return t.world.bring(given, DefaultSource(place))
