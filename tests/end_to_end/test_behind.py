"""Graphs that are compiled behind calls: what serves meanwhile means the same, and whatever happens meanwhile is met."""

import gc
import itertools
import threading

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

import pliant
from behind_calls import Gate, compiled, told
from pliant import backends
from pliant.dispatch import trial


@pytest.fixture
def gate(monkeypatch):
    yield from Gate.installed(monkeypatch)


def loss(x, w):
    return (torch.sin(x) @ w).softmax(-1).square().sum()


def tensors():
    generator = torch.Generator().manual_seed(1)
    return torch.randn(5, 4, generator=generator), torch.randn(4, 3, generator=generator).requires_grad_()


def gradient(run, x, w):
    (found,) = torch.autograd.grad(run(x, w), w)
    return found


# ---- before and after


def test_calls_run_while_code_is_compiled_and_run_it_then(gate):
    run = compiled(lambda x: torch.exp(x) * 2 + 1)
    x = torch.randn(4)
    assert torch.allclose(run(x), torch.exp(x) * 2 + 1)
    assert pliant.stats()["pending"] == 1 and not pliant.wait(0)
    assert told() == {"has begun": 1}
    gate.open()
    assert pliant.stats()["pending"] == 0 and told()["is ready"] == 1
    with pliant.debug.events.collect("capture") as again:
        for _ in range(40):
            assert torch.allclose(run(x), torch.exp(x) * 2 + 1)
    assert not again
    assert told().get("is faster", 0) + told().get("is slower, and dropped", 0) == 1


def test_without_the_option_nothing_is_put_off(gate):
    gate.opened.set()
    run = pliant.compile(lambda x: x + 1)
    run(torch.ones(2))
    assert told() == {}


@pytest.mark.parametrize("turns", [(), (1,), (1, 2)], ids=["before", "between", "after"])
def test_a_forward_has_the_backward_of_its_own_kind(gate, turns):
    pliant.reset()
    run, (x, w) = compiled(loss), tensors()
    results = []
    for turn in range(4):
        value = run(x, w)
        if turn in turns:
            gate.open()
        results.append((value, torch.autograd.grad(value, w, retain_graph=True)[0]))
        assert torch.allclose(torch.autograd.grad(value, w)[0], results[-1][1])
    for value, found in results:
        assert torch.allclose(value, loss(x, w)) and torch.allclose(found, gradient(loss, x, w))


def test_the_backward_is_compiled_behind_calls_too(gate):
    run, (x, w) = compiled(loss), tensors()
    run(x, w)
    gate.open()
    with pliant.debug.events.collect("stage") as stages:
        found = [gradient(run, x, w) for _ in range(2)]
    assert torch.allclose(found[0], gradient(loss, x, w))
    assert not [one for one in stages if one.fields["name"] in ("lower", "build", "joint")]


def test_gradients_of_gradients_before_and_after(gate):
    run, (x, w) = compiled(loss), tensors()

    def second(run):
        (first,) = torch.autograd.grad(run(x, w), w, create_graph=True)
        return torch.autograd.grad(first.square().sum(), w)[0]

    expected, before = second(loss), second(run)
    between = run(x, w)
    gate.open()
    after = second(run), second(run)
    (first,) = torch.autograd.grad(between, w, create_graph=True)
    found = [before, *after, torch.autograd.grad(first.square().sum(), w)[0]]
    assert all(torch.allclose(one, expected, rtol=1e-4) for one in found)


def test_writes_and_statistics(gate):
    norm = torch.nn.BatchNorm1d(4)
    twin = torch.nn.BatchNorm1d(4)

    def program(x, norm):
        x.mul_(2)
        return norm(x).relu()

    run = compiled(program)
    for turn in range(20):
        if turn == 2:
            gate.open()
        x, other = torch.full((3, 4), turn + 1.0), torch.full((3, 4), turn + 1.0)
        x[0], other[0] = 0, 0
        assert torch.allclose(run(x, norm), program(other, twin), atol=1e-6)
        assert torch.equal(x, other) and torch.allclose(norm.running_mean, twin.running_mean)
    assert int(norm.num_batches_tracked) == 20


def test_random_numbers_are_those_of_eager(gate):
    run = compiled(lambda x: torch.nn.functional.dropout(x, 0.5) + torch.rand(3))
    x, found = torch.ones(3), []
    for turn in range(20):
        if turn == 2:
            gate.open()
        torch.manual_seed(turn)
        found.append((run(x), torch.rand(1)))
    for turn, (value, later) in enumerate(found):
        torch.manual_seed(turn)
        assert torch.equal(value, torch.nn.functional.dropout(x, 0.5) + torch.rand(3))
        assert torch.equal(later, torch.rand(1))


def test_what_follows_a_break_is_put_off_by_itself(gate):
    def program(x):
        x = torch.sin(x)
        pliant.graph_break()
        return torch.cos(x)

    run, x = compiled(program), torch.randn(4, requires_grad=True)
    for turn in range(30):
        if turn == 2:
            assert pliant.stats()["pending"] == 2
            gate.open()
        assert torch.allclose(run(x * 2), program(x * 2))
    assert told()["is ready"] == 2


# ---- sizes


def test_sizes_that_vary(gate):
    run = compiled(lambda x: (x * 2).sum(0) + x.shape[0])
    for turn, n in enumerate((3, 4, 5, 6, 3, 7)):
        if turn == 3:
            gate.open()
        x = torch.randn(n, 2)
        assert torch.allclose(run(x), (x * 2).sum(0) + n)
    assert pliant.wait(60)
    assert pliant.stats()["recompiles"] == 1


def test_facts_that_only_the_compiler_learns_are_checked(gate):
    """What a later stage takes for granted of sizes is no guard of the entry that is there."""

    def learning(captured):
        made = Gate.__call__(gate, captured)
        (symbol,) = captured.shape_env.sources
        captured.shape_env.evaluate(symbol.lt(10))
        return made

    run = compiled(lambda x: x * 2, dynamic=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(backends.BACKENDS, "pliant", learning)
        run = compiled(lambda x: x * 2, dynamic=True)
    for n in (4, 4, 20, 5):
        assert torch.equal(run(torch.ones(n)), torch.full((n,), 2.0))
        gate.open()
    assert told()["is compiled again in a call"] == 1
    assert pliant.stats()["recompiles"] == 1  # for 20


# ---- what the program does meanwhile


def test_tensors_that_change_meanwhile(gate):
    """The compiler is told of the tensors as they were in the call."""
    run, (x, w) = compiled(loss), tensors()
    run(x, w)
    gate.begun.wait(60)
    w.requires_grad_(False)
    x.data = torch.ones(2, 2)
    gate.open()
    x, w = tensors()
    for _ in range(3):
        assert torch.allclose(gradient(run, x, w), gradient(loss, x, w))


@pytest.mark.parametrize("kind", ["leaf", "result", "view", "view of a leaf", "parameter", "constant"])
def test_tensors_are_described_as_they_are(gate, kind):
    made = {
        "leaf": lambda: torch.randn(4, requires_grad=True),
        "result": lambda: torch.randn(4, requires_grad=True) * 1,
        "view": lambda: (torch.randn(8, requires_grad=True) * 1)[2:6],
        "view of a leaf": lambda: torch.randn(8, requires_grad=True)[2:6],
        "parameter": lambda: torch.nn.Parameter(torch.randn(4)),
        "constant": lambda: torch.randn(8)[::2],
    }[kind]()
    run = compiled(lambda x: torch.sin(x) * x)
    found = [run(made)]
    gate.open()
    found.append(run(made))
    assert told()["is ready"] == 1
    assert torch.allclose(found[0], found[1]) and found[0].requires_grad == found[1].requires_grad


def test_tensors_are_let_go_of(gate):
    run, x = compiled(lambda x: x + 1), torch.ones(1000)
    run(x)
    gate.open()
    storage = StorageWeakRef(x.untyped_storage())
    del x
    gc.collect()
    assert storage.expired()


@pytest.mark.parametrize(
    "around",
    [
        lambda: torch.autocast("cpu", torch.bfloat16), torch.inference_mode, torch.no_grad, lambda: torch.device("cpu"),
        lambda: torch.autocast("cpu", torch.bfloat16, cache_enabled=False),
    ],
    ids=["autocast", "inference", "no grad", "device", "without its cache"],
)  # fmt: skip
def test_settings_of_the_calling_thread(gate, around):
    run, (x, w) = compiled(lambda x, w: (x @ w + torch.ones(3)).softmax(-1)), tensors()
    with around():
        found = [run(x, w)]
    gate.open()
    with around():
        found += [run(x, w), run(x, w)]
        expected = (x @ w + torch.ones(3)).softmax(-1)
    for one in found:
        assert torch.allclose(one, expected, atol=1e-2) and one.dtype == expected.dtype
        assert (one.requires_grad, one.is_inference()) == (expected.requires_grad, expected.is_inference())
    assert told()["is ready"] == 1


def test_the_threads_settings_are_left_as_found(gate):
    gate.opened.set()
    x, w = tensors()
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        compiled(lambda x, w: x @ w)(x, w)
        assert pliant.wait(60)
    run = compiled(loss)
    run(x, w)
    assert pliant.wait(60)
    assert torch.allclose(gradient(run, x, w), gradient(loss, x, w))


def test_many_threads(gate):
    run, (x, w), wrong = compiled(loss), tensors(), []
    expected = gradient(loss, x, w)
    turn = threading.Barrier(5)

    def work():
        for k in range(60):
            if k == 20:
                turn.wait(60)
            if not torch.allclose(gradient(run, x, w), expected, rtol=1e-4):
                wrong.append(k)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    gate.begun.wait(60)
    turn.wait(60)
    gate.open()
    for thread in threads:
        thread.join()
    assert not wrong and told()["has begun"] == told()["is ready"] == 1


def test_reset_while_compiling(gate):
    run, x = compiled(lambda x: torch.sin(x) + 1), torch.randn(4)
    run(x)
    gate.begun.wait(60)
    pliant.reset()
    gate.open()
    assert told() == {"is dropped": 1}
    run(x)
    assert pliant.wait(60)
    assert told()["is ready"] == 1


def test_functions_that_go_while_compiling(gate):
    run = compiled(lambda x: torch.sin(x) + 1)
    run(torch.ones(2))
    gate.begun.wait(60)
    del run
    gc.collect()
    gate.open()
    assert told()["is dropped"] == 1


# ---- what measures faster


class Clock:
    """A time that runs where a callable takes some."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(trial.time, "perf_counter", lambda: self.now)

    def taking(self, seconds, name, needs_grad=False):
        turns = itertools.cycle(seconds)

        def run(inputs):
            self.now += next(turns)
            return [name, torch.ones(1, requires_grad=needs_grad)]

        return run


@pytest.mark.parametrize(
    ("compiled_takes", "other_takes", "chosen"),
    [
        ([1.0], [2.0], "compiled"), ([2.0], [1.0], "other"), ([1.0], [1.0], "compiled"), ([1.0], [0.99], "compiled"),
        ([1.0, 1.0, 1.0, 9.0], [2.0], "compiled"), ([3.0, 3.0, 0.5], [1.0], "compiled"), ([2.0, 2.0, 9.0], [1.0, 9.0, 1.0], "other"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("trains", [False, True])
def test_what_is_usually_and_at_least_slower_is_dropped(monkeypatch, compiled_takes, other_takes, chosen, trains):
    clock, decided = Clock(monkeypatch), []
    runs = clock.taking(compiled_takes, "compiled", trains), clock.taking(other_takes, "other", trains)
    run = trial.Trial(*runs, lambda *found: decided.append(found))
    names = [run([])[0] for _ in range(40)]
    assert names[:6] == ["compiled", "other"] * 3 and set(names[-10:]) == {chosen}
    assert len(decided) == 1 and decided[0][0] is runs[chosen == "other"]


def test_a_call_that_is_recorded_lasts_until_the_next_one(monkeypatch):
    """Its backward is part of what it costs."""
    clock, decided = Clock(monkeypatch), []
    runs = clock.taking([2.0], "compiled", True), clock.taking([1.0], "other", True)
    run = trial.Trial(*runs, lambda *found: decided.append(found))
    for _ in range(40):
        name = run([])[0]
        clock.now += 1.0 if name == "compiled" else 5.0
    assert decided == [(runs[0], 3.0, 6.0)]


def test_calls_inside_calls_and_in_other_threads_are_not_timed(monkeypatch):
    clock, decided = Clock(monkeypatch), []
    plain = clock.taking([1.0], "compiled"), clock.taking([9.0], "other")

    def inside(inputs):
        assert run([])[0] == "compiled"
        return plain[1](inputs)

    run = trial.Trial(plain[0], inside, lambda *found: decided.append(found))
    for _ in range(40):
        run([])
    assert decided == [(plain[0], 1.0, 10.0)]


@pytest.mark.parametrize("stays", [True, False])
def test_the_slower_callable_is_dropped_for_good(gate, monkeypatch, stays):
    monkeypatch.setattr(trial, "_CLEARLY", 0.0 if stays else 1e9)
    gate.opened.set()
    run, (x, w) = compiled(loss), tensors()
    run(x, w)
    assert pliant.wait(60)
    for _ in range(40):
        assert torch.allclose(gradient(run, x, w), gradient(loss, x, w))
    assert told()["is faster" if stays else "is slower, and dropped"] == 1
    value = run(x, w)
    assert ("Compiled" in type(value.grad_fn).__name__) is stays
    assert pliant.stats()["fallbacks"] == 0
