"""Long chains of values that wait to be put in memory do not exhaust the stack."""

import torch

import pliant
from pliant import config


def test_an_unrolled_recurrence():
    def f(x, k, v):
        state = torch.zeros_like(x[:, 0])
        top = torch.full_like(state, -1e3)
        outs = []
        for t in range(120):
            new_top = torch.maximum(top, k[:, t])
            a, b = torch.exp(top - new_top), torch.exp(k[:, t] - new_top)
            state = a * state + b * v[:, t]
            top = new_top
            outs.append(state / (a + b))
        return torch.stack(outs, 1)

    x, k, v = (torch.randn(2, 120, 8, requires_grad=True) for _ in range(3))
    pliant.reset()
    with config.patch(stop_after="lower"):
        found, expected = pliant.compile(f)(x, k, v), f(x, k, v)
        found_k, expected_k = (torch.autograd.grad(y.square().sum(), k)[0] for y in (found, expected))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found_k, expected_k, rtol=1e-4, atol=1e-4)
    assert pliant.stats()["fallbacks"] == 0


def test_gradients_of_many_layers_without_products():
    """A layer norm's backward has several results, each computed from the one before."""
    layers = [layer for _ in range(50) for layer in (torch.nn.LayerNorm(4), torch.nn.GELU())]
    model = torch.nn.Sequential(*layers).double()
    x = torch.randn(2, 4, dtype=torch.float64, requires_grad=True)
    pliant.reset()
    with config.patch(stop_after="lower"):
        found, expected = (torch.autograd.grad(f(x).sin().sum(), x)[0] for f in (pliant.compile(model), model))
    torch.testing.assert_close(found, expected)
    assert pliant.stats()["fallbacks"] == 0
