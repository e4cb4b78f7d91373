"""The function of an entry: from its text and what the names in it stand for.

In:     text of `entry(args, kwargs)`, the objects, and the section of guards that start at held objects where these are many.
Out:    the function, whose lines tracebacks can show.
Reads on: `held_section.py`, `alike.py`.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pliant.guards import alike
from pliant.guards.held_state import LOAD, HeldFacts, HeldState, never
from pliant.guards.steps import MISS, READ_ERRORS
from pliant.wrappers import generated_code

# Checks and runs one call; MISS if it is not for this entry. Arguments in a list are given up.
EntryFunction = Callable[[Sequence[Any], dict[str, Any]], Any]
GENERATED = "<pliant "  # how the names of files of generated code start
_serial = itertools.count()


def define_entry(
    text: str, values: Mapping[str, Any], name: str, held: HeldFacts | None, tensors: Mapping[str, Sequence[int]]
) -> EntryFunction:
    """`tensors`: which of those that a block of tests is about are learnt. Nothing in the function's globals leads back to
    them, so what it holds is freed with it."""
    file = f"{GENERATED}{name} {next(_serial)}>"
    scope = {**values, "MISS": MISS, "READ_ERRORS": READ_ERRORS, "unchanged": never}
    generated_code.define(text, file, scope)
    entry: EntryFunction = scope.pop("entry")
    scope.pop("prepare", None)
    alike.define(tensors, entry)
    if held is not None:
        entry.__dict__[LOAD] = _Load(held, entry, file)
        if held.first_look() is None:
            entry.__dict__[LOAD].define(entry)
        scope["recheck"] = HeldState(held, entry).recheck
    return entry


class _Load:
    """A section's function before its text is compiled: the first call that needs it does that."""

    def __init__(self, held: HeldFacts, entry: EntryFunction, file: str) -> None:
        self._held, self._entry, self._file = held, weakref.ref(entry), file.replace(GENERATED, GENERATED + "held by ")

    def define(self, entry: Any) -> Callable[[], Any]:
        scope, text = entry.__globals__, self._held.text()
        for name, value in self._held.values.items():
            scope.setdefault(name, value)
        generated_code.define(text, self._file, scope)
        load: Callable[[], Any] = scope.pop(LOAD)
        entry.__dict__[LOAD] = load
        return load

    def __call__(self) -> Any:
        entry: Any = self._entry()
        return self.define(entry)()


def holds(entry: EntryFunction) -> Callable[[], bool]:
    """Whether all guards hold that start at held objects, of an entry that checks them apart."""
    return lambda: entry.__globals__["unchanged"]() is not None or entry.__dict__[LOAD]() is not None


def holding(lock: Any, run: EntryFunction) -> EntryFunction:
    """The entry of a program that takes a lock: what it reads, its guards too, it reads under the lock."""

    def locked(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        with lock:
            return run(args, kwargs)

    locked.__wrapped__ = run  # type: ignore[attr-defined]
    return locked
