"""What the compiler did while a block ran.

In:     events, as they are recorded.
Out:    a `Recording`, from which a page is made.
Holds:  what does not fit is counted.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from pliant.debug import events
from pliant.report.measured import Measured, measured

P = ParamSpec("P")
R = TypeVar("R")

MOST_EVENTS = 100_000
KINDS = frozenset((
    "assumption", "cache", "capture", "data_dependent_retry", "dynamic", "eager_memory", "entry", "extern", "fallback", "graph",
    "graph_break", "graph_code", "guard", "is_compiling", "kernels", "nodes", "numbers_retry", "recompile", "recompile_limit",
    "skip", "specialize", "stage",
))  # fmt: skip


class Recording:
    """The events of a block. `dropped`: how many of each kind did not fit. `seconds`: of native calls, by their ranges.
    `memory`: what calls allocated."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.start = time.perf_counter()
        self.end = self.start
        self.events: list[events.Event] = []
        self.dropped: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        self.failure = ""
        self.memory: list[Measured] = []

    def note(self, event: events.Event) -> None:
        if len(self.events) < MOST_EVENTS:
            self.events.append(event)
        else:
            self.dropped[event.kind] += 1

    def measure(self, call: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call something, and note what memory that took: of what is compiled already, or else compiling is measured, too."""
        name = getattr(call, "__name__", type(call).__name__)
        result, found = measured(name, lambda: call(*args, **kwargs))
        self.memory.append(found)
        return result

    def of(self, *kinds: str) -> list[events.Event]:
        """The events of these kinds, in order."""
        return [event for event in self.events if event.kind in kinds]
