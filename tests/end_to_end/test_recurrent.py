"""Recurrent layers: their operators return views that no schema declares, and workspaces only they know the size of."""

import pytest
import torch

import pliant


def layer(kind, **options):
    torch.manual_seed(0)
    made = getattr(torch.nn, kind)(8, 16, **options)
    return made, list(made._flat_weights)


def gru(x, h, weights):
    return torch._VF.gru(x, h, weights, True, 1, 0.0, True, False, False)[0]


def lstm(x, h, weights):
    return torch._VF.lstm(x, (h, h), weights, True, 1, 0.0, True, True, False)[0]


@pytest.mark.parametrize("backend", ["aot_eager", "pliant"])
@pytest.mark.parametrize("program", [gru, lstm])
def test_gradients_are_those_of_eager(program, backend):
    _, weights = layer(program.__name__.upper(), bidirectional=program is lstm)
    x, h = torch.randn(3, 5, 8, requires_grad=True), torch.zeros(1 + (program is lstm), 5, 16)
    compiled = pliant.compile(program, backend=backend, fullgraph=True)
    found, expected = [
        (out.detach(), *torch.autograd.grad(out.pow(2).sum(), [x, *weights]))
        for out in (compiled(x, h, weights), program(x, h, weights))
    ]
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("program", [gru, lstm])
def test_inference_is_that_of_eager(program):
    _, weights = layer(program.__name__.upper(), bidirectional=program is lstm)
    x, h = torch.randn(3, 5, 8), torch.zeros(1 + (program is lstm), 5, 16)
    with torch.no_grad():
        torch.testing.assert_close(pliant.compile(program, fullgraph=True)(x, h, weights), program(x, h, weights))


def test_pieces_of_an_unsafe_split_are_views_for_the_memory_plan():
    """The split's source is read through its pieces after buffers of its size were written."""

    def program(x, w):
        pieces = torch.unsafe_split(x @ w, 4, 1)
        later = torch.relu(x @ (w + 1)) @ w.T
        return pieces[0] * 2, pieces[1], later @ w

    x, w = torch.randn(6, 8), torch.randn(8, 8)
    torch.testing.assert_close(pliant.compile(program, fullgraph=True)(x, w), program(x, w))
