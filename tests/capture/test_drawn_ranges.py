"""Comparisons with drawn numbers that are the same for every draw are no branches; all others break."""

import math
import operator
import random

import numpy
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


@pytest.mark.spread(2, "compare", "bound")
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


# ---- draws between numbers that vary
def crop(x):
    start = random.randint(0, x.shape[1] - 4)
    return x[:, start : start + 4].sum(), start


def below(x):
    return x * random.randrange(x.shape[1] - 3), random.randrange(2, x.shape[1])


def scaled(x):
    return x * random.uniform(0, x.shape[1]), numpy.random.uniform(-x.shape[1], 2.5)


def masked(x):
    x = x.clone()
    for _ in range(2):
        width = random.randint(0, 3)
        start = random.randint(0, x.shape[1] - width)
        x[:, start : start + width] = 0
    return (x,)


def masked_by_numpy(x):
    width = numpy.random.randint(1, 4)
    start = numpy.random.randint(0, high=x.shape[1] - width)
    return x[:, start : start + width].sum(), start


def of_two_draws(x):
    start = random.randint(0, x.shape[1] - 1)
    end = random.randint(start, x.shape[1])
    return x[:, start:end].sum(), start, end


def at_sizes(program, sizes, **options):
    pliant.reset()
    run = pliant.compile(program, **options)
    for n in sizes:
        results = []
        for one in (program, run):
            random.seed(n), numpy.random.seed(n)
            try:
                results.append([*one(torch.arange(2.0 * n).reshape(2, n)), random.random(), numpy.random.rand()])
            except ValueError as error:
                results.append([type(error), random.random()])
        assert list(map(type, results[0])) == list(map(type, results[1]))
        torch.testing.assert_close(*[[v for v in found if not isinstance(v, type)] for found in results])
    return pliant.stats()


@pytest.mark.parametrize("program", [crop, below, scaled, masked, masked_by_numpy, of_two_draws])
def test_draws_between_sizes_are_one_graph_for_all_sizes(program):
    stats = at_sizes(program, (6, 7, 9, 12, 20, 31), fullgraph=True)
    assert (stats["graphs"], stats["recompiles"], stats["fallbacks"]) == (2, 1, 0)


@pytest.mark.parametrize("program", [crop, below, masked, masked_by_numpy, of_two_draws])
def test_draws_from_nothing_raise_as_they_do(program):
    at_sizes(program, (6, 7, 9, 3, 2, 1, 4, 8))


def test_a_draw_that_the_one_before_may_leave_nothing_to_breaks():
    def program(x):
        width = random.randint(0, 8)
        return (x * random.randint(0, x.shape[1] - width),)

    at_sizes(program, (5, 6, 7, 9, 12, 8))


FILLED = {
    "all of ones": lambda x: torch.ones(x.shape[:1], dtype=torch.bool).all(),
    "any of zeros": lambda x: ~torch.zeros(x.shape, dtype=torch.bool)[None].any(),
    "all of zeros": lambda x: torch.zeros_like(x, dtype=torch.bool).all(),
    "any of ones": lambda x: x.new_ones(x.shape, dtype=torch.bool).reshape(-1).any(),
    "all of a number": lambda x: torch.full(x.shape, fill_value=x.dim() > 1, dtype=torch.bool).all(),
    "any of a number": lambda x: torch.full(x.shape, x.dim() > 5, dtype=torch.bool).any(),
}


@pytest.mark.parametrize("name", FILLED)
def test_what_a_filled_tensor_of_any_size_holds_is_known(name):
    def program(x):
        return (x.sum() + 1 if FILLED[name](x) else x.sum() - 1,)

    stats = at_sizes(program, (6, 7, 9, 12), fullgraph=True)
    assert (stats["graphs"], stats["recompiles"]) == (2, 1)
    at_sizes(program, (6, 7, 0, 1, 5))


def test_a_filled_tensor_that_was_written_is_not():
    def program(x):
        held = torch.ones(x.shape, dtype=torch.bool)
        held[0, x.sum().long() % 2] = x.sum() > 100
        return (x.sum() + 1 if held.all() else x.sum() - 1,)

    at_sizes(program, (6, 7, 9, 12, 5))


GIVEN_BACK = {
    "to": lambda x: x.to("cpu"), "float": torch.Tensor.float, "contiguous": torch.Tensor.contiguous,
    "broadcast_tensors": lambda x: torch.broadcast_tensors(x)[0], "atleast_1d": torch.atleast_1d,
}  # fmt: skip


@pytest.mark.parametrize("name", GIVEN_BACK)
def test_drawn_numbers_that_an_operation_gives_back_are_drawn_once(name):
    def program(x):
        drawn = GIVEN_BACK[name](torch.rand(2))
        return x + 1 if drawn[0] < 0.5 else x - 1, drawn

    pliant.reset()
    x, served = torch.ones(2), pliant.compile(program, backend="eager")
    for seed in range(6):
        results = []
        for one in (program, served):
            torch.manual_seed(seed)
            results.append((one(x), torch.rand(1)))
        torch.testing.assert_close(*results, rtol=0, atol=0)
