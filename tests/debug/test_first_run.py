"""`verify="first"`: a wrong graph is found the first time it runs, and eager serves; a right one is left alone."""

import pytest
import torch

import pliant
from pliant import config
from pliant.backends import BACKENDS
from pliant.compiler import compile_captured
from pliant.debug.first_run import difference
from pliant.errors import FallbackWarning


@pytest.fixture(autouse=True)
def verified(tmp_path):
    with config.patch(verify="first", cache_dir=str(tmp_path)):
        yield


def wrong(captured):
    run = compile_captured(captured)
    return lambda inputs: tuple(v * 1.01 if isinstance(v, torch.Tensor) else v for v in run(inputs))


@pytest.fixture
def wrong_backend():
    BACKENDS["wrong"] = wrong
    yield "wrong"
    del BACKENDS["wrong"]


@pytest.mark.fallbacks_expected  # that is what it is about
def test_a_wrong_graph_is_replaced_by_eager(wrong_backend):
    def f(x):
        return x.sin() * 2

    x = torch.randn(8)
    compiled = pliant.compile(f, backend=wrong_backend)
    with pytest.warns(FallbackWarning, match=r"disagrees with eager.*result 0 differs.*repro-"):
        assert torch.equal(compiled(x), f(x))
    assert torch.equal(compiled(x + 1), f(x + 1))


@pytest.mark.parametrize("dynamic", [False, True])
def test_right_graphs_are_compared_without_a_trace(dynamic, recwarn):
    def f(x, w):
        x.add_(1)
        return torch.nn.functional.dropout(x @ w, 0.5).softmax(-1), x.t()

    compiled = pliant.compile(f, dynamic=dynamic)
    w = torch.randn(5, 6, requires_grad=True)
    for rows in (4, 4, 7):
        ours, theirs = torch.ones(rows, 5), torch.ones(rows, 5)
        results = []
        for run, x in ((compiled, ours), (f, theirs)):
            torch.manual_seed(3)
            y, t = run(x, w)
            results.append((y.detach(), t, torch.autograd.grad(y[:, 0].sum(), w)[0], torch.rand(2)))
        for one, other in zip(*results):
            torch.testing.assert_close(one, other)
        assert torch.equal(ours, theirs)
    assert not [w for w in recwarn if issubclass(w.category, FallbackWarning)]


def test_a_wrong_gradient_and_a_lost_write_are_named():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g

    x = torch.randn(3, requires_grad=True)
    assert "gradient of input 0" in difference(lambda i: (Wrong.apply(i[0]),), lambda i: (i[0] * 2,), [x])
    y = torch.zeros(3)
    assert "input 0 afterwards" in difference(lambda i: (i[0] + 1,), lambda i: (i[0].add_(1),), [y])
    assert difference(lambda i: (i[0] * 3 / 3,), lambda i: (i[0],), [x]) is None and torch.equal(y, torch.zeros(3))


@pytest.mark.parametrize("stage", ["graph", "joint", "lower"])
def test_what_a_stage_made_runs_by_its_interpreter(stage):
    def f(x, w):
        return torch.nn.functional.gelu(x @ w).softmax(-1)

    x, w = torch.randn(4, 5), torch.randn(5, 6, requires_grad=True)
    with config.patch(stop_after=stage):
        builds = pliant.stats()["seconds"].get("build", 0)
        found = torch.autograd.grad(pliant.compile(f)(x, w)[:, 0].sum(), w)[0]
        assert pliant.stats()["seconds"].get("build", 0) == builds
    torch.testing.assert_close(found, torch.autograd.grad(f(x, w)[:, 0].sum(), w)[0])
