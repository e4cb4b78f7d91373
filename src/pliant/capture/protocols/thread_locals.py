"""Attributes of `threading.local` objects.

In:     such an object and a name.
Out:    the value in this thread's part, with guards that ask whichever thread calls, of the object that it gives.
"""

from __future__ import annotations

import threading
from typing import Any

from pliant.capture.graph_breaks import Raised
from pliant.capture.signatures import Tracer
from pliant.capture.trace import DELETED
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import AttributeSource, FailureSource


def local_attribute(t: Tracer, obj: threading.local, name: str) -> Any:
    """An attribute of this thread's part of the object; another thread asks again."""
    stored = t.world.slot_get(obj, name)
    if stored is not MISSING and stored is not DELETED:
        return stored
    place = t.world.place_of(obj)
    if stored is not DELETED and hasattr(obj, name):
        return t.world.resolve(t.world.bring(getattr(obj, name), AttributeSource(place, name)))
    failure = None if stored is DELETED else AttributeError
    t.world.guard(FailureSource(place, name), Kind.IDENTITY, failure)
    raise Raised(AttributeError(f"'_thread._local' object has no attribute '{name}'"))
