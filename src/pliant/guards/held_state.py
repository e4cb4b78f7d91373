"""When the check of held objects runs: a section of an entry's check, and the memory that tells whether it has to.

In:     the function of a section (`held_section.py`), and what it watches.
Out:    `HeldState.recheck`: the values that the entry needs, or None. What looks at memory is loaded when it first does.
"""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pliant.guards.kinds import Guard
from pliant.guards.sources import Source
from pliant.guards.steps import READ_ERRORS
from pliant.records import dataclass

if TYPE_CHECKING:
    from pliant.guards.watch import Watch
    from pliant.wrappers.generated_code import Text


def never() -> None:
    """Stands for a native check that is not there: something may have changed."""


@dataclass(frozen=True, slots=True, eq=False)
class FirstLook:
    """Memory, and the values that it had for the entry; None if some guard may not have held."""

    watch: Watch
    values: tuple[Any, ...] | None


class HeldFacts(Protocol):
    """What a section watches."""

    def watched(self) -> tuple[Sequence[Guard], Sequence[Source]]:
        """The guards, and the sources of what the entry gets."""

    def first_look(self) -> FirstLook | None:
        """The look at memory that was taken when the guards were written; None: an entry from elsewhere."""

    @property
    def values(self) -> Mapping[str, Any]:
        """What names in the text stand for that those of the entry's do not, once it is written."""

    def text(self) -> str | Text:
        """The function of the section, which is named `LOAD`."""


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
        self._first: FirstLook | None = facts.first_look()
        self._waits = self._first is None  # the first call of an entry from elsewhere looks at no memory
        self._looked_at = -math.inf
        self._costs = 0.0  # seconds of the last look
        self._spent: float | None = None  # on checks, since one found that what was looked at had changed
        self._due = 0.0  # at how many of those to look again
        self._patience = 1.0

    def recheck(self) -> tuple[Any, ...] | None:
        """The values, if all guards hold."""
        if (values := self._as_first_seen()) is not None:
            return values
        start = time.monotonic()
        values = self._load()
        if values is None:
            return None
        if self._spent is None:
            self._note_change(start - self._looked_at)
        self._spent = (self._spent or 0.0) + time.monotonic() - start
        waits, self._waits = self._waits, False
        if not waits and self._spent >= self._due:
            self._watch_anew()
        return values

    def _as_first_seen(self) -> tuple[Any, ...] | None:
        """The values, if all guards held when they were written, and memory has not changed since: the section's text is then
        not even compiled."""
        if self._first is None or self._first.values is None:
            return None
        from pliant.guards import native_watch

        if not native_watch.available():
            return None
        start = time.monotonic()
        first, self._first = self._first, None
        check = native_watch.native_check(first.watch.watched, first.values)
        if check is None:
            return None
        self._entry_function.__globals__["unchanged"] = check
        self._looked_at, self._spent = time.monotonic(), None
        self._costs = self._looked_at - start
        return first.values

    def _note_change(self, lasted: float) -> None:
        """What was looked at has changed after so many seconds."""
        if lasted > max(_LONG, _WORTH * self._costs):
            self._due, self._patience = 0.0, 1.0
        else:
            self._due, self._patience = self._patience * self._costs, 2 * self._patience

    def _watch_anew(self) -> None:
        from pliant.guards import native_watch  # which a first call does not need

        if not native_watch.available():
            return
        start = time.monotonic()
        self._entry_function.__globals__["unchanged"] = self._new_check() or never
        self._looked_at, self._spent = time.monotonic(), None
        self._costs = self._looked_at - start

    def _load(self) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._entry_function.__dict__[LOAD]()
        return found

    @property
    def _entry_function(self) -> Any:
        return self._entry()

    def _new_check(self) -> Callable[[], Any] | None:
        """Look at memory, then check the guards, then see that memory has not changed meanwhile."""
        from pliant.guards.native_watch import CannotWatch, native_check

        try:
            found = self._first.watch if self._first is not None else self._look()
        except (CannotWatch, *READ_ERRORS):
            return None
        finally:
            self._first = None
        values = self._load()
        if values is None:
            return None
        return native_check(found.watched, values)

    def _look(self) -> Watch:
        from pliant.guards.watch import Watch

        found = Watch()
        guards, sources = self._facts.watched()
        for guard in guards:
            found.hold(guard)
        for source in sources:
            found.pin(source)
        return found


_LONG = 0.5  # seconds that a watch lasts which was worth its while,
_WORTH = 20  # times what it costs to look
