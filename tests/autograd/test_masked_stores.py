"""Values stored at a mask's elements have gradients in one graph, though how many there are only running tells."""

import pytest
import torch

import pliant


def given(x, v, mask):
    out = x * 2
    out[mask] = v
    return out


def mask_made_twice(x, v, mask):
    out = torch.zeros_like(x)
    out[~mask] = x[~mask].sin()
    return out.index_put((mask,), v.cos())


def broadcast(x, v, mask):
    out = x * 3
    out[mask] = v.sum(0, keepdim=True)
    out[~mask] = x.sum()
    return out


@pytest.mark.parametrize("program", [given, mask_made_twice, broadcast], ids=lambda p: p.__name__)
def test_gradients_of_stored_values(program):
    pliant.reset()
    compiled = pliant.compile(program, fullgraph=True)
    for rows in (3, 4, 6, 5):
        torch.manual_seed(rows)
        mask = torch.rand(rows, 8) > 0.5
        found = []
        for call in (program, compiled):
            torch.manual_seed(rows)
            x, v = torch.randn(rows, 8, requires_grad=True), torch.randn(int(mask.sum()), requires_grad=True)
            out = call(x, v, mask)
            out.square().sum().backward()
            found.append((out.detach(), x.grad, v.grad))
        torch.testing.assert_close(found[1], found[0])
    stats = pliant.stats()
    assert stats["graphs"] == 2 and not stats["fallbacks"] and not stats["assumptions"]


def test_too_few_values_are_eagers_error():
    compiled = pliant.compile(given)
    mask = torch.arange(8) % 2 == 0
    x = torch.randn(8, requires_grad=True)
    compiled(x, torch.randn(4, requires_grad=True), mask)
    with pytest.raises(RuntimeError, match="shape mismatch"):
        compiled(x, torch.randn(3, requires_grad=True), mask)
