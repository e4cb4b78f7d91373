"""Recordings that nobody asked for: made where launching takes most of a call's time, kept unless they are slower."""

import itertools

import pytest
import torch

import pliant
from fake_recorder import FakeRecorder
from pliant.debug import events
from pliant.runtime.cuda.graphs import MOST_MEMORY, MOST_MOVES, MOST_TOGETHER, Graphed
from pliant.runtime.cuda.roles import Roles
from pliant.runtime.cuda.trials import LEAST, TRIALS, Trials

LAUNCH_BOUND, WORK_BOUND = (0.0095, 0.01), (0.002, 0.01)  # seconds until launched, and until done
FASTER, AS_FAST, SLOWER = (0.0001, 0.002), (0.0001, 0.0099), (0.0001, 0.011)
BETWEEN = (0.006, 0.01)  # launches that take more than half of the time


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()
    with torch.no_grad():
        yield
    pliant.reset()


def tried(times, roles=Roles()):
    """A graph's function that is recorded where that pays, its recorder, and how often it was called as it is."""
    calls, recorder = [], FakeRecorder()
    recorder.times = iter(times)

    def call(inputs):
        (x,) = inputs
        inputs.clear()
        calls.append(x.shape)
        return [x * 2 + 1]

    return Graphed(call, roles, recorder, "f", Trials(recorder)), recorder, calls


def run(f, times, size=4):
    for _ in range(times):
        x = torch.randn(size)
        torch.testing.assert_close(f([x])[0], x * 2 + 1)


@pytest.mark.parametrize("plain", [LAUNCH_BOUND, BETWEEN])
@pytest.mark.parametrize("replayed", [FASTER, AS_FAST])
def test_launches_that_take_most_of_the_time_are_recorded(plain, replayed):
    f, recorder, calls = tried([plain] * TRIALS + [replayed] * TRIALS)
    run(f, 1 + TRIALS)
    assert recorder.recorded == 0
    run(f, 10)  # replays are timed as often, and no longer
    assert recorder.recorded == 1
    assert len(calls) == 1 + TRIALS + 1  # and once to record it


@pytest.mark.parametrize("times", [[WORK_BOUND] * TRIALS, [LAUNCH_BOUND, WORK_BOUND, WORK_BOUND], [(LEAST / 3, LEAST / 2)] * TRIALS])
def test_other_calls_are_not_and_are_timed_no_more(times):
    f, recorder, calls = tried(times)
    run(f, 20)
    assert recorder.recorded == 0 and len(calls) == 20
    assert f.refused is not None


def test_one_slow_call_does_not_decide():
    f, recorder, _ = tried([LAUNCH_BOUND, WORK_BOUND, LAUNCH_BOUND, *[FASTER] * TRIALS])
    run(f, 10)
    assert recorder.recorded == 1


def test_a_recording_that_is_slower_goes():
    f, recorder, calls = tried([LAUNCH_BOUND] * TRIALS + [SLOWER] * TRIALS)
    run(f, 20)
    assert recorder.recorded == 1
    assert not f._recordings and len(calls) == 20 - TRIALS + 1
    assert [e.fields["why"] for e in events.events("cuda_graph_refused")] == ["a recording of it is slower"]


def test_each_size_is_tried():
    f, recorder, calls = tried([LAUNCH_BOUND] * TRIALS + [FASTER] * TRIALS + [WORK_BOUND] * TRIALS, Roles(sized=(0,)))
    run(f, 20, size=4)
    before = len(calls)
    run(f, 10, size=5)
    assert recorder.recorded == 1 and len(calls) == before + 10
    run(f, 3, size=4)
    assert len(calls) == before + 10


def test_sizes_that_never_come_again_cost_nothing():
    f, recorder, _ = tried(itertools.repeat(LAUNCH_BOUND), Roles(sized=(0,)))
    for size in range(1, 300):
        run(f, 1, size=size)
    assert recorder.recorded == 0


def test_much_memory_is_not_kept():
    f, recorder, calls = tried([LAUNCH_BOUND] * TRIALS)
    recorder.kept = 2 * MOST_MEMORY
    run(f, 10)
    assert recorder.recorded == 1 and len(calls) == 11
    assert "memory" in f.refused


def test_recordings_of_many_sizes_keep_a_share_together():
    times = itertools.cycle([LAUNCH_BOUND] * TRIALS + [FASTER] * TRIALS)
    f, recorder, _ = tried(times, Roles(sized=(0,)))
    recorder.kept = 0.9 * MOST_MEMORY
    kept = int(MOST_TOGETHER / recorder.kept)
    for size in range(1, kept + 4):
        run(f, 1 + 2 * TRIALS, size=size)
    assert len(f._recordings) == kept and "memory" in f.refused


def staying(times):
    """A graph of two inputs of which nothing is said, the recorder, and the calls that were no replays."""
    calls, recorder = [], FakeRecorder()
    recorder.times = itertools.chain(times, itertools.repeat(FASTER))

    def call(inputs):
        x, y = inputs
        inputs.clear()
        calls.append(x)
        return [x * y, x]

    return Graphed(call, Roles(), recorder, "f", Trials(recorder)), recorder, calls


def test_inputs_that_stayed_while_calls_were_timed_are_read_where_they_lie():
    f, recorder, calls = staying([LAUNCH_BOUND] * TRIALS)
    x, pool = torch.randn(4), [torch.randn(4) for _ in range(3)]
    for k in range(12):
        x.copy_(torch.randn(4))
        y = pool[k % 3]
        product, same = f([x, y])
        torch.testing.assert_close(product, x * y)
        assert same is x
    assert recorder.recorded == 1 and [e.fields["held"] for e in events.events("cuda_graph")] == [1]


def test_one_of_them_that_moves_is_held():
    f, recorder, calls = staying([LAUNCH_BOUND] * TRIALS)
    x, y = torch.randn(4), torch.randn(4)
    for k in range(30):
        if k >= 10:
            x, before = torch.randn(4), x
            assert x is not before  # which lives meanwhile, so that the new one lies elsewhere
        torch.testing.assert_close(f([x, y])[0], x * y)
    assert recorder.recorded == 2 and [e.fields["held"] for e in events.events("cuda_graph")] == [0, 1]
    assert f.refused is None and len(calls) == 1 + TRIALS + 2


def writing(recorder, trials):
    def call(inputs):
        x, y = inputs
        inputs.clear()
        x.add_(y * 1)
        return [x * 2]

    return Graphed(call, Roles(written=frozenset({0})), recorder, "f", trials)


@pytest.mark.parametrize("tried", [True, False])
def test_written_inputs_that_stay_are_written_where_they_lie(tried):
    recorder = FakeRecorder()
    recorder.times = itertools.chain([LAUNCH_BOUND] * TRIALS, itertools.repeat(FASTER))
    f, x, y = writing(recorder, Trials(recorder) if tried else None), torch.zeros(4), torch.ones(4)
    for k in range(10):
        assert f([x, y])[0].tolist() == [2.0 * (k + 1)] * 4 and x.tolist() == [k + 1.0] * 4
    assert [e.fields["held"] for e in events.events("cuda_graph")] == [0 if tried else 1]


def test_written_inputs_that_move_again_and_again_are_held():
    recorder = FakeRecorder()
    recorder.times = itertools.chain([LAUNCH_BOUND] * TRIALS, itertools.repeat(FASTER))
    f, y, kept = writing(recorder, Trials(recorder)), torch.ones(4), []
    for _ in range(8):
        x = torch.zeros(4)
        kept.append(x)  # the next one lies elsewhere
        for k in range(6):
            assert f([x, y])[0].tolist() == [2.0 * (k + 1)] * 4 and x.tolist() == [k + 1.0] * 4
    assert [e.fields["held"] for e in events.events("cuda_graph")] == [0] * (1 + MOST_MOVES) + [2]


def test_a_held_input_may_not_share_memory_with_a_written_one():
    recorder = FakeRecorder()
    recorder.times = itertools.chain([LAUNCH_BOUND] * TRIALS, itertools.repeat(FASTER))
    f, memory = writing(recorder, Trials(recorder)), torch.zeros(12)
    x = memory[:4]
    for start in (4, 2):  # beside it, then in it: what is written is read
        for _ in range(6):
            memory.copy_(torch.arange(12.0))
            expected = memory.clone()
            expected[:4] += expected[start : start + 4].clone()
            assert torch.equal(f([x, memory[start : start + 4]])[0], 2 * expected[:4])
    assert recorder.recorded == 1 and "shares memory" in f.refused


def test_inputs_that_move_are_not_copied():
    calls, recorder = [], FakeRecorder()
    recorder.times = iter([LAUNCH_BOUND] * TRIALS + [FASTER] * TRIALS)

    def call(inputs):
        w, x = inputs
        inputs.clear()
        calls.append(x)
        return [w * x]

    f, w = Graphed(call, Roles(static=frozenset({0})), recorder, "f", Trials(recorder)), torch.randn(4)
    for _ in range(8):
        x = torch.randn(4)
        torch.testing.assert_close(f([w, x])[0], w * x)
    before = len(calls)
    for _ in range(4):
        w, x = torch.randn(4), torch.randn(4)
        torch.testing.assert_close(f([w, x])[0], w * x)
    assert recorder.recorded == 1 and len(calls) == before + 4


def test_nothing_is_done_while_the_program_captures():
    f, recorder, calls = tried([LAUNCH_BOUND] * TRIALS + [FASTER] * TRIALS)
    recorder.capturing = True
    run(f, 10)
    assert recorder.recorded == 0 and len(calls) == 10
    recorder.capturing = False
    run(f, 10)
    recorder.capturing = True
    before = len(calls)
    run(f, 3)
    assert recorder.recorded == 1 and len(calls) == before + 3


def test_sizes_that_a_recording_does_not_pay_for_wait_for_nobody():
    f, recorder, calls = tried(itertools.repeat(WORK_BOUND), Roles(sized=(0,)))
    for _ in range(TRIALS + 1):
        f([torch.ones(4)])
    recorder.turn = None  # what orders recordings is not asked
    assert f([torch.ones(4)])[0].tolist() == [3.0] * 4 and len(calls) == TRIALS + 2


def test_sizes_for_which_a_recording_does_not_pay_are_called_at_once():
    f, recorder, calls = tried([WORK_BOUND] * TRIALS, Roles(sized=(0,)))
    run(f, 1 + TRIALS)
    recorder.is_capturing = None  # asked no more, which takes as long as some launches
    run(f, 3)
    assert f.refused is None and len(calls) == 4 + TRIALS
