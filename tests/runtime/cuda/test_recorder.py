"""Captures that fail: generators, memory and later captures are as if nothing had been tried. PyTorch's graphs are
replaced by ones that keep its rules, as far as a recorder can break them."""

import contextlib
from typing import NamedTuple

import pytest
import torch

from pliant.runtime.cuda import recorder as module
from pliant.runtime.cuda.recorder import CudaRecorder


class State:
    """What a generator draws from; captured graphs hold it."""

    def __init__(self, offset=0):
        self.offset, self.capturing = offset, False

    def clone_state(self):
        assert not self.capturing
        return State(self.offset)


class Generator:
    def __init__(self):
        self.state = State()

    def graphsafe_get_state(self):
        return self.state

    def graphsafe_set_state(self, state):
        self.state = state

    def draw(self):
        """The number it draws, or, while it is captured, the function that draws it."""
        state = self.state
        if GPU.capturing is None:
            if state.capturing:
                raise RuntimeError("Offset increment outside graph capture encountered unexpectedly")
            return _next(state)
        assert state.capturing
        GPU.capturing.work.append(lambda: _next(state))
        return None


def _next(state):
    state.offset += 4
    return state.offset


class GPU:
    """What there is one of."""

    capturing = None
    allocating: set = set()
    users: dict = {}
    default = Generator()
    allocated = 0


class Graph:
    def __init__(self):
        self.work, self.states, self.is_valid, self.pool, self.is_whole = [], [], True, None, False

    def register_generator_state(self, generator):
        self.states.append(generator.state)

    def capture_begin(self, pool, capture_error_mode):
        assert capture_error_mode == "thread_local"
        if pool in GPU.allocating:
            raise RuntimeError("already recording to mempool_id")
        if GPU.users.get(pool) == 0:
            raise RuntimeError("the pool went with its last graph")
        self.users = GPU.users
        self.users[pool] = self.users.get(pool, 0) + 1
        self.register_generator_state(GPU.default)
        GPU.allocating.add(pool)
        GPU.capturing, self.pool = self, pool
        for state in self.states:
            state.capturing = True

    def capture_end(self):
        GPU.capturing = None
        if not self.is_valid:
            raise RuntimeError("operation failed due to a previous error during capture")
        GPU.allocating.discard(self.pool)
        self.is_whole = True
        for state in self.states:
            state.capturing = False

    def replay(self):
        return [step() for step in self.work]

    def reset(self):
        self.work = None
        if self.is_whole:
            self.users[self.pool] -= 1
        self.is_whole = False

    __del__ = reset


class Pool(NamedTuple):
    id: object


@pytest.fixture
def gpu(monkeypatch):
    """A recorder, and the default generator."""
    pools, tried = iter(range(100)), iter(range(100))
    monkeypatch.setattr(GPU, "capturing", None)
    monkeypatch.setattr(GPU, "allocating", set())
    monkeypatch.setattr(GPU, "users", {})
    monkeypatch.setattr(GPU, "default", Generator())

    class Stream:
        def wait_stream(self, other):
            pass

    def end_allocations(device, pool):
        GPU.allocating.remove(pool)
        GPU.users[pool] -= 1

    monkeypatch.setattr(module, "end_allocations", end_allocations)
    monkeypatch.setattr(module, "_make_workspace", lambda device: None)
    for name, value in {
        "CUDAGraph": Graph,
        "Stream": lambda device: Stream(),
        "current_stream": lambda device: Stream(),
        "graph_pool_handle": lambda: next(pools),
        "MemPool": lambda: Pool(("tried", next(tried))),
        "memory_snapshot": list,
        "memory_stats_as_nested_dict": lambda device: {"allocated_bytes": {"all": {"current": GPU.allocated}}},
        "stream": lambda stream: contextlib.nullcontext(),
        "device": lambda device: contextlib.nullcontext(),
        "synchronize": lambda device: None,
        "default_generators": (GPU.default,),
    }.items():
        monkeypatch.setattr(torch.cuda, name, value, raising=False)
    return CudaRecorder(torch.device("cuda", 0)), GPU.default


def test_a_program_may_forbid_products(monkeypatch):
    """As deterministic algorithms do where the library is not told how much memory it may take."""

    def refuse(*args):
        raise RuntimeError("deterministic behavior was enabled")

    monkeypatch.setattr(torch.Tensor, "mm", refuse)
    module._make_workspace(torch.device("cpu"))


def wait():
    """What an operator does that waits for the GPU."""
    GPU.capturing.is_valid = False
    raise RuntimeError("operation not permitted when stream is capturing")


def raise_(error):
    raise error


@pytest.mark.parametrize("fail", [wait, lambda: raise_(ValueError("no")), lambda: raise_(KeyboardInterrupt())])
def test_after_a_capture_that_failed(gpu, fail):
    recorder, default = gpu
    own, state = Generator(), default.state

    def work():
        default.draw()
        own.draw()
        fail()

    with pytest.raises((RuntimeError, ValueError, KeyboardInterrupt)):
        recorder.record(work, [own])
    assert default.state is state and not GPU.allocating and GPU.capturing is None
    assert (default.draw(), own.draw()) == (4, 4)
    _, replay = recorder.record(default.draw, [])
    assert replay() == [8]


def test_graphs_and_calls_draw_from_one_stream(gpu):
    recorder, default = gpu
    own = Generator()
    own.state.offset = 100
    _, first = recorder.record(lambda: (default.draw(), own.draw()), [own])
    assert (default.state.offset, own.state.offset) == (0, 100)
    _, second = recorder.record(default.draw, [])
    assert [first(), default.draw(), second(), first(), own.draw()] == [[4, 104], 8, [12], [16, 108], 112]


def test_recordings_share_memory_but_for_failed_ones(gpu):
    recorder, _ = gpu
    graphs = []

    def work():
        graphs.append(GPU.capturing.pool)

    kept = [recorder.record(work, []), recorder.record(work, [])]
    assert graphs == [("tried", 0), 0, ("tried", 1), 0]
    with pytest.raises(RuntimeError, match="not permitted"):
        recorder.record(wait, [])
    kept.append(recorder.record(work, []))
    assert graphs[4:] == [("tried", 3), 0]


def test_memory_goes_with_the_last_recording(gpu):
    recorder, _ = gpu
    for _ in range(3):
        first = recorder.record(lambda: None, [])
        second = recorder.record(lambda: None, [])
        del first
        third = recorder.record(lambda: None, [])
        del second, third
    assert not any(GPU.users.values())
    assert {0, 1, 2} < set(GPU.users)
