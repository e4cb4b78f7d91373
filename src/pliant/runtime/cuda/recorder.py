"""A device that records what is launched, to launch it again as a whole: CUDA graphs through PyTorch's public interface.

In:     work to record.
Out:    its result, whose memory the recording keeps, and a function that does the work again on the current stream.
Holds:  while work is recorded nothing runs on the GPU, and other threads may go on using it. Recordings of a device share
        one pool of memory: what one frees another may use, so they run one after another, on whatever streams; `turn`
        sees to that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import torch

from pliant import background
from pliant.gc_pause import GcPause

Result = TypeVar("Result")


class Recorder(Protocol):
    """What graphs need of a device; a test brings its own."""

    def record(
        self, work: Callable[[], Result], generators: Sequence[torch.Generator]
    ) -> tuple[Result, Callable[[], None]]: ...

    def turn(self) -> contextlib.AbstractContextManager[int]:
        """This thread alone copies and launches, behind what was launched in earlier turns. Gives the stream."""
        ...


class CudaRecorder:
    """Of one GPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._lock = background.reentrant_lock()
        self._pool: Any = None
        self._side: Any = None
        self._last: Any = None  # the stream of the last turn

    @contextlib.contextmanager
    def turn(self) -> Iterator[int]:
        with self._lock:
            stream = torch.cuda.current_stream(self.device)
            if self._last is not None and stream != self._last:
                stream.wait_stream(self._last)
            self._last = stream
            yield stream.cuda_stream

    def record(
        self, work: Callable[[], Result], generators: Sequence[torch.Generator]
    ) -> tuple[Result, Callable[[], None]]:
        if self._pool is None:
            self._pool = torch.cuda.graph_pool_handle()
            self._side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
        current = torch.cuda.current_stream(self.device)
        self._side.wait_stream(current)
        graph = torch.cuda.CUDAGraph()
        for generator in generators:
            graph.register_generator_state(generator)
        # A tensor or graph that the garbage collector frees meanwhile would end the recording.
        with GcPause(), torch.cuda.device(self.device), torch.cuda.stream(self._side):
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                result = work()
            except BaseException:
                with contextlib.suppress(Exception):
                    graph.capture_end()
                raise
            graph.capture_end()
        current.wait_stream(self._side)
        return result, graph.replay


_lock = background.lock()
_recorders: dict[torch.device, CudaRecorder] = {}


def recorder_of(device: torch.device) -> CudaRecorder:
    """The one recorder of a GPU, whose recordings share memory."""
    index = device.index if device.index is not None else torch.cuda.current_device()
    place = torch.device("cuda", index)
    with _lock:
        return _recorders.setdefault(place, CudaRecorder(place))
