"""What the compiler does while a block runs, and the page about it.

In:     events, as they are recorded; what a profiler measures, if it is asked to.
Out:    `to(path)`: a context in which they are kept, and the page is written at its end.
Holds:  the page is written if the block raises, too. A failure to write it never hides the block's own error. What does not
        fit is counted.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from pliant import config
from pliant.debug import events
from pliant.errors import PliantWarning
from pliant.interruptions import pass_on

MOST_EVENTS = 100_000
KINDS = frozenset((
    "assumption", "cache", "capture", "data_dependent_retry", "dynamic", "eager_memory", "entry", "extern", "fallback", "graph",
    "graph_break", "graph_code", "guard", "is_compiling", "kernels", "nodes", "numbers_retry", "recompile", "recompile_limit",
    "skip", "specialize", "stage",
))  # fmt: skip


class Recording:
    """The events of a block. `dropped`: how many of each kind did not fit. `seconds`: of native calls, by their ranges."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.start = time.perf_counter()
        self.end = self.start
        self.events: list[events.Event] = []
        self.dropped: Counter[str] = Counter()
        self.seconds: dict[str, float] = {}
        self.failure = ""

    def note(self, event: events.Event) -> None:
        if len(self.events) < MOST_EVENTS:
            self.events.append(event)
        else:
            self.dropped[event.kind] += 1

    def of(self, *kinds: str) -> list[events.Event]:
        """The events of these kinds, in order."""
        return [event for event in self.events if event.kind in kinds]


@contextlib.contextmanager
def to(path: str | os.PathLike[str], *, profile: bool = False, title: str = "") -> Iterator[Recording]:
    """Write a page about what is compiled in the block. `profile`: the calls are measured, which slows them down. Entries
    that another process compiled are not used: nothing is known of how they were made."""
    target = Path(path).absolute()
    recording = Recording(title or target.stem)
    end = events.subscribe(recording.note, KINDS)
    try:
        with config.patch(keep_entries=False), _measured(recording) if profile else contextlib.nullcontext():
            recording.start = time.perf_counter()
            yield recording
    except BaseException as error:
        recording.failure = f"{type(error).__name__}: {error}"
        raise
    finally:
        end()
        recording.end = time.perf_counter()
        _write(recording, target)


def _write(recording: Recording, target: Path) -> None:
    from pliant.report.page import page_of

    try:
        target.write_text(page_of(recording), encoding="utf-8")
    except Exception as error:
        pass_on(error)
        if not recording.failure:
            raise
        events.warn_once(f"report:{target}", f"the report was not written: {error}", PliantWarning)


@contextlib.contextmanager
def _measured(recording: Recording) -> Iterator[None]:
    """Seconds of each native call: of its fastest one."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        yield
    found: dict[str, float] = {}
    ranges: list[Any] = [one for one in profiler.events() or () if one.name.startswith("pliant::")]
    for one in ranges:
        seconds = one.cpu_time_total / 1e6
        found[one.name] = min(seconds, found.get(one.name, seconds))
    recording.seconds = found
