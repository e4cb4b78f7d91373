"""Gradients that go where a value equals another, which they do not if it is computed again and rounds otherwise."""

import pytest
import torch

import pliant

VALUES = {
    "functions": lambda x: x.tanh().exp(),
    "sums": lambda x: (x + x.sum(0, keepdim=True).tanh()).exp(),
    "sines": lambda x: x.mul(3).sin() * x.cos(),
}
LARGEST = {
    "amax": lambda y, d: y - y.amax(d, keepdim=True),
    "amin": lambda y, d: y * y.amin(d, keepdim=True),
    "all": lambda y, d: y * y.max(),
    "norm": lambda y, d: y * torch.linalg.vector_norm(y, float("inf"), d, keepdim=True),
}


@pytest.mark.spread(2, "dim", "largest", "value")
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("largest", LARGEST)
@pytest.mark.parametrize("value", VALUES)
def test_gradients_of_what_is_largest(value, largest, dim):
    def f(x):
        return LARGEST[largest](VALUES[value](x), dim)

    torch.manual_seed(0)
    x = torch.randn(17, 5, 33)
    found = []
    for call in (f, pliant.compile(f)):
        given = x.clone().requires_grad_()
        y = call(given)
        found.append(torch.autograd.grad(y, given, torch.linspace(-1, 1, y.numel()).reshape(y.shape))[0])
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5 + 1e-6 * float(found[0].abs().max()))
