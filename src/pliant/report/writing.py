"""Write a page about a block of a program.

In:     a path; whether native calls are measured.
Out:    `to(path)`: a context in which events are kept, and the page is written at its end.
Holds:  the page is written if the block raises, too. A failure to write it never hides the block's own error.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from pliant import config
from pliant.debug import events
from pliant.errors import ConfigError, PliantWarning
from pliant.interruptions import pass_on
from pliant.report.page import page_of
from pliant.report.recording import KINDS, Recording


@contextlib.contextmanager
def to(path: str | os.PathLike[str], *, profile: bool = False, title: str = "") -> Iterator[Recording]:
    """Write a page about what is compiled in the block. `profile`: the calls are measured, which slows them down. Entries
    that another process compiled are not used: nothing is known of how they were made."""
    target = Path(path).absolute()
    if not target.parent.is_dir():
        raise ConfigError(
            f"there is no folder {target.parent}", kind="no-folder", why="the report is to be written there", do="make it before"
        )
    recording = Recording(title or target.stem)
    end = events.subscribe(recording.note, KINDS)
    try:
        with config.patch(keep_entries=False), _measured(recording) if profile else contextlib.nullcontext():
            recording.start = time.perf_counter()
            yield recording
    except BaseException as error:
        if not isinstance(error, SystemExit) or error.code not in (0, None):
            recording.failure = f"{type(error).__name__}: {error}"
        raise
    finally:
        end()
        recording.end = time.perf_counter()
        _write(recording, target)


def _write(recording: Recording, target: Path) -> None:
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
