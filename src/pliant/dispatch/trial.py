"""Which of two callables of a graph takes less time, told by calls of the program.

In:     the compiled callable, the one that runs the graph as it was captured, whom to tell.
Out:    `Trial`: a callable of the graph that takes both in turn, until enough calls have told.
Holds:  both mean the same, so a trial changes no result. A call that autograd records lasts until the next one begins, as its
        backward is part of what it costs; any other until it returns. Of several calls, first ones aside, the usual and the
        least time are compared: single ones may wait for anything. The compiled callable stays unless both are clearly
        longer. On GPUs events in the stream are the clock, which nobody waits for.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from pliant import background

GraphCallable = Callable[[list[Any]], Sequence[Any]]
_ASIDE, _EACH = 3, 7  # calls of each: that first prepare what later ones need, and that are timed
_CLEARLY = 0.97  # of the compiled callable's time


class _Moment(Protocol):
    """A point in time."""

    def is_known(self) -> bool: ...
    def seconds_to(self, later: Any) -> float: ...


class _OnCpu:
    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at = time.perf_counter()

    def is_known(self) -> bool:
        return True

    def seconds_to(self, later: Any) -> float:
        return float(later._at - self._at)


class _OnGpu:
    __slots__ = ("_event",)

    def __init__(self, device: torch.device) -> None:
        self._event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(device))

    def is_known(self) -> bool:
        return bool(self._event.query())

    def seconds_to(self, later: Any) -> float:
        return 1e-3 * float(self._event.elapsed_time(later._event))


class Trial:
    """`decide(chosen, seconds of the compiled one, seconds of the other)` is called once."""

    def __init__(
        self, compiled: GraphCallable, as_captured: GraphCallable, decide: Callable[[GraphCallable, float, float], None]
    ) -> None:
        self._runs = compiled, as_captured
        self._decide = decide
        self._calls = 0
        self._spans: tuple[list[tuple[_Moment, _Moment]], ...] = ([], [])
        self._open: tuple[int, int, _Moment] | None = None  # thread, which, since when
        self._chosen: GraphCallable | None = None
        self._lock = background.lock()

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        if self._chosen is not None or not self._lock.acquire(blocking=False):
            return (self._chosen or self._runs[0])(inputs)  # one call at a time is timed
        try:
            return self._timed(inputs)
        finally:
            self._lock.release()

    def _timed(self, inputs: list[Any]) -> Sequence[Any]:
        device = next((one.device for one in inputs if isinstance(one, torch.Tensor) and one.is_cuda), None)
        if device is not None and torch.cuda.is_current_stream_capturing():
            return self._runs[0](inputs)
        begun = self._now(device)
        self._close(begun)
        if (chosen := self._told()) is not None:
            return chosen(inputs)
        which, self._calls = self._calls % 2, self._calls + 1
        results = self._runs[which](inputs)
        if any(isinstance(one, torch.Tensor) and one.requires_grad for one in results):
            self._open = threading.get_ident(), which, begun
        else:
            self._note(which, begun, self._now(device))
        return results

    def _now(self, device: torch.device | None) -> _Moment:
        return _OnCpu() if device is None else _OnGpu(device)

    def _close(self, now: _Moment) -> None:
        """The call before, with what followed it, ends where this one begins."""
        if self._open is not None:
            thread, which, begun = self._open
            self._open = None
            if thread == threading.get_ident() and type(begun) is type(now):
                self._note(which, begun, now)

    def _note(self, which: int, begun: _Moment, ended: _Moment) -> None:
        if self._calls > 2 * _ASIDE:
            self._spans[which].append((begun, ended))

    def _told(self) -> GraphCallable | None:
        """What is chosen, once enough calls of each are timed."""
        if min(map(len, self._spans)) < _EACH or not all(end.is_known() for spans in self._spans for _, end in spans):
            return None
        taken = [[begun.seconds_to(end) for begun, end in spans] for spans in self._spans]
        usual, least = [sorted(seconds)[len(seconds) // 2] for seconds in taken], list(map(min, taken))
        is_slower = usual[1] < _CLEARLY * usual[0] and least[1] < _CLEARLY * least[0]
        self._chosen = self._runs[is_slower]
        self._decide(self._chosen, *usual)
        return self._chosen
