"""The part of an entry's check that starts at held objects: modules, functions, globals.

In:     guards and sources whose root the entry holds.
Out:    `text()`: a function that checks them all and returns the values the entry needs; `held_state.HeldState` runs it only
        when something that it reads has changed. Until then `first_look()` says as much, and the text is not even written.
Holds:  what memory cannot tell (`watch.CannotWatch`) stays in the entry and is checked at each call.
"""

from __future__ import annotations

import functools
import itertools
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pliant import background
from pliant.guards.codegen import HELPERS, GuardWriter, hint_of
from pliant.guards.evaluate import holds, owner_of
from pliant.guards.held_state import LOAD, FirstLook
from pliant.guards.kinds import Guard, Kind
from pliant.guards.names import Names
from pliant.guards.native_watch import CannotWatch
from pliant.guards.parts import root_of
from pliant.guards.sources import HeldSource, Source
from pliant.guards.steps import READ_ERRORS, Step
from pliant.guards.watch import Watch
from pliant.records import dataclass

_lock = background.reentrant_lock()


@dataclass(frozen=True, slots=True)
class _Written:
    """`steps`: the checks and the values of `exports`; `reads`: what the tuples need beside these; `result`: what is returned."""

    steps: list[Step]
    reads: list[Step]
    result: str


class HeldSection:
    """Collects guards and reads; `exports` are the variables that the entry gets."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.exports: dict[str, Source] = {}
        self.tuples: dict[str, list[Source]] = {}
        self.guards: list[Guard] = []
        self.watch = Watch()
        self._all_hold = True
        self._lookups: dict[int, tuple[tuple[type, ...], type | None]] = {}  # by the identity of the guard

    def add(self, guard: Guard) -> bool:
        """Take the guard, if memory tells when it may have changed."""
        if guard.kind is Kind.NUMBER_TYPE:
            return False  # a number that varies
        try:
            self.watch.hold(guard)
        except (CannotWatch, *READ_ERRORS):
            return False
        self.guards.append(guard)
        if guard.kind is Kind.TYPE_LOOKUP:
            cls = self.watch.pin(guard.source)
            self._lookups[id(guard)] = cls.__mro__, owner_of(cls, guard.expected[0])
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
        name = self.names.fresh("held_values")
        self.tuples[name] = list(sources)
        return name

    def read(self, source: Source) -> str | None:
        """The variable of a source that can be watched."""
        if not self.watches(source):
            return None
        name = self.names.fresh(hint_of(source))
        self.exports[name] = source
        return name

    @property
    def values(self) -> Mapping[str, Any]:
        """What names in the text stand for, once it is written."""
        return self.names.values

    @property
    def steps(self) -> list[Step]:
        return self._in_text.steps

    @property
    def _in_text(self) -> _Written:
        with _lock:  # a thread writes entries to disk
            return self._written

    @functools.cached_property
    def _written(self) -> _Written:
        writer = GuardWriter(self.names)
        writer.lookups = self._lookups
        writer.add_each(self.guards)
        for name, source in self.exports.items():
            writer.steps.append(Step(f"{name} = {writer.read(source)}", None, source))
        count = len(writer.steps)
        tuples = [f"({self._spelled(map(writer.read, sources))})" for sources in self.tuples.values()]
        return _Written(writer.steps[:count], writer.steps[count:], f"({self._spelled([*self.exports, *tuples])})")

    def named(self) -> Iterator[Any]:
        """What the text names, beside what is in the guards, whether it is written yet or not."""
        yield from HELPERS
        for mro in {id(mro): mro for mro, _ in self._lookups.values()}.values():
            yield from (mro, *(base.__dict__ for base in mro))
        yield from (type(guard.expected) for guard in self.guards if guard.kind is Kind.EQUALS)

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
        written = self._in_text
        body = [step.text.replace("return MISS", "return None") for step in (*written.steps, *written.reads)]
        lines = ["try:", *(f"    {line}" for line in (*body, f"return {written.result}")), "except READ_ERRORS:", "    return None"]
        return f"def {LOAD}():\n" + textwrap.indent("\n".join(lines), "    ") + "\n"

    @staticmethod
    def _spelled(names: Iterable[str]) -> str:
        return "".join(f"{name}, " for name in names)

    def use(self) -> list[str]:
        """Statements of the entry that get the values."""
        names = [*self.exports, *self.tuples]
        unpack = [f"({self._spelled(names)}) = held"] if names else []
        return [
            "held = unchanged()",
            "if held is None:",
            "    held = recheck()",
            "    if held is None: return MISS",
            *unpack,
        ]
