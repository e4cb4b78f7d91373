"""Hold off cyclic garbage collection while code is compiled or imported.

A full collection walks the whole heap of the program, 40 to 150 ms for a process that has loaded PyTorch; compiling
allocates enough to start several, and leaves next to no cyclic garbage itself.
Holds:  collection is on again when the last pause of all threads ends, if it was on when the first began.
"""

from __future__ import annotations

import gc
import os
from types import TracebackType

from pliant import background

_lock = background.lock()
_depth = 0
_was_on = False


class GcPause:
    """A context manager; pauses may nest, within and across threads."""

    def __enter__(self) -> None:
        global _depth, _was_on
        with _lock:
            if _depth == 0:
                _was_on = gc.isenabled()
                gc.disable()
            _depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _depth
        with _lock:
            _depth -= 1
            if _depth == 0 and _was_on:
                gc.enable()


def _none_in_child() -> None:
    """The threads whose pauses a forked child would wait for are not in it."""
    global _depth
    if _depth and _was_on:
        gc.enable()
    _depth = 0


os.register_at_fork(after_in_child=_none_in_child)
