"""The part of an entry's check that starts at held objects: modules, functions, globals.

In:     guards and sources whose root the entry holds.
Out:    `text()`: a function that checks them all and returns the values the entry needs; `held_state.HeldState` runs it only
        when something that it reads has changed. Until then `first_look()` says as much.
Holds:  what memory cannot tell (`watch.CannotWatch`) stays in the entry and is checked at each call.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Sequence

from pliant.guards.codegen import GuardWriter
from pliant.guards.evaluate import holds
from pliant.guards.held_state import LOAD, FirstLook
from pliant.guards.kinds import Guard, Kind
from pliant.guards.names import Names
from pliant.guards.native_watch import CannotWatch
from pliant.guards.parts import root_of
from pliant.guards.sources import HeldSource, Source
from pliant.guards.steps import READ_ERRORS, Step
from pliant.guards.watch import Watch


class HeldSection:
    """Collects guards and reads; `exports` are the variables that the entry gets."""

    def __init__(self, names: Names) -> None:
        self.writer = GuardWriter(names)
        self.exports: dict[str, Source] = {}
        self.tuples: dict[str, list[Source]] = {}
        self.guards: list[Guard] = []
        self.watch = Watch()
        self._all_hold = True

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
        self._all_hold = self._all_hold and self._holds(guard)
        return True

    def _holds(self, guard: Guard) -> bool:
        """Whether it surely does for what is pinned."""
        try:
            return holds(guard, self.watch.pin)
        except READ_ERRORS:
            return False

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

    def first_look(self) -> FirstLook:
        """What memory said when the guards were written, and the values if all of them hold for that."""
        if not self._all_hold:
            return FirstLook(self.watch, None)
        tuples = [tuple(map(self.watch.pin, sources)) for sources in self.tuples.values()]
        return FirstLook(self.watch, (*map(self.watch.pin, self.exports.values()), *tuples))

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
