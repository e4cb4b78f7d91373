"""Compiled graphs recorded as CUDA graphs: one launch for all kernels and library calls of a graph.

In:     a compiled graph's function (list of inputs, which it empties, to list of outputs) and the roles of these.
Out:    a function that does the same.
Holds:  results are what the function gives: what a recording would do to others' memory is done to it (inputs that are
        written are written, outputs are the caller's own, or lie in an input where they did);
        sizes and numbers that a recording was not made for are never served by it;
        what cannot be recorded is called as it is, and says why.

A recording reads its inputs where they lay when it was made. Those that stay (parameters) are read there; the others are
copied to where they are held. One that was to stay and moved is held from then on, and the work recorded again. Outputs
are copied out of the recording's memory, but for private ones: these are lent, and while one lives there is no replay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.debug import events
from pliant.interruptions import pass_on
from pliant.runtime.cuda.capturable import Roles, key_of
from pliant.runtime.cuda.recorder import Recorder
from pliant.runtime.cuda.recording import Recording

Call = Callable[[list[Any]], list[Any]]

MOST_SIZES = 16  # recordings of a graph; calls with further sizes run as they are
MOST_SEEN = 256  # sizes that are remembered until they come again
MOST_MOVES = 3  # recordings made again since an input moved; then all inputs are held


class Graphed:
    """A compiled graph that is recorded when it is called a second time with the same sizes and numbers."""

    def __init__(self, call: Call, roles: Roles, recorder: Recorder, name: str) -> None:
        self._call, self.roles, self.recorder, self.name = call, roles, recorder, name
        self.refused: str | None = None  # why nothing is recorded any more
        self._static = roles.static
        self._moves = 0
        self._seen: set[object] = set()
        self._recordings: dict[object, Recording] = {}

    def __call__(self, inputs: list[Any]) -> list[Any]:
        key = self._key(inputs)
        with self.recorder.turn() as stream:
            recording = self._recordings.get(key)
            if recording is None:
                recording = self._recorded(key, inputs)
            elif not recording.stays(inputs):
                recording = self._again(key, recording, inputs)
            if recording is not None and not recording.is_lent():
                return recording.replay(inputs, stream)
        if recording is not None:
            events.record("cuda_graph_skipped", name=self.name, why="results of the last call still live")
        return self._call(inputs)

    def _key(self, inputs: list[Any]) -> object:
        return (torch.is_inference_mode_enabled(), *(key_of(inputs[k]) for k in self.roles.sized))

    def _recorded(self, key: object, inputs: list[Any]) -> Recording | None:
        """A recording for a call, unless it is the first of its sizes: that loads and warms up what it needs."""
        if self.refused is not None:
            return None
        if key not in self._seen:
            if len(self._seen) < MOST_SEEN:
                self._seen.add(key)
            return None
        if len(self._recordings) >= MOST_SIZES:
            self._refuse(f"{MOST_SIZES} sizes or numbers are recorded already")
            return None
        return self._record(key, inputs)

    def _record(self, key: object, inputs: list[Any]) -> Recording | None:
        try:
            made = Recording(self._call, self.roles, self._static, self.recorder, inputs)
        except Exception as error:
            pass_on(error)
            self._refuse(f"{type(error).__name__}: {error}")
            return None
        events.record("cuda_graph", name=self.name, held=len(made.held))
        self._recordings[key] = made
        return made

    def _again(self, key: object, recording: Recording, inputs: list[Any]) -> Recording | None:
        """Record again: inputs that moved are held."""
        self._moves += 1
        moved = recording.moved(inputs) if self._moves <= MOST_MOVES else self._static
        self._static -= moved
        del self._recordings[key]
        return self._record(key, inputs)

    def _refuse(self, why: str) -> None:
        self.refused = why
        events.record("cuda_graph_refused", name=self.name, why=why)


def graphed(call: Call, roles: Roles, recorder: Recorder, name: str, why_not: str | None) -> Call:
    """`call`, recorded where that can be. `why_not`: what keeps it from being recorded (`capturable.why_not`)."""
    made = Graphed(call, roles, recorder, name)
    if why_not is None:
        return made
    made._refuse(why_not)
    return call
