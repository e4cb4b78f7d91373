"""What the compiler did and why, for people: one record of events (`events.py`), and what is made of it."""

import importlib
from typing import Any

_FOR_USERS = ("events", "timing")  # loaded at first use, so that `pliant.debug.timing` needs no import of its own


def __getattr__(name: str) -> Any:
    if name not in _FOR_USERS:
        raise AttributeError(f"module 'pliant.debug' has no attribute {name!r}")
    return importlib.import_module(f"pliant.debug.{name}")
