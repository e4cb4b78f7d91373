"""Hold off cyclic garbage collection while code is compiled or imported.

A full collection walks the whole heap of the program, 40 to 150 ms for a process that has loaded PyTorch; compiling
allocates enough to start several, and leaves next to no cyclic garbage itself.
Holds:  collection is on again when the last pause of all threads ends, if it was on when the first began.
"""

from __future__ import annotations

import gc
import threading
from types import TracebackType

_lock = threading.Lock()
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
