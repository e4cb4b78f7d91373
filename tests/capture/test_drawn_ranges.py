"""Comparisons with drawn numbers that are the same for every draw are no branches; all others break."""

import math
import operator

import pytest
import torch
from torch import nn

import pliant

COMPARISONS = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne]
BOUNDS = [-1.0, -1e-50, 0.0, 0.5, 1.0, 1 - 1e-12, 2, float("nan"), float("inf")]


class Skipping(nn.Module):
    def __init__(self, chance):
        super().__init__()
        self.layers, self.chance = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]), chance

    def forward(self, x):
        for layer in self.layers:
            draw = torch.rand([])
            if draw < self.chance:
                continue
            x = layer(x)
        return x


def compiled(function, *args):
    pliant.reset()
    results = []
    for one in (function, pliant.compile(function, backend="eager")):
        torch.manual_seed(0)
        results.append((one(*args), torch.rand(1)))
    torch.testing.assert_close(*results)
    stats = pliant.stats()
    assert stats["fallbacks"] == 0
    return stats


@pytest.mark.parametrize("chance", [0.0, -1, 1.0])
def test_a_layer_that_is_never_or_always_left_out_is_no_branch(chance):
    stats = compiled(Skipping(chance), torch.randn(2, 4))
    assert (stats["graphs"], stats["graph_breaks"]) == (1, 0)


@pytest.mark.parametrize("compare", COMPARISONS)
@pytest.mark.parametrize("bound", BOUNDS, ids=str)
def test_what_is_told_holds_for_every_draw(compare, bound):
    nearest = torch.tensor(float(bound)).clamp(0, 1 - 2**-24).nan_to_num()
    ends = torch.stack([torch.tensor(0.0), torch.tensor(0.25), nearest, torch.tensor(1 - 2**-24)])
    held = {bool(b) for b in compare(ends, bound)}

    def drawn(x):
        return x + 1 if compare(torch.rand(1)[0].view(()), bound) else x * x

    def read(x):
        return x + 1 if compare(torch.rand(()).item(), bound) else x * x

    stats = compiled(drawn, torch.ones(3) * 3)
    assert math.isnan(bound) or (stats["graph_breaks"] == 0) is (len(held) == 1)
    stats = compiled(read, torch.ones(3) * 3)
    assert compare is not operator.lt or bound != 0 or stats["graph_breaks"] == 0


def written(x):
    draw = torch.rand(())
    draw.sub_(2)
    return x + 1 if draw < 0.0 else x * x


def written_through_data(x):
    draw = torch.rand(())
    draw.data.sub_(2)
    return x + 1 if draw < 0.0 else x * x


def written_through_a_view(x):
    draw = torch.rand(3)
    draw[1:].sub_(2)
    return x + 1 if draw[1] < 0.0 else x * x


def moved(x):
    return x + 1 if torch.rand(()) - 1 < 0.0 else x * x


def normal(x):
    return x + 1 if torch.randn(()) < 0.0 else x * x


@pytest.mark.parametrize("function", [written, written_through_data, written_through_a_view, moved, normal])
def test_other_numbers_are_asked(function):
    compiled(function, torch.ones(3) * 3)
