"""Attributes of `threading.local` objects.

In:     such an object and a name.
Out:    the value in this thread's part, with guards that ask whichever thread calls.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

from pliant.capture.graph_breaks import Raised
from pliant.capture.signatures import Tracer
from pliant.capture.trace import DELETED
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import Source, question


def local_attribute(t: Tracer, obj: threading.local, name: str) -> Any:
    """An attribute of this thread's part of the object; another thread asks again."""
    stored = t.world.slot_get(obj, name)
    if stored is not MISSING and stored is not DELETED:
        return stored
    if stored is DELETED or not hasattr(obj, name):
        t.world.guard(_asked(t, hasattr, obj, name), Kind.EQUALS, stored is DELETED)
        raise Raised(AttributeError(f"'_thread._local' object has no attribute '{name}'"))
    return t.world.resolve(t.world.bring(getattr(obj, name), _asked(t, getattr, obj, name)))


def _asked(t: Tracer, function: Any, obj: Any, name: str) -> Source:
    key = (function, id(obj), name)
    found = t.questions.get(key)
    if found is None:
        found = t.questions[key] = question(functools.partial(function, obj, name))
    return found
