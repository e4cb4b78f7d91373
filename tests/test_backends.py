"""Backends by name across the border: Pliant inside `torch.compile`, and registered backends inside Pliant."""

import importlib.metadata

import pytest
import torch
from torch import fx

import own_process
import pliant
from pliant import backends
from pliant.errors import BackendError, PliantWarning

# The peer is used in a process of its own: it changes the one that it runs in.
INSIDE_TORCH_COMPILE = """
import torch, pliant

def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)

model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 2))
compiled = torch.compile(model, backend="pliant")
for rows in (3, 5, 7):
    x = torch.randn(rows, 6, requires_grad=True)
    want = torch.autograd.grad(model(x).square().sum(), [x, *model.parameters()])
    found = torch.autograd.grad(compiled(x).square().sum(), [x, *model.parameters()])
    for a, b in zip(found, want, strict=True):
        close(a, b)

@torch.compile(backend="pliant")
def writes(x, n):
    x.mul_(2)
    return x.sum(0) + n, x[:1]

x = torch.ones(4, 3)
total, view = writes(x, 2)
close(x, torch.full((4, 3), 2.0))
close(total, torch.full((3,), 10.0))
assert view.data_ptr() == x.data_ptr()
stats = pliant.stats()
assert stats["graphs"] >= 2 and stats["fallbacks"] == 0, stats
"""

# `torch.compile` looks backends up among the entry points of what is installed.
is_named = pytest.mark.skipif(
    not importlib.metadata.entry_points(group="torch_dynamo_backends", name="pliant"), reason="Pliant is not installed"
)


@is_named
def test_a_backend_of_torch_compile():
    own_process.ran(INSIDE_TORCH_COMPILE, check=True)


class _Registered(importlib.metadata.EntryPoint):
    def load(self):
        def counting(module: fx.GraphModule, inputs):
            SEEN.append([type(i) for i in inputs])
            return module.forward

        return counting


SEEN: list[list[type]] = []


def test_a_registered_backend(monkeypatch):
    real = importlib.metadata.entry_points

    def entry_points(**wanted):
        if wanted.get("group") != "torch_dynamo_backends":
            return real(**wanted)
        points = [_Registered("counting", "nowhere:counting", wanted["group"])]
        return importlib.metadata.EntryPoints(points).select(**wanted)

    monkeypatch.setattr(backends.importlib.metadata, "entry_points", entry_points)
    assert {"counting", "pliant", "eager", "aot_eager"} <= set(pliant.list_backends())
    x = torch.randn(3)
    torch.testing.assert_close(pliant.compile(lambda x: x.sin() + 1, backend="counting")(x), x.sin() + 1)
    assert SEEN == [[torch.Tensor]]
    module = fx.symbolic_trace(lambda x: x.cos())
    for name in ("counting", "pliant", "eager", "aot_eager"):
        torch.testing.assert_close(pliant.lookup_backend(name)(module, [x])(x), x.cos())


@pytest.mark.parametrize("fullgraph", [False, True])
def test_what_a_backend_raises_is_shown(fullgraph):
    def broken(module, inputs):
        raise ValueError("not today")

    x = torch.randn(3)
    compiled = pliant.compile(lambda x: x + 1, backend=broken, fullgraph=fullgraph)
    with pytest.raises(BackendError, match="'broken' raised ValueError") as caught:
        compiled(x)
    assert isinstance(caught.value.__cause__, ValueError) and "not today" in str(caught.value)


def test_the_peers_name_means_this_compiler():
    pliant.reset()
    x = torch.randn(3)
    with pytest.warns(PliantWarning, match="means Pliant's own compiler"):
        compiled = pliant.compile(lambda x: x.sin() + 1, backend="inductor")
    torch.testing.assert_close(compiled(x), x.sin() + 1)
    module = fx.symbolic_trace(lambda x: x.cos())
    torch.testing.assert_close(pliant.lookup_backend("inductor")(module, [x])(x), x.cos())
    assert "joint" in pliant.stats()["calls"]


def test_modes_that_change_nothing_say_so_once():
    pliant.reset()
    of_graphs = () if torch.backends.cuda.is_built() else ("reduce-overhead", "max-autotune-no-cudagraphs")
    for mode in ("max-autotune", *of_graphs):
        with pytest.warns(PliantWarning, match=f'mode="{mode}" is the same as the default one'):
            pliant.compile(torch.sin, mode=mode)
        pliant.compile(torch.sin, mode=mode)  # warnings of ours are errors in tests
    pliant.compile(torch.sin, mode="default")
