"""Recordings of compiled graphs: results are those of the function, whatever it does with its inputs' memory, whichever
inputs move, and whoever keeps what it returned. A recorder of CPU operators takes the place of a GPU."""

import random

import pytest
import torch

import pliant
from fake_recorder import FakeRecorder
from pliant.debug import events
from pliant.ir.loops import Buffer, LoopProgram
from pliant.runtime.compile_graph import _recorded_on
from pliant.runtime.cuda import graphs
from pliant.runtime.cuda.graphs import Graphed
from pliant.runtime.cuda.roles import ALIGNMENT, Roles
from pliant.symbolic.expr import ONE


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()
    with torch.no_grad():
        yield
    pliant.reset()


class Counted:
    """A compiled graph's function that counts its calls."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, inputs):
        self.calls += 1
        given = list(inputs)
        inputs.clear()
        return self.function(*given)


def recorded(function, **roles):
    """The function, recorded; the one that counts; the recorder."""
    call, recorder = Counted(function), FakeRecorder()
    return Graphed(call, Roles(**{k: frozenset(v) if k != "sized" else v for k, v in roles.items()}), recorder, "f"), call, recorder


def run(function, *inputs):
    given = list(inputs)
    found = function(given)
    assert not given
    return found


def reasons(kind):
    return [e.fields["why"] for e in events.events(kind)]


def test_nothing_is_replayed_between_messages_of_others():
    """Where gradients may travel between the backwards of several graphs."""
    made = [recorded(lambda x: [x + 1])[0] for _ in range(3)]
    made[0].name, made[1].name, made[2].name = "f_forward", "f_backward", "g_backward"
    for graphed in made[:2]:
        graphs.beside_messages(graphed)
        for _ in range(3):
            run(graphed, torch.ones(2))
        assert graphed.refused is None and graphed._recordings
    graphs.beside_messages(made[2])
    for graphed in made:
        assert torch.equal(run(graphed, torch.ones(2))[0], torch.full((2,), 2.0))
        assert "travel" in graphed.refused and not graphed._recordings


def test_a_tensor_that_is_returned_twice_is_one_tensor():
    def function(x, w):
        view, product = x[1:], x * w
        return [view, product, view, product, x[1:], product[1:]]

    f, call, _ = recorded(function, static={1}, private={1, 3, 5})
    g, _, _ = recorded(function, static={1})
    for run_it in (f, g):
        for _ in range(4):
            x, w = torch.randn(4), torch.ones(4)
            found = run(run_it, x, w)
            assert found[0] is found[2] and found[1] is found[3] and found[4] is not found[0]
            assert torch.equal(found[1], x) and torch.equal(found[4], x[1:]) and torch.equal(found[5], x[1:])
            del found
    assert call.calls < 4


@pytest.mark.parametrize("draws", [False, True])
def test_which_numbers_are_drawn_depends_on_alignment(draws):
    """Libraries read vectors where tensors are aligned: a recording that draws holds for tensors that lie as its own."""
    seen = []

    def function(x):
        seen.append(x.data_ptr() % ALIGNMENT)
        return [x * 2]

    call, recorder = Counted(function), FakeRecorder()
    f = Graphed(call, Roles(draws=draws), recorder, "f")
    memory = torch.randn(64)
    for offset in (0, 0, 0, 1, 1, 1):
        x = memory[offset : offset + 8]
        assert torch.equal(run(f, x)[0], x * 2)
    assert seen == ([0, 0, 4, 4] if draws else [0, 0])


def test_the_second_call_is_recorded_and_the_third_replayed():
    f, call, recorder = recorded(lambda w, x: [w * x + 1, x.sum()], static={0})
    w, kept = torch.randn(4), []
    for k in range(5):
        x = torch.randn(4)
        kept.append((run(f, w, x), w * x + 1, x.sum()))
        assert (call.calls, recorder.recorded) == ((1, 0) if k == 0 else (2, 1))
    for (product, total), wanted, wanted_total in kept:  # all of them are still what they were
        torch.testing.assert_close(product, wanted)
        torch.testing.assert_close(total, wanted_total)
    assert [e.fields["held"] for e in events.events("cuda_graph")] == [1]


def test_static_inputs_are_read_where_they_lie():
    f, call, _ = recorded(lambda w, x: [w * x], static={0})
    w, x = torch.ones(4), torch.ones(4)
    for k in range(4):
        w.fill_(k)
        assert run(f, w, x)[0][0] == k
    assert call.calls == 2


def test_a_static_input_that_moved_is_held_from_then_on():
    f, call, recorder = recorded(lambda w, v, x: [w * x + v], static={0, 1})
    v, x, ws = torch.ones(4), torch.ones(4), [torch.full((4,), float(k)) for k in range(6)]
    for k in (0, 0, 0, 1, 2, 3):
        assert run(f, ws[k], v, x)[0][0] == k + 1
    assert recorder.recorded == 2 and call.calls == 3


def test_inputs_that_keep_moving_are_all_held():
    f, _, recorder = recorded(lambda *ws: [torch.stack(ws).sum(0)], static=set(range(8)))
    ws = [torch.full((4,), float(k)) for k in range(8)]
    for k in range(8):
        run(f, *ws)
        ws[k] = ws[k].clone()
        assert run(f, *ws)[0][0] == 28
    assert recorder.recorded == 1 + graphs.MOST_MOVES + 1


@pytest.mark.parametrize("static", [set(), {0}])
def test_writes_of_inputs(static):
    def function(total, x):
        total += x
        return [total * 2]

    f, call, _ = recorded(function, static=static, written={0})
    total = torch.zeros(4)
    for k in range(1, 5):
        assert run(f, total, torch.ones(4))[0].tolist() == [2 * k] * 4
        assert total.tolist() == [k] * 4
    assert call.calls == 2


def test_writes_are_not_counted_twice():
    f, _, _ = recorded(lambda t: [t.mul_(2)], written={0})
    total = torch.ones(2)
    for _ in range(3):
        before = total._version
        run(f, total)
    assert total._version == before  # whoever calls compiled graphs counts them


def test_outputs_in_the_memory_of_inputs():
    f, call, _ = recorded(lambda x, y: [x, x[1:3], y.view(2, 2).t(), y.view(torch.int32)], static={1})
    y = torch.randn(4)
    for _ in range(4):
        x = torch.randn(9)[2:6]
        same, part, turned, cast = run(f, x, y)
        assert same is x and part.data_ptr() == x.data_ptr() + 4 and part.tolist() == x[1:3].tolist()
        assert turned.data_ptr() == y.data_ptr() and torch.equal(turned, y.view(2, 2).t())
        assert torch.equal(cast, y.view(torch.int32))
    assert call.calls == 2


def test_outputs_that_share_memory_share_it_still():
    def function(x):
        y = x + 1
        return [y[:2], y, y, None, 3, y.view(torch.int32)]

    f, call, _ = recorded(function)
    for _ in range(4):
        x = torch.randn(4)
        head, y, again, none, three, cast = run(f, x)
        assert again is y or again.data_ptr() == y.data_ptr()
        assert (none, three) == (None, 3) and torch.equal(y, x + 1)
        y.fill_(5)
        assert head.tolist() == [5, 5] and torch.equal(cast, y.view(torch.int32))
    assert call.calls == 2


@pytest.mark.parametrize("kept", ["the tensor", "a view", "nothing"])
def test_private_outputs_are_lent(kept):
    """What the backward reads is not copied; while it lives, calls run as they are."""
    f, call, _ = recorded(lambda x: [x * 2, x + 1], private={1})
    places = set()
    for _ in range(3):
        shown, saved = run(f, torch.zeros(4))
        places.add(saved.data_ptr())
        saved = None
    assert call.calls == 2
    shown, saved = run(f, torch.zeros(4))
    assert saved.data_ptr() in places
    saved = {"the tensor": saved, "a view": saved[1:], "nothing": None}[kept]
    again = run(f, torch.ones(4))
    assert call.calls == (2 if kept == "nothing" else 3) and shown[0] == 0
    assert saved is None or saved[0] == 1
    assert again[1].tolist() == [2] * 4
    assert reasons("cuda_graph_skipped") == ([] if kept == "nothing" else ["results of the last call still live"])
    del saved, again
    assert run(f, torch.full((4,), 3.0))[1].tolist() == [4] * 4
    assert call.calls == (2 if kept == "nothing" else 3)


def test_forward_and_backward_hand_over_in_place():
    """The backward reads what the forward saved where it lies: nothing is copied between them."""
    forward, first, _ = recorded(lambda w, x: [(w * x).sum(), w * x], static={0}, private={1})
    backward, second, _ = recorded(lambda saved, w, g: [saved * g + w], static={0, 1})
    w = torch.randn(4)
    for _ in range(5):
        x, g = torch.randn(4), torch.randn(4)
        total, saved = run(forward, w, x)
        inputs = [saved, w, g]
        del saved
        torch.testing.assert_close(backward(inputs)[0], w * x * g + w)
        torch.testing.assert_close(total, (w * x).sum())
    assert first.calls == 2 and second.calls <= 3
    assert [e.fields["held"] for e in events.events("cuda_graph")][0] == 1


def test_sizes_and_numbers_have_recordings_of_their_own(monkeypatch):
    monkeypatch.setattr(graphs, "MOST_SIZES", 3)
    f, call, recorder = recorded(lambda x, n: [x * n], sized=(0, 1))
    for n in (2, 0.0, -0.0, True, 1, 5):
        for _ in range(3):
            x = torch.ones(3 if n == 5 else 2)
            assert str(run(f, x, n)[0].tolist()) == str((x * n).tolist())
    assert recorder.recorded == 3 and call.calls == 3 * 2 + 3 * 3
    assert reasons("cuda_graph_refused") == ["3 sizes or numbers are recorded already"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(3, 1).expand(3, 4),
        lambda: torch.randn(6).as_strided((4, 3), (1, 1)),
        lambda: torch.randn(4, 6)[:, ::2],
        lambda: torch.randn(4, 6).t(),
        lambda: torch.randn(()).expand(2, 2),
        lambda: torch.randn(0, 3),
        lambda: torch.randn(2, 3, dtype=torch.complex64),
        lambda: torch.randn(40)[7:].as_strided((2, 3), (9, 4)),
    ],
)
def test_inputs_of_any_geometry(make):
    f, call, _ = recorded(lambda x: [x * 2, x])
    for _ in range(4):
        x = make()
        doubled, same = run(f, x)
        assert same is x and torch.equal(doubled, x * 2) and doubled.stride() == (x * 2).stride()
    assert call.calls == 2


def test_what_cannot_be_recorded_runs_as_it_is():
    f, call, _ = recorded(lambda x: [x * x.sum().item()])
    for k in range(3):
        assert run(f, torch.full((2,), float(k)))[0].tolist() == [2 * k * k] * 2
    assert call.calls == 4
    (why,) = reasons("cuda_graph_refused")
    assert "aten::_local_scalar_dense is not permitted" in why


def test_a_written_input_in_the_memory_of_another_is_not_recorded():
    f, call, _ = recorded(lambda a, b: [a.add_(1), b * 2], written={0})
    for _ in range(3):
        base = torch.zeros(4)
        assert run(f, base[:2], base[1:3])[1].tolist() == [2, 0]
    assert call.calls == 3 and "shares memory" in reasons("cuda_graph_refused")[0]


def test_what_is_refused_beforehand_is_said():
    host, device = (Buffer(d, torch.float32, (ONE,), (ONE,), torch.device(d), "input") for d in ("cpu", "cuda"))
    program = LoopProgram([host, device], [], [], name="f")
    assert _recorded_on(program) is None
    assert reasons("cuda_graph_refused") == ["a tensor on cpu"]


def test_inference_mode_has_recordings_of_its_own():
    f, _, recorder = recorded(lambda x: [x * 2])
    for mode in (True, False, True, False, True, False):
        with torch.inference_mode(mode):
            assert run(f, torch.ones(2))[0].is_inference() == mode
    assert recorder.recorded == 2


def test_errors_of_the_program_are_raised_by_the_call_itself():
    def function(x):
        if x.shape[0] == 3:
            raise ValueError("three")
        return [x]

    f, _, _ = recorded(function, sized=(0,))
    for _ in range(3):
        with pytest.raises(ValueError, match="three"):
            run(f, torch.ones(3))


def _random_program(rng):
    """A function of three tensors, of which it may write the first, and what it does to compare by."""
    steps = [(rng.choice("add mul view write keep sum".split()), rng.randrange(3), rng.randrange(3)) for _ in range(5)]

    def function(*tensors):
        values, outputs = list(tensors), []
        for what, a, b in steps:
            x, y = values[a % len(values)], values[b % len(values)]
            match what:
                case "add":
                    values.append(x + y)
                case "mul":
                    values.append(x * y * 0.5)
                case "view":
                    values.append(x.flip(0).view(-1).view(4))
                case "write":
                    tensors[0].add_(y, alpha=0.25)
                case "keep":
                    outputs.append(values[-1][b:])
                case "sum":
                    outputs.append(values[-1].sum())
        return [*outputs, values[-1], values[a % len(values)]]

    return function


@pytest.mark.parametrize("seed", range(30))
def test_random_programs_and_callers(seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    function = _random_program(rng)
    private = {k for k in range(4) if rng.random() < 0.3}
    f, _, _ = recorded(function, static={k for k in range(3) if rng.random() < 0.5}, written={0}, private=private)
    pool = [torch.randn(4) for _ in range(6)]
    kept = []
    for _ in range(12):
        places = [0, 1, 2] if rng.random() < 0.6 else rng.sample(range(6), 3)
        inputs = [pool[k] if rng.random() < 0.7 else torch.randn(4) for k in places]
        twins = [t.clone() for t in inputs]
        found, wanted = run(f, *inputs), function(*twins)
        kept.append((found, [w.clone() for w in wanted], [inputs[0].data_ptr(), *map(torch.Tensor.data_ptr, pool)]))
        torch.testing.assert_close(inputs, twins)
        torch.testing.assert_close(found, wanted)
        for results, values, written in kept:  # nothing that was returned has changed, but in an input's memory
            for k, (result, value) in enumerate(zip(results, values)):
                if not any(0 <= result.data_ptr() - place < 16 for place in written):
                    torch.testing.assert_close(result, value, msg=f"output {k}")
        kept = [one for one in kept if rng.random() < 0.5]
        del found, wanted
