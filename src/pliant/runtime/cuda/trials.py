"""Whether a recording pays: calls are timed, as they are and as replays.

In:     calls of a compiled graph with the same sizes and numbers.
Out:    `pays`: whether to record them, or to keep the recording.
Holds:  timing waits for the GPU, so it is done for a few calls and never again; results do not depend on it.

A GPU that has done its work as soon as the host has launched it was waiting for the host most of the time. One that still
works for as long again is what takes long, and a recording, which launches faster and keeps memory of its own, would gain
nothing. In between the graph's own call is not what decides: a program's other calls (autograd's, an optimizer's) take the
host's time alone, so launches that take more than half of the work's time keep the GPU waiting somewhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

from pliant.records import dataclass
from pliant.runtime.cuda.recorder import Recorder

Result = TypeVar("Result")

TRIALS = 3  # calls that are timed as they are, and replays (the first of which loads the recording)
LAUNCHING = 0.5  # of a call's time, in which its kernels are launched, if the host may be what a program waits for
LEAST = 100e-6  # seconds of a call that is worth a recording, which costs some ten itself
SLOWER = 1.03  # times a call's time that a replay may take: what it saves is the host's
MOST_KEYS = 64  # sizes and numbers that are tried


@dataclass(slots=True)
class _Times:
    """Of calls with the same sizes. `bound`: how many were bound by their launches; `plain`, `replayed`: least seconds."""

    calls: int = 0
    bound: int = 0
    plain: float = math.inf
    replays: int = 0
    replayed: float = math.inf


class Trials:
    """Of one compiled graph, for each of its sizes and numbers."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._times: dict[object, _Times] = {}

    def wants(self, key: object) -> bool:
        """Whether the next call is to be timed."""
        return key in self._times and not self.is_settled(key) or key not in self._times and len(self._times) < MOST_KEYS

    def is_settled(self, key: object) -> bool:
        return key in self._times and self._times[key].calls >= TRIALS

    def call(self, key: object, work: Callable[[], Result]) -> Result:
        """Do the work and time it."""
        times = self._times.setdefault(key, _Times())
        result, launching, seconds = self._recorder.timed(work)
        times.calls += 1
        times.bound += launching >= LAUNCHING * seconds and seconds >= LEAST
        times.plain = min(times.plain, seconds)
        return result

    def checks(self, key: object) -> bool:
        """Whether the next replay is to be timed."""
        return self._times[key].replays < TRIALS

    def replay(self, key: object, work: Callable[[], Result]) -> Result:
        """Replay and time it."""
        times = self._times[key]
        result, _, seconds = self._recorder.timed(work)
        times.replays += 1
        times.replayed = min(times.replayed, seconds)
        return result

    def pays(self, key: object) -> bool:
        """Whether calls are worth a recording, as far as is known."""
        times = self._times.get(key)
        if times is None or times.bound * 2 <= TRIALS:
            return False
        return times.replays < TRIALS or times.replayed <= SLOWER * times.plain
