"""Derivatives by autograd's own graph: the layer is computed once, and the graph goes with what needs it."""

import gc

import pytest
import torch

import pliant
from pliant.graph import kept_graphs, recurrent


@pytest.fixture
def layer(monkeypatch):
    """A compiled layer, and how often it was computed. Nobody else's graphs are there."""
    pliant.reset()
    gc.collect()
    computed = []
    lstm = torch.lstm

    def count(*args):
        computed.append(args[0].shape)
        return lstm(*args)

    monkeypatch.setitem(recurrent._KINDS, "lstm", count)
    recurrent._layer.cache_clear()
    recurrent._kept.cache_clear()
    module = torch.nn.LSTM(4, 6)
    return pliant.compile(module, dynamic=True), module, computed


def test_computed_once(layer):
    compiled, module, computed = layer
    for length in (5, 7):
        x = torch.randn(length, 2, 4)
        found, expected = (torch.autograd.grad(f(x)[0].sin().sum(), module.parameters()) for f in (compiled, module))
        torch.testing.assert_close(found, expected)
    assert [shape[0] for shape in computed] == [5, 7]
    assert pliant.stats()["graph_breaks"] == pliant.stats()["fallbacks"] == 0


@pytest.mark.parametrize("goes_back", [True, False])
def test_graphs_go(layer, goes_back):
    compiled, *_ = layer
    results = compiled(torch.randn(5, 2, 4))[0].sum()
    assert len(kept_graphs._graphs) == 1
    if goes_back:
        results.backward()
    del results
    gc.collect()
    assert not kept_graphs._graphs


def test_backward_twice(layer):
    compiled, module, _ = layer
    x = torch.randn(5, 2, 4, requires_grad=True)
    loss = compiled(x)[0].sin().sum()
    first = torch.autograd.grad(loss, x, retain_graph=True)
    torch.testing.assert_close(torch.autograd.grad(loss, x), first)
    del loss
    gc.collect()
    assert not kept_graphs._graphs


def test_a_derivative_that_is_differentiated(layer):
    compiled, module, _ = layer
    x = torch.randn(5, 2, 4, requires_grad=True)

    def second(f):
        (slope,) = torch.autograd.grad(f(x)[0].sin().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), [x, *module.parameters()], allow_unused=True)

    torch.testing.assert_close(second(compiled), second(module))


def test_weights_written_meanwhile(layer):
    compiled, module, _ = layer
    loss = compiled(torch.randn(5, 2, 4))[0].sum()
    with torch.no_grad():
        module.weight_hh_l0.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_hooks_that_keep_copies_of_what_is_saved(layer):
    """What stands for the graph is gone then: the layer is computed again."""
    compiled, module, computed = layer
    x = torch.randn(5, 2, 4)
    pack = pliant.keeps_saved_values(lambda saved: saved.clone())
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        loss = compiled(x)[0].sin().sum()
    gc.collect()
    found = torch.autograd.grad(loss, module.parameters())
    torch.testing.assert_close(found, torch.autograd.grad(module(x)[0].sin().sum(), module.parameters()))
    assert len(computed) == 2 and not pliant.stats()["fallbacks"]


def test_copies_where_the_library_drew_are_an_error():
    """The forward cannot be computed again with the same dropout."""
    layer = recurrent.Layer("lstm", False, (True, 2, 0.5, True, False), False, None)
    kept = recurrent.KeptLayer(layer, (0,)).derivative((0,), (0,), False)
    with pytest.raises(RuntimeError, match="What was dropped is not known"):
        kept.compute([torch.ones(2), torch.zeros(kept_graphs.TOKEN, dtype=torch.uint8), torch.ones(2)])
