"""Buffers of equal layout take over the memory of dead ones, across extern calls and inside a run of kernels."""

import pytest
import torch

import pliant


def alternating(x, w):
    """Kernels between extern calls, all results of one layout."""
    for _ in range(5):
        x = torch.relu((x + 1) @ w) * 0.5
    return x


def test_values_survive_reuse():
    x, w = torch.randn(16, 16), torch.randn(16, 16) / 4
    before = pliant.stats()["fallbacks"]
    compiled = pliant.compile(alternating, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(x, w), alternating(x, w))
    assert pliant.stats()["fallbacks"] == before


def test_inputs_are_not_overwritten():
    x, w = torch.randn(16, 16), torch.randn(16, 16) / 4
    before = x.clone(), w.clone()
    pliant.compile(alternating)(x, w)
    assert torch.equal(x, before[0]) and torch.equal(w, before[1])


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "read",
    [
        lambda p, q: p * 2 + q,  # where it is written: the memory is taken over
        lambda p, q: p + p.t(),
        lambda p, q: p + p[0] * q,
        lambda p, q: p.flip(0) - q,
    ],
)
def test_a_product_that_dies_in_a_sum(read, dynamic):
    def f(a, b):
        return read(a @ b, a.t() @ b)

    a, b = torch.randn(70, 70), torch.randn(70, 70)
    torch.testing.assert_close(pliant.compile(f, dynamic=dynamic)(a, b), f(a, b), rtol=1e-4, atol=1e-4)
