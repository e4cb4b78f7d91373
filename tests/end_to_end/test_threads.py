"""Eight threads that call and compile the same and different functions: no deadlock, and eager's answers."""

import copy
import sys
import threading

import pytest
import torch

import pliant
from pliant.dispatch.compiled_function import dispatcher_of


@pytest.fixture(autouse=True)
def threads_switch_often():
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1e-4)
    yield
    sys.setswitchinterval(usual)


THREADS = 8
TIMEOUT = 120  # seconds after which threads count as stuck


def run_together(work):
    """`work(number)` in each thread, all starting at once; raises what the first of them raised."""
    errors = []
    start = threading.Barrier(THREADS)

    def run(number):
        try:
            start.wait(TIMEOUT)
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(n,), daemon=True) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    assert not any(thread.is_alive() for thread in threads), "stuck"
    if errors:
        raise errors[0]


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 2))


@pytest.mark.parametrize("backend", ["pliant", "eager"])
def test_one_function_is_compiled_once(backend):
    def f(x):
        return torch.relu(x * 2).sum(0) + x.shape[0]

    compiled = pliant.compile(f, backend=backend)
    x = torch.linspace(-1, 1, 12).reshape(3, 4)

    def work(number):
        for _ in range(20):
            torch.testing.assert_close(compiled(x), f(x))

    run_together(work)
    assert len(dispatcher_of(compiled).entries) == 1


def test_different_functions():
    def make(number):
        def f(x, y):
            return (x * number + y).softmax(0) @ y.t()

        return f

    def work(number):
        f = make(number)
        compiled = pliant.compile(f)
        for rows in (3, 3, 5, 7):
            x, y = torch.full((rows, 4), 0.1 * number), torch.ones(rows, 4)
            torch.testing.assert_close(compiled(x, y), f(x, y))

    run_together(work)


def test_changing_sizes():
    def f(x, w):
        return (x @ w).relu().mean(1) * x.shape[0]

    compiled = pliant.compile(f)
    w = torch.linspace(-1, 1, 20).reshape(4, 5)

    def work(number):
        for turn in range(12):
            x = torch.linspace(-1, 1, 4 * (2 + (number + turn) % 7)).reshape(-1, 4)
            torch.testing.assert_close(compiled(x, w), f(x, w))

    run_together(work)


def test_training_of_a_shared_module():
    """Forward and backward through one module, with sizes that differ by thread and turn."""
    model = network()
    compiled = pliant.compile(model)

    def work(number):
        for turn in range(4):
            x = torch.full((2 + (number + turn) % 3, 6), 0.1 * (number + 1), requires_grad=True)
            expected = torch.autograd.grad((model(x) ** 2).sum(), [x, *model.parameters()])
            found = torch.autograd.grad((compiled(x) ** 2).sum(), [x, *model.parameters()])
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other)

    run_together(work)


def test_each_thread_trains_its_own():
    start = network()

    def train(function, model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for turn in range(5):
            loss = (function(torch.full((3, 6), 0.1 * (turn + 1))) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return [p.detach().clone() for p in model.parameters()]

    eager = copy.deepcopy(start)
    expected = train(eager, eager)

    def work(number):
        model = copy.deepcopy(start)
        for one, other in zip(train(pliant.compile(model), model), expected, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)

    run_together(work)


def test_modes_and_breaks_differ_by_thread():
    def f(x):
        y = x * 2
        if y.sum() > 0:
            y = y + 1
        return y * y, torch.is_grad_enabled()

    compiled = pliant.compile(f, backend="eager")

    def work(number):
        with torch.set_grad_enabled(number % 2 == 0):
            for turn in range(10):
                x = torch.full((3,), float((-1) ** turn), requires_grad=True)
                found, expected = compiled(x), f(x)
                torch.testing.assert_close(found[0], expected[0])
                assert found[1] == expected[1] and found[0].requires_grad == expected[0].requires_grad

    run_together(work)


def test_compiled_functions_that_call_each_other():
    """Captured from both ends at once: the captures take their locks in different orders."""

    def first(x, depth):
        return second(x + 1, depth - 1) if depth else x

    def second(x, depth):
        return first(x * 2, depth - 1) if depth else x

    eager = (first, second)
    first, second = pliant.compile(first, backend="eager"), pliant.compile(second, backend="eager")

    def work(number):
        for depth in range(4):
            x = torch.full((3,), float(number))
            got = (first, second)[number % 2](x, depth)
            for step in range(depth):
                x = x * 2 if (number + step) % 2 else x + 1
            torch.testing.assert_close(got, x)

    run_together(work)
    assert eager


def test_state_that_changes_while_others_call():
    """A call sees the module before or after the change, never a mixture."""
    model = network().eval()
    compiled = pliant.compile(model, backend="eager")
    x = torch.ones(2, 6)
    answers = []
    weights = [torch.nn.Parameter(torch.full((2, 8), float(k))) for k in range(3)]
    for weight in weights:
        model[3].weight = weight
        answers.append(model(x).detach())

    def work(number):
        for turn in range(30):
            if number == 0:
                model[3].weight = weights[turn % 3]
            found = compiled(x).detach()
            assert any(torch.allclose(found, one, atol=1e-5) for one in answers)

    run_together(work)
