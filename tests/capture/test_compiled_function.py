"""Dispatch over entries: hits, misses, recompiles, limits, failures; functions and modules that are compiled."""

import asyncio
import copy
import functools
import inspect
import pickle
import sys
import threading

import pytest
import torch

import pliant
from pliant import config
from pliant.backends import BACKENDS
from pliant.debug import events
from pliant.dispatch.compiled_function import dispatcher_of
from pliant.dispatch.markers import Compiled
from pliant.errors import FallbackWarning, GraphBreakError, InternalError, PliantWarning, RecompileError

compiled = functools.partial(pliant.compile, backend="eager")
X = torch.randn(3, 8)


@pytest.fixture(autouse=True)
def _fresh():
    events.reset()
    with config.patch(strict=True):
        yield


def count(fn):
    return len(dispatcher_of(fn).entries)


def test_same_call_runs_the_same_entry():
    f = compiled(lambda x, y: torch.relu(x) + y)
    for _ in range(3):
        assert torch.equal(f(X, X * 2), torch.relu(X) + X * 2)
    assert count(f) == 1


def test_other_arguments_compile_again():
    f = compiled(lambda x, *rest, k=1: x * k + len(rest))
    assert torch.equal(f(X), X)
    assert torch.equal(f(X, 1, 2), X + 2)
    assert torch.equal(f(X, k=3), X * 3)
    assert torch.equal(f(X.double()), X.double())
    assert count(f) == 4
    assert events.stats()["recompiles"] == 3


def test_most_recently_used_entry_comes_first():
    f = compiled(lambda x: x + 1)
    f(X), f(X.double())
    dispatcher = dispatcher_of(f)
    first = dispatcher.entries[0]
    f(X)
    assert dispatcher.entries[1] is first and dispatcher.hot is dispatcher.entries[0].run
    assert count(f) == 2


def test_numbers_that_vary_become_symbols():
    class Scale:
        factor = 0.0

        def __call__(self, x):
            return x * self.factor

    scale = Scale()
    f = compiled(scale)
    for factor in (2.0, 3.0, 4.0, 5.5):
        scale.factor = factor
        assert torch.equal(f(X), X * factor)
    assert count(f) == 2


def test_recompile_says_what_changed():
    f = compiled(lambda x: x + 1)
    with events.collect("recompile") as found:
        f(X), f(X.double())
    assert found[0].fields["why"] == "dtype of `x` was torch.float32, is torch.float64"


@pytest.mark.fallbacks_expected  # the limit is reached
def test_limit_warns_once_and_runs_eagerly():
    f = compiled(lambda x, name: x + len(name))
    with config.patch(recompile_limit=2), pytest.warns(PliantWarning, match="compiled 2 times") as found:
        for name in ("a", "bb", "ccc", "dddd"):
            assert torch.equal(f(X, name), X + len(name))
    assert count(f) == 2 and len(found) == 1
    text = str(found[0].message)
    assert "  why  `name` was" in text and "PLIANT_RECOMPILE_LIMIT=4" in text
    assert "test_compiled_function.py:" in text and found[0].filename == __file__


@pytest.mark.fallbacks_expected  # the limit is reached
def test_at_the_limit_the_last_few_reasons_are_told():
    f = compiled(lambda x, name: x + len(name))
    with pytest.warns(PliantWarning, match="compiled 8 times") as found:
        for size in range(9):
            f(X, "a" * size)
    text = str(found[0].message)
    assert text.count("`name` was") == 3 and "\n       and 5 more\n" in text


def test_stances():
    f = compiled(lambda x: x + 1)
    f(X)
    with pliant.set_stance("force_eager"):
        assert torch.equal(f(X), X + 1)
        assert torch.equal(compiled(lambda x: x * 2)(X), X * 2)
        assert events.stats()["graphs"] == 1
    with pliant.set_stance("eager_on_recompile"):
        assert torch.equal(f(X.double()), X.double() + 1)
        assert count(f) == 1
    with pliant.set_stance("fail_on_recompile"), pytest.raises(RecompileError, match="dtype of `x`"):
        f(X.double())
    assert torch.equal(f(X), X + 1)


def test_reset_forgets_entries():
    f = compiled(lambda x: x + 1)
    f(X)
    pliant.reset()
    assert count(f) == 0
    assert torch.equal(f(X), X + 1) and count(f) == 1


def test_threads_share_entries():
    f = compiled(lambda x: x * 2 + 1)
    results = []
    workers = [threading.Thread(target=lambda: results.append(f(X))) for _ in range(8)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    assert len(results) == 8 and all(torch.equal(r, X * 2 + 1) for r in results)
    assert count(f) == 1


def test_exceptions_are_the_programs_own():
    def f(x):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        compiled(f)(X)
    with pytest.raises(TypeError, match="positional argument"):
        compiled(f)()


def test_what_raises_only_while_it_is_captured_is_given_up():
    calls = []

    def fn(x):
        if torch.compiler.is_compiling():
            raise ValueError("not for compilers")
        calls.append(x)
        return x + 1

    pliant.reset()
    compiled = pliant.compile(fn)
    with events.collect("capture") as captures:
        for _ in range(20):
            assert compiled(torch.ones(1)) == 2
    assert len(calls) == 20 and len(captures) == 8
    assert sum(pliant.stats()["fallback_reasons"].values()) == 20


def test_crash_of_the_compiler_falls_back(monkeypatch):
    def crashing(captured):
        raise ZeroDivisionError("compiler")

    monkeypatch.setitem(BACKENDS, "crashing", crashing)
    f = pliant.compile(lambda x: x + 1, backend="crashing")
    with config.patch(strict=False), pytest.warns(FallbackWarning, match="ZeroDivisionError") as found:
        assert torch.equal(f(X), X + 1)
        assert torch.equal(f(X), X + 1)
    assert len(found) == 1
    assert events.stats()["fallbacks"] >= 1
    with pytest.raises(InternalError, match="ZeroDivisionError"):
        pliant.compile(lambda x: x + 1, backend="crashing")(X)


def test_full_graph_names_the_line():
    def f(x):
        y = x + 1
        pliant.graph_break()  # here
        return y

    with pytest.raises(GraphBreakError, match=r"user-request(.|\n)*# here"):
        compiled(f, fullgraph=True)(X)
    assert torch.equal(compiled(f)(X), X + 1)


def test_compiled_functions_inline():
    inner = compiled(lambda x: x + 1)
    outer = compiled(lambda x: inner(x) * 2)
    assert torch.equal(outer(X), (X + 1) * 2)
    assert count(outer) == 1 and count(inner) == 0


def test_a_coroutine_function_is_known_as_one():
    async def later(x):
        return x

    compiled = pliant.compile(later, backend="eager")
    known = asyncio.iscoroutinefunction if sys.version_info < (3, 12) else inspect.iscoroutinefunction
    assert known(compiled) and not known(pliant.compile(torch.relu, backend="eager"))


def test_names_and_signatures_stay():
    def f(x, *, k: int = 1) -> torch.Tensor:
        "Doc."
        return x * k

    g = compiled(f)
    assert (g.__name__, g.__doc__, g.__wrapped__) == ("f", "Doc.", f)
    assert inspect.signature(g) == inspect.signature(f)
    assert torch.equal(g(X, k=2), X * 2)


def test_decorators_and_methods():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)
            self.calls = 0

        @pliant.compile(backend="eager")
        def forward(self, x):
            self.calls += 1
            return self.linear(x)

    net = Net()
    for i in range(3):
        assert torch.equal(net(X), net.linear(X))
        assert net.calls == i + 1
    method = compiled(net.linear.forward)
    assert torch.equal(method(X), net.linear(X))


@pytest.mark.parametrize("make", [lambda: functools.partial(torch.mul, 3), lambda: torch.relu, lambda: torch.nn.ReLU()])
def test_other_callables(make):
    fn = make()
    assert torch.equal(compiled(fn)(X), fn(X))


# ---- modules


def sequential():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.LayerNorm(8))


def test_module_behaves_like_the_original():
    m = sequential()
    c = compiled(m)
    assert torch.equal(c(X), m(X))
    assert isinstance(c, torch.nn.Sequential) and len(c) == 3 and c[0] is m[0]
    assert repr(c) == repr(m)
    assert list(c.state_dict()) == list(m.state_dict())
    assert [n for n, _ in c.named_parameters()] == [n for n, _ in m.named_parameters()]
    c.eval()
    assert not m.training
    c.extra = 3
    assert m.extra == 3
    assert c._orig_mod is m


def test_module_changes_are_noticed():
    m = sequential()
    c = compiled(m)
    c(X)
    seen = []
    handle = m.register_forward_hook(lambda module, inputs, output: seen.append(1) or output * 2)
    assert torch.equal(c(X), m(X)) and len(seen) == 2
    handle.remove()
    m[1] = torch.nn.Tanh()
    assert torch.equal(c(X), m(X))
    with torch.no_grad():
        m[0].weight.mul_(2)
    assert torch.equal(c(X), m(X))
    m[0].weight = torch.nn.Parameter(torch.zeros(8, 8))
    assert torch.equal(c(X), m(X))
    m.double()
    assert torch.equal(c(X.double()), m(X.double()))


def test_copies_compile_anew():
    c = compiled(sequential())
    expected = c(X)
    for other in (copy.deepcopy(c), pickle.loads(pickle.dumps(c))):
        assert isinstance(other, Compiled) and dispatcher_of(other) is not dispatcher_of(c)
        assert torch.equal(other(X), expected)
        with torch.no_grad():
            other[0].weight.zero_()
    assert torch.equal(c(X), expected)


def test_in_place():
    class Generator(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(8, 8)

        def forward(self, x):
            return self.linear(x)

        def generate(self, x):
            for _ in range(3):
                x = self(x)
            return x

    m = Generator()
    expected = m.generate(X)
    assert pliant.compile_(m, backend="eager") is m
    with torch.no_grad():
        assert torch.equal(m.generate(X), expected)
    assert events.stats()["graphs"] == 1
    assert torch.equal(copy.deepcopy(m)(X), m(X))
