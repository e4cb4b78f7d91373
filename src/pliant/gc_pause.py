"""Hold off cyclic garbage collection while code is compiled or imported.

A full collection walks the whole heap of the program, 40 to 400 ms for a process that has loaded PyTorch; compiling
allocates enough to start several, and leaves next to no cyclic garbage itself.
Holds:  collection is on again when the last pause of all threads ends, if it was on when the first began. What was allocated
        meanwhile is then old: else the first allocation would walk it three times, once in each generation. What was young
        before is looked through before, so that the program's garbage does not grow old unseen.
"""

from __future__ import annotations

import gc
import os
import threading
from types import TracebackType

from pliant import background

MOST_OF_INTERPRETER = 2000  # Python 3.12 starts with 375 objects frozen; a program has frozen more once it has loaded PyTorch

_lock = background.lock()
_depth = 0
_was_on = False
_freezes = False  # whether the program has frozen objects


class _Here(threading.local):
    """How many of the pauses are this thread's."""

    pauses = 0


_here = _Here()


class GcPause:
    """A context manager; pauses may nest, within and across threads."""

    def __enter__(self) -> None:
        global _depth, _was_on
        if not _depth and gc.isenabled():
            gc.collect(1)
        with _lock:
            if _depth == 0:
                _was_on = gc.isenabled()
                gc.disable()
            _depth += 1
            _here.pauses += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_pauses_beyond(_here.pauses - 1)


def pauses_here() -> int:
    """How many pauses this thread is in."""
    return _here.pauses


def await_end() -> None:
    """Wait, in a thread beside the program, until no thread is in a pause, a minute at most: threads share the interpreter, and
    what the program waits for goes first. Not while the program waits for this thread, which it may do within a pause."""
    turn = threading.Event()
    for _ in range(1200):
        if not _depth or background.is_hurried():
            return
        background.wait(turn, 0.05)


def end_pauses_beyond(count: int) -> None:
    """Also those whose block was left without its end: a signal handler raised in between."""
    global _depth
    if _here.pauses > count:
        with _lock:
            _depth -= _here.pauses - count
            _here.pauses = count
            if _depth == 0 and _was_on:
                _make_old()
                gc.enable()


def _make_old() -> None:
    """Move all objects to the oldest generation, without a look at any. Not where the program has frozen some: it freezes
    others later, and to count them takes as long as there are many."""
    global _freezes
    _freezes = _freezes or gc.get_freeze_count() > MOST_OF_INTERPRETER
    if not _freezes:
        gc.freeze()
        gc.unfreeze()


def _none_in_child() -> None:
    """The threads whose pauses a forked child would wait for are not in it."""
    global _depth
    if _depth and _was_on:
        gc.enable()
    _depth = _here.pauses = 0


os.register_at_fork(after_in_child=_none_in_child)
