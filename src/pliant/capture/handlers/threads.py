"""Locks, and which thread this is.

In:     uses of a lock that other threads may hold too, or of one that the trace made.
Out:    a trace that says which lock its entry must hold.
Holds:  an entry holds the lock from before its guards until its effects are done: whatever the program reads and writes
        under the lock, it does under the lock. A trace that breaks while or after it uses a lock, or that
        ends while it holds it, is cut before that use.
        One that the trace made works as any of its objects, but capture never waits for it.
        A lock that was taken before the trace is released when the effects are done, and none is taken behind it.
"""

from __future__ import annotations

import _thread
from typing import Any

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows, spread
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.value_kinds import LOCKS
from pliant.guards.kinds import Kind
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
    source = t.world.source_of(lock)
    linked = [frame.linked for frame in t.frames]
    cut = linked.index(False) if False in linked else len(linked)
    if source is None or t.released or cut == 0 or t.lock is not None and t.lock.lock is not lock:
        raise GraphBreak("unknown-call", "a lock is taken")
    if t.lock is None:
        t.world.guard(source, Kind.IDENTITY, lock)
        t.lock = UsedLock(lock, t.frames[cut - 1].steps_at_op, t.location())
    if t.lock.depth and not LOCKS[type(lock)].reentrant:
        raise GraphBreak("unknown-call", "a lock is taken that the program holds")
    t.lock.depth += 1
    return True


ROWS.callables[_thread.get_ident] = spread(lambda t: t.world.bring(_thread.get_ident(), question(_thread.get_ident)))
