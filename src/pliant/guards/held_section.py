"""The part of an entry's check that starts at held objects: modules, functions, globals.

In:     guards and sources whose root the entry holds.
Out:    `text()`: a function that checks them all and returns the values the entry needs; `HeldState`: runs it only
        when something
        that it reads has changed.
Holds:  what memory cannot tell (`watch.CannotWatch`) stays in the entry and is checked at each call.
"""

from __future__ import annotations

import itertools
import math
import textwrap
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from pliant.guards import native_watch
from pliant.guards.codegen import READ_ERRORS, GuardWriter, Step
from pliant.guards.kinds import Guard, Kind
from pliant.guards.names import Names
from pliant.guards.native_watch import CannotWatch
from pliant.guards.parts import root_of
from pliant.guards.sources import HeldSource, Source
from pliant.guards.watch import Watch


class HeldSection:
    """Collects guards and reads; `exports` are the variables that the entry gets."""

    def __init__(self, names: Names) -> None:
        self.writer = GuardWriter(names)
        self.exports: dict[str, Source] = {}
        self.tuples: dict[str, list[Source]] = {}
        self.guards: list[Guard] = []
        self.watch = Watch()

    def add(self, guard: Guard) -> bool:
        """Take the guard, if memory tells when it may have changed."""
        if guard.kind is Kind.NUMBER_TYPE:
            return False  # a number that varies
        try:
            self.watch.hold(guard)
        except (CannotWatch, *READ_ERRORS):
            return False
        self.writer.add(guard)
        self.guards.append(guard)
        return True

    def watches(self, source: Source) -> bool:
        """Whether memory tells that the source leads to another object."""
        if isinstance(source, HeldSource) or not root_of(source).is_held:
            return False
        try:
            self.watch.pin(source)
        except (CannotWatch, *READ_ERRORS):
            return False
        return True

    def read_all(self, sources: Sequence[Source]) -> str:
        """The variable of a tuple of sources that are watched: one value for the entry, however many they are."""
        name = self.writer.names.fresh("held_values")
        self.tuples[name] = list(sources)
        return name

    def read(self, source: Source) -> str | None:
        """The variable of a source that can be watched."""
        if not self.watches(source):
            return None
        name = self.writer.read(source)
        if name not in self.writer.names.values:  # else it is a global of the generated code
            self.exports[name] = source
        return name

    @property
    def steps(self) -> list[Step]:
        return self.writer.steps

    def watched(self) -> tuple[Sequence[Guard], Sequence[Source]]:
        return self.guards, [*self.exports.values(), *itertools.chain(*self.tuples.values())]

    def first_watch(self) -> Watch | None:
        return self.watch

    def text(self) -> str:
        """The function `load()`: the exported values, or None if a guard fails."""
        tuples = [f"({self._names(map(self.writer.read, sources))})" for sources in self.tuples.values()]
        body = [step.text.replace("return MISS", "return None") for step in self.steps]
        body.append(f"return ({self._names([*self.exports, *tuples])})")
        lines = ["try:", *(f"    {line}" for line in body), "except READ_ERRORS:", "    return None"]
        return f"def {LOAD}():\n" + textwrap.indent("\n".join(lines), "    ") + "\n"

    @staticmethod
    def _names(names: Iterable[str]) -> str:
        return "".join(f"{name}, " for name in names)

    def use(self) -> list[str]:
        """Statements of the entry that get the values."""
        names = [*self.exports, *self.tuples]
        unpack = [f"({self._names(names)}) = held"] if names else []
        return [
            "held = unchanged()",
            "if held is None:",
            "    held = recheck()",
            "    if held is None: return MISS",
            *unpack,
        ]


def never() -> None:
    """Stands for a native check that is not there: something may have changed."""


class HeldFacts(Protocol):
    """What a section watches."""

    def watched(self) -> tuple[Sequence[Guard], Sequence[Source]]:
        """The guards, and the sources of what the entry gets."""

    def first_watch(self) -> Watch | None:
        """The look at memory that was taken when the guards were written."""


LOAD = "load"  # the function of the section's text, an attribute of the entry's function


class HeldState:
    """Runs `load` when the watched memory has changed, and watches anew.

    A state that changes at every call, however long calls take, is watched ever more rarely: looking at all of it costs
    many times what checking it costs. It is looked at again once the checks since then have cost as much.
    The entry's function, which is running when this is asked, holds it, not the other way round.
    """

    def __init__(self, facts: HeldFacts, entry: Any) -> None:
        self._facts = facts
        self._entry = weakref.ref(entry)
        self._first: Watch | None = facts.first_watch()
        self._waits = self._first is None  # the first call of an entry from elsewhere looks at no memory
        self._looked_at = -math.inf
        self._costs = 0.0  # seconds of the last look
        self._spent: float | None = None  # on checks, since one found that what was looked at had changed
        self._due = 0.0  # at how many of those to look again
        self._patience = 1.0

    def recheck(self) -> tuple[Any, ...] | None:
        """The values, if all guards hold."""
        start = time.monotonic()
        values = self._load()
        if values is None:
            return None
        if self._spent is None:
            self._note_change(start - self._looked_at)
        self._spent = (self._spent or 0.0) + time.monotonic() - start
        waits, self._waits = self._waits, False
        if not waits and self._spent >= self._due and native_watch.available():
            self._watch_anew()
        return values

    def _note_change(self, lasted: float) -> None:
        """What was looked at has changed after so many seconds."""
        if lasted > max(_LONG, _WORTH * self._costs):
            self._due, self._patience = 0.0, 1.0
        else:
            self._due, self._patience = self._patience * self._costs, 2 * self._patience

    def _watch_anew(self) -> None:
        start = time.monotonic()
        entry: Any = self._entry()
        entry.__globals__["unchanged"] = self._new_check() or never
        self._looked_at, self._spent = time.monotonic(), None
        self._costs = self._looked_at - start

    def _load(self) -> tuple[Any, ...] | None:
        entry: Any = self._entry()
        found: tuple[Any, ...] | None = entry.__dict__[LOAD]()
        return found

    def _new_check(self) -> Callable[[], Any] | None:
        """Look at memory, then check the guards, then see that memory has not changed meanwhile."""
        try:
            found = self._first or self._look()
        except (CannotWatch, *READ_ERRORS):
            return None
        finally:
            self._first = None
        values = self._load()
        if values is None:
            return None
        return native_watch.native_check(found.watched, values)

    def _look(self) -> Watch:
        found = Watch()
        guards, sources = self._facts.watched()
        for guard in guards:
            found.hold(guard)
        for source in sources:
            found.pin(source)
        return found


_LONG = 0.5  # seconds that a watch lasts which was worth its while,
_WORTH = 20  # times what it costs to look
