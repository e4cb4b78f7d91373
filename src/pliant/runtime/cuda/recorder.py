"""A device that records what is launched, to launch it again as a whole: CUDA graphs through PyTorch's public interface.

In:     work to record.
Out:    its result, whose memory the recording keeps, and a function that does the work again on the current stream.
Holds:  while work is recorded nothing runs on the GPU, and other threads may go on using it. Recordings of a device share
        one pool of memory: what one frees another may use, so they run one after another, on whatever streams; `turn`
        sees to that. A recording that fails leaves the GPU, its memory and its random numbers as they were.

A capture that fails leaves the generators it was to draw from unusable, and other graphs draw from the same ones. So work
is captured more than once: first on clones of the generators' states, which shows whether it can be, and how much memory it
takes, then on the states themselves.
"""

from __future__ import annotations

import contextlib
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import torch

from pliant import background
from pliant.gc_pause import GcPause
from pliant.interruptions import suppressed
from pliant.runtime.cuda.placing import Placing, Watching, taken_by
from pliant.runtime.cuda.room import Allocation, most_at_once
from pliant.torch_adapter import end_allocations

Result = TypeVar("Result")
SPARED = 20 << 20  # bytes: PyTorch takes as many at once for what is small, so a plan need not be tried for less


class Recorder(Protocol):
    """What graphs need of a device; a test brings its own."""

    def record(
        self, work: Callable[[], Result], generators: Sequence[torch.Generator]
    ) -> tuple[Result, Callable[[], None]]: ...

    def turn(self) -> contextlib.AbstractContextManager[int]:
        """This thread alone copies and launches, behind what was launched in earlier turns. Gives the stream."""
        ...

    def is_capturing(self) -> bool:
        """Whether the program itself is capturing what this thread launches."""
        ...

    def memory(self) -> float:
        """The share of the GPU's memory that recordings keep."""
        ...

    def timed(self, work: Callable[[], Result]) -> tuple[Result, float, float]:
        """Its result, the seconds until it was launched, and those until the GPU had done it, which had nothing to do before."""
        ...


class CudaRecorder:
    """Of one GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._lock = background.reentrant_lock()
        self._pool: Any = None
        self._side: Any = None
        self._last: Any = None  # the stream of the last turn
        self._discarded: list[object] = []  # graphs of captures that failed, and pools
        self._graphs: weakref.WeakKeyDictionary[torch.cuda.CUDAGraph, int] = weakref.WeakKeyDictionary()  # bytes kept

    @contextlib.contextmanager
    def turn(self) -> Iterator[int]:
        with self._lock:
            stream = torch.cuda.current_stream(self.device)
            if self._last is not None and stream != self._last:
                stream.wait_stream(self._last)
            self._last = stream
            yield stream.cuda_stream

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def memory(self) -> float:
        whole = torch.cuda.get_device_properties(self.device).total_memory
        return sum(self._graphs.values()) / whole

    def timed(self, work: Callable[[], Result]) -> tuple[Result, float, float]:
        stream = torch.cuda.current_stream(self.device)
        stream.synchronize()
        begin = time.perf_counter()
        result = work()
        launched = time.perf_counter()
        stream.synchronize()
        return result, launched - begin, time.perf_counter() - begin

    def record(
        self, work: Callable[[], Result], generators: Sequence[torch.Generator]
    ) -> tuple[Result, Callable[[], None]]:
        if self._side is None:
            self._side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        with torch.cuda.stream(self._side):
            _make_workspace(self.device)
        drawn_from = [torch.cuda.default_generators[self.device.index], *generators]
        with clones_of(drawn_from):
            placed = self._planned(work, generators)
        alive = list(self._graphs)
        if not alive:
            self._pool = None  # it went with the last graph that used it
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
        pool = self._pool
        before = torch.cuda.memory_reserved(self.device)

        def with_places() -> Result:
            with Placing(self.device, pool, placed):
                return work()

        result, graph = self._captured(with_places if placed else work, generators, pool)
        self._graphs[graph] = torch.cuda.memory_reserved(self.device) - before
        del alive
        return result, graph.replay

    def _planned(self, work: Callable[[], object], generators: Sequence[torch.Generator]) -> list[Allocation]:
        """What work allocates; nothing if it should not be placed, since it takes more memory so."""
        watching = Watching(self.device)
        alone = self._rehearsed(work, generators, lambda pool: watching)
        allocations = watching.allocations()
        if alone - most_at_once(allocations) < SPARED:
            return allocations
        placed = self._rehearsed(work, generators, lambda pool: Placing(self.device, pool, allocations))
        return allocations if placed < alone else []

    def _rehearsed(
        self, work: Callable[[], object], generators: Sequence[torch.Generator], mode: Callable[[Any], Watching]
    ) -> int:
        """The bytes that work takes from the GPU. It is captured in memory that goes back. `mode`: made for the pool."""
        pool = torch.cuda.MemPool()

        def in_mode() -> None:
            with mode(pool.id):
                work()

        try:
            graph = self._captured(in_mode, generators, pool.id)[1]
        except BaseException:
            self._discarded.append(pool)
            raise
        taken = taken_by(self.device, pool.id)
        graph.reset()
        return taken

    def _captured(
        self, work: Callable[[], Result], generators: Sequence[torch.Generator], pool: Any
    ) -> tuple[Result, torch.cuda.CUDAGraph]:
        current = torch.cuda.current_stream(self.device)
        self._side.wait_stream(current)
        graph = torch.cuda.CUDAGraph()
        try:
            # A tensor or graph that the garbage collector frees meanwhile would end the recording.
            with GcPause(), torch.cuda.device(self.device), torch.cuda.stream(self._side):
                result = _capture(graph, work, generators, pool)
        except BaseException:
            self._discard(graph, pool)
            raise
        current.wait_stream(self._side)
        return result, graph

    def _discard(self, graph: torch.cuda.CUDAGraph, pool: Any) -> None:
        """Have nothing that comes later see the graph, whose capture ended anyhow: the allocator may hold on to it, and
        to the pool that it allocates from."""
        if pool == self._pool:
            self._pool = None
        self._discarded.append(graph)
        with suppressed(Exception):
            end_allocations(self.device, pool)
        with suppressed(Exception):
            graph.reset()
        with suppressed(Exception):
            torch.cuda.synchronize(self.device)


def _make_workspace(device: torch.device) -> None:
    """Have the library of products take the memory that it wants for each stream and thread: within a recording that would
    lie amid what is computed, and stay there. A setting of the program's may forbid products."""
    with torch.inference_mode(False), torch.no_grad(), suppressed(RuntimeError):
        one = torch.ones(1, 1, device=device)
        one.mm(one)


def _capture(
    graph: torch.cuda.CUDAGraph, work: Callable[[], Result], generators: Sequence[torch.Generator], pool: Any
) -> Result:
    """Put what `work` does on the current stream into the graph."""
    for generator in generators:
        graph.register_generator_state(generator)
    graph.capture_begin(pool=pool, capture_error_mode="thread_local")
    try:
        result = work()
    except BaseException:
        with suppressed(Exception):
            graph.capture_end()
        raise
    graph.capture_end()
    return result


@contextlib.contextmanager
def clones_of(generators: Sequence[torch.Generator]) -> Iterator[None]:
    """Meanwhile the generators have states of their own; then again the ones they had, as they were."""
    states = [generator.graphsafe_get_state() for generator in generators]
    try:
        for generator, state in zip(generators, states):
            generator.graphsafe_set_state(state.clone_state())
        yield
    finally:
        for generator, state in zip(generators, states):
            generator.graphsafe_set_state(state)


_lock = background.lock()
_recorders: dict[torch.device, CudaRecorder] = {}


def recorder_of(device: torch.device) -> CudaRecorder:
    """The one recorder of a GPU, whose recordings share memory."""
    index = device.index if device.index is not None else torch.cuda.current_device()
    place = torch.device("cuda", index)
    with _lock:
        return _recorders.setdefault(place, CudaRecorder(place))
