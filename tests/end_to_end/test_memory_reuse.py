"""Buffers of equal layout take over the memory of dead ones, across extern calls and inside a run of kernels."""

import pytest
import torch

import pliant
from pliant.debug import events


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


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "after",
    [
        lambda z: (z, z.softmax(-1).sum()),  # stored by a kernel of several passes over the row, which read it there
        lambda z: (z, torch.nn.functional.layer_norm(z, z.shape[-1:]).amax(), z.logsumexp(-1)),
        lambda z: z.relu(),
    ],
)
def test_a_result_lies_where_the_product_was_that_it_is_of(after, dynamic):
    """A product of rows is made as a matrix; what is returned has the program's dimensions."""

    def f(x, w, b):
        return after(torch.nn.functional.linear(x, w, b))

    pliant.reset()
    x, w, b = torch.randn(8, 16, 32), torch.randn(512, 32) / 6, torch.randn(512)
    compiled = pliant.compile(f, dynamic=dynamic)
    with torch.no_grad(), events.collect("output_code") as found:
        torch.testing.assert_close(compiled(x, w, b), f(x, w, b), rtol=1e-4, atol=1e-4)
        (whole, *_) = torch.utils._pytree.tree_leaves(compiled(x, w, b))
    assert not whole._is_view() and whole.untyped_storage().nbytes() == whole.numel() * 4
    assert sum("its memory is free again" in event.fields["text"] for event in found) == 1


def test_smaller_results_are_made_anew():
    """Another tensor of the same memory costs more than a few bytes."""

    def f(x, w, b):
        return torch.nn.functional.linear(x, w, b).relu()

    pliant.reset()
    x, w, b = torch.randn(2, 3, 4), torch.randn(5, 4), torch.randn(5)
    with torch.no_grad(), events.collect("output_code") as found:
        torch.testing.assert_close(pliant.compile(f)(x, w, b), f(x, w, b))
    assert found and not any("its memory is free again" in event.fields["text"] for event in found)
