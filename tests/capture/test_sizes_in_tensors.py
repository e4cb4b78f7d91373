"""Sizes that 0-d tensors hold, given to functions of sizes: the graph reads the numbers, wherever they end up in a size."""

import pytest
import torch
import torch.nn.functional as F

import pliant


def pads(x, n):
    return F.pad(F.pad(x, (n, n + 1)) * 2, (n, 0), "constant", 1.0)


def pads_by_length(x, n):
    """Twice to a multiple of the number, as causal convolutions do."""
    for _ in range(2):
        frames = torch.ceil((x.shape[-1] - n) / 2).to(torch.int64)
        x = F.pad(x, (n * 2, frames * 2 + n - x.shape[-1] + 1)) * 2
    return x


def repeats(x, n):
    return x.repeat(n, 1).sum(0), x.repeat(n, n + 1) * 2


def makes(x, n):
    return torch.zeros((n + 2, 3)), x.new_ones([n, n]), torch.full((n,), 2.0), torch.ones(n + 1, 2)


def views(x, n):
    return torch.arange(n * 4).view(n * 2, 2), x.narrow(1, 0, n), torch.unsqueeze(x, 0).expand(n, -1, -1) + 1


def first_is_a_tensor(x, n):
    return torch.reshape(n, (1,)), torch.broadcast_to(n + 1, (2, 2)), torch.tile(n, (3,))


def counts_between_floats(x, n):
    """Bounds that are no integers tell a size that later calls are given as a number."""
    bound = n * 1.5
    rows = torch.arange(bound + 2, bound - n, -1, dtype=torch.long)[:, None]
    rows = rows.expand(rows.size(0), 3)
    return torch.gather(x.new_ones(20, 3), 0, rows), torch.arange(0, end=bound)


@pytest.mark.parametrize("program", [counts_between_floats, pads, pads_by_length, repeats, makes, views, first_is_a_tensor], ids=lambda p: p.__name__)
@pytest.mark.parametrize("computed", [False, True])
def test_one_graph(program, computed):
    def called(x, n):
        return program(x, n * 2 - n if computed else n)

    pliant.reset()
    compiled = pliant.compile(called, fullgraph=True)
    for n in (2, 3, 4):
        x, number = torch.randn(2, 6), torch.tensor(n)
        torch.testing.assert_close(compiled(x, number), called(x, number))
    assert pliant.stats()["fallbacks"] == 0
