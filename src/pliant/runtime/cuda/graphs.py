"""Compiled graphs recorded as CUDA graphs: one launch for all kernels and library calls of a graph.

In:     a compiled graph's function (list of inputs, which it empties, to list of outputs) and the roles of these.
Out:    a function that does the same.
Holds:  results are what the function gives: what a recording would do to others' memory is done to it (inputs that are
        written are written, outputs are the caller's own, or lie in an input where they did);
        sizes and numbers that a recording was not made for are never served by it;
        what cannot be recorded is called as it is, and says why.

With `Trials`, only calls whose launches take most of their time are recorded, and a recording that is slower goes.
While the program itself captures a CUDA graph, calls are what they are.

A recording reads its inputs where they lay when it was made. Those that stay (parameters) are read there; the others are
copied to where they are held. One that was to stay and moved is held from then on, and the work recorded again. Outputs
are copied out of the recording's memory, but for private ones: these are lent, and while one lives there is no replay.

Inputs that lie in one place in all calls before the recording are expected to stay as well: a batch of images is not copied
then, nor room kept for a copy; a cache of keys and values is written where it lies. One that moves is held from then on; one
that is written, which would have to be copied back as well, when it has moved several times.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from pliant.debug import events
from pliant.interruptions import pass_on
from pliant.runtime.cuda.recorder import Recorder, recorder_of
from pliant.runtime.cuda.recording import Recording
from pliant.runtime.cuda.roles import Roles, key_of, misalignment
from pliant.runtime.cuda.trials import Trials
from pliant.torch_adapter import is_distributed
from pliant.wrappers.remade import remade

Call = Callable[[list[Any]], list[Any]]

MOST_SIZES = 16  # recordings of a graph; calls with further sizes run as they are
MOST_SEEN = 256  # sizes that are remembered until they come again
MOST_MEMORY = 1 / 16  # of a GPU's memory that a recording may keep, where none was asked for
MOST_TOGETHER = 1 / 8  # of it that all of them may
MOST_MOVES = 3  # recordings made again since an input moved; then it is held


class Graphed:
    """A compiled graph that is recorded when it is called again with the same sizes and numbers.

    trials: which calls are worth a recording; None: all are.
    """

    def __init__(
        self, call: Call, roles: Roles, recorder: Recorder, name: str, trials: Trials | None = None
    ) -> None:
        self._call, self.roles, self.recorder, self.name, self.trials = call, roles, recorder, name, trials
        self.refused: str | None = None  # why nothing is recorded any more
        self._static = roles.static
        self._moves = 0
        self._lay: dict[object, dict[int, int]] = {}  # where other inputs lay in all timed calls of a size
        self._moved: set[int] = set()  # those that were expected to stay and did not
        self._seen: set[object] = set()
        self._plain: set[object] = set()  # sizes that a recording does not pay for
        self._recordings: dict[object, Recording] = {}

    def __call__(self, inputs: list[Any]) -> list[Any]:
        if self.refused is not None and not self._recordings:
            return self._call(inputs)
        key = self._key(inputs)
        if key in self._plain or self.recorder.is_capturing() or self._is_first(key, inputs):
            return self._call(inputs)
        with self.recorder.turn() as stream:
            recording = self._recordings.get(key)
            if recording is None:
                if self.trials is not None and self.trials.wants(key):
                    return self._tried(key, inputs)
                recording = self._recorded(key, inputs)
            elif not recording.stays(inputs):
                recording = self._again(key, recording, inputs)
            if recording is not None and not recording.is_lent():
                return self._replayed(key, recording, inputs, stream)
        if recording is not None:
            events.record("cuda_graph_skipped", name=self.name, why="results of the last call still live")
        return self._call(inputs)

    def _is_first(self, key: object, inputs: list[Any]) -> bool:
        """Whether the call is the first of its sizes, as far as is remembered: that loads and warms up what it needs."""
        if key in self._seen:
            return False
        if len(self._seen) < MOST_SEEN:
            self._seen.add(key)
            if self.trials is None:
                self._note_places(key, inputs)
        return True

    def _tried(self, key: object, inputs: list[Any]) -> list[Any]:
        """A call, timed."""
        assert self.trials is not None
        self._note_places(key, inputs)
        found: list[Any] = self.trials.call(key, lambda: self._call(inputs))
        if self.trials.is_settled(key) and not self.trials.pays(key):
            self._pays_not(key, "its kernels take longer than launching them")
        return found

    def _replayed(self, key: object, recording: Recording, inputs: list[Any], stream: int) -> list[Any]:
        if self.trials is None or not self.trials.checks(key):
            return recording.replay(inputs, stream)
        found: list[Any] = self.trials.replay(key, lambda: recording.replay(inputs, stream))
        if not self.trials.pays(key):
            del self._recordings[key]
            self._pays_not(key, "a recording of it is slower")
        return found

    def _pays_not(self, key: object, why: str) -> None:
        """Of the sizes of this call; if there are no others, later calls are no longer looked at."""
        if self.roles.sized:
            self._plain.add(key)
            events.record("cuda_graph_skipped", name=self.name, why=why)
        else:
            self._refuse(why)

    def _key(self, inputs: list[Any]) -> object:
        places = map(misalignment, inputs) if self.roles.draws else ()
        return (torch.is_inference_mode_enabled(), *(key_of(inputs[k]) for k in self.roles.sized), *places)

    def _recorded(self, key: object, inputs: list[Any]) -> Recording | None:
        """A recording for a call, where one is to be."""
        if self.refused is not None:
            return None
        if self.trials is not None and not self.trials.pays(key):
            return None
        if len(self._recordings) >= MOST_SIZES:
            self._refuse(f"{MOST_SIZES} sizes or numbers are recorded already")
            return None
        return self._record(key, inputs, self._staying(key, inputs))

    def _note_places(self, key: object, inputs: list[Any]) -> None:
        """Where inputs lie that may stay there, though nothing says so."""
        others = {k: t for k, t in enumerate(inputs) if isinstance(t, torch.Tensor) and self._is_asked(k)}
        lie = {k: t.data_ptr() for k, t in others.items()}
        before = self._lay.get(key, lie)
        self._lay[key] = {k: at for k, at in lie.items() if before.get(k) == at}

    def _is_asked(self, k: int) -> bool:
        """Whether it is worth knowing that an input stays, if it is a tensor. Without trials there is one call before the
        recording, which says little."""
        return k not in self._static and (self.trials is not None or k in self.roles.written)

    def _staying(self, key: object, inputs: list[Any]) -> frozenset[int]:
        """Inputs that are read where they lie."""
        lay = self._lay.pop(key, {})
        return self._static | {k for k, at in lay.items() if inputs[k].data_ptr() == at and self._may_stay(k)}

    def _may_stay(self, k: int) -> bool:
        return self._moves <= MOST_MOVES and (k in self.roles.written or k not in self._moved)

    def _record(self, key: object, inputs: list[Any], staying: frozenset[int]) -> Recording | None:
        before = self.recorder.memory()
        try:
            made = Recording(self._call, self.roles, staying, self.recorder, inputs)
        except Exception as error:
            pass_on(error)
            self._refuse(f"{type(error).__name__}: {error}")
            return None
        kept = self.recorder.memory()
        if self.trials is not None and (kept - before > MOST_MEMORY or kept > MOST_TOGETHER):
            self._refuse("a recording would keep too much of the GPU's memory")
            return None
        events.record("cuda_graph", name=self.name, held=len(made.held))
        self._recordings[key] = made
        return made

    def _again(self, key: object, recording: Recording, inputs: list[Any]) -> Recording | None:
        """Record again: inputs that moved are held. Where nobody asked for recordings, copies of what a forward that is not
        recorded saved would cost more than they gain."""
        moved = recording.moved(inputs)
        self._moves += 1
        if self._static.isdisjoint(moved):
            self._moved |= moved
        elif self.trials is not None:
            self._recordings.clear()
            self._refuse("inputs that were to stay where they lay move")
            return None
        else:
            self._static -= moved if self._moves <= MOST_MOVES else self._static
        del self._recordings[key]
        others = recording.static - self.roles.static
        return self._record(key, inputs, self._static | {k for k in others if self._may_stay(k)})

    def stop(self, why: str) -> None:
        """Nothing is recorded or replayed any more."""
        self._recordings.clear()
        self._refuse(why)

    def _refuse(self, why: str) -> None:
        self.refused = why
        events.record("cuda_graph_refused", name=self.name, why=why)


@remade
def recorded_on(call: Call, roles: Roles, device: torch.device, name: str, always: bool) -> Graphed:
    """`call`, recorded on a GPU; not `always`: where it pays."""
    recorder = recorder_of(device)
    made = Graphed(call, roles, recorder, name, None if always else Trials(recorder))
    if is_distributed():
        beside_messages(made)
    return made


_in_group: weakref.WeakSet[Graphed] = weakref.WeakSet()  # made in a process of a group


def beside_messages(made: Graphed) -> None:
    """Data parallelism sends gradients between the backwards of a program's graphs, on streams of its own. Steps were seen to go
    wrong where such backwards were replays, for a reason that is not known; those of programs of one graph were right."""
    _in_group.add(made)
    if sum(one.name.endswith("_backward") for one in _in_group) > 1:
        for one in [*_in_group]:
            if one.refused is None:
                one.stop("gradients may travel to other processes between the backwards of several graphs")
