"""Functions whose C code takes plain numbers: from the second size on, one graph serves every size."""

import copy
import functools
import itertools
import math
from collections import OrderedDict

import pytest
import torch
import torch.nn.functional as F

import pliant

PROGRAMS = {
    "product of a shape": lambda x: x.reshape(math.prod(x.shape)) * math.prod([x.shape[0], 2.0], start=3),
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "max_pool1d with everything": lambda x: F.max_pool1d(x, (3,), (2,), 1, 1, ceil_mode=True),
    "torch.max_pool1d": lambda x: torch.max_pool1d(x, kernel_size=3, stride=1),
    "module": torch.nn.MaxPool1d(3, dilation=2),
}


@functools.lru_cache(16)
def halves(shape, offset=0):
    return shape[-1] // 2 + offset, shape[-1] - shape[-1] // 2


def cached(x):
    first, second = halves(x.shape, offset=1)
    again = halves(tuple(x.shape), 1)
    return x.narrow(-1, 0, first) * halves((4,))[0], x.narrow(-1, 0, second) + (again[0] == first)


PROGRAMS["function with a cache"] = cached


class Recipe:
    def __init__(self, parts):
        self.parts = [parts]


RECIPES = [Recipe(2), Recipe(3)]


@functools.lru_cache(16)
def cooked(recipe, shape, names=()):
    parts = list(recipe.parts)
    return [*shape[:-1], shape[-1] // parts[0], *parts], None, {"rank": len(shape) + 1}, shape


def recipes(x):
    for recipe in RECIPES:
        x = torch.cat([x] * recipe.parts[0], -1)
        sizes, order, more, shape = cooked(recipe, tuple(x.shape))
        x = x.reshape(sizes).amax(-1) * more["rank"] if order is None else x
    return x + shape[-1]


PROGRAMS["function with a cache that reads attributes"] = recipes


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_for_every_other_size(name):
    pliant.reset()
    program = PROGRAMS[name]
    compiled = pliant.compile(program)
    for n in (7, 8, 9, 13):
        x = torch.randn(2, 3, n)
        x[0, 0, 2] = math.nan
        torch.testing.assert_close(compiled(x), program(x), equal_nan=True, rtol=0, atol=0)
    assert pliant.stats()["graphs"] == 2 and pliant.stats()["graph_breaks"] == 0


def test_max_pool1d_gives_indices_as_eager_does():
    def fn(x):
        return F.max_pool1d(x, 2, return_indices=True)

    compiled = pliant.compile(fn, backend="eager", dynamic=True)
    x = torch.randn(2, 3, 7)
    for found, expected in zip(compiled(x), fn(x), strict=True):
        assert torch.equal(found, expected)


def test_a_break_inside_a_loop_over_groups():
    def fn(x):
        found = []
        for key, group in itertools.groupby([1, 1, 2, 3, 3], lambda v: v):
            pliant.graph_break()
            x = x + key
            found.append((key, list(group)))
        return x, found

    pliant.reset()
    compiled = pliant.compile(fn, backend="eager")
    assert repr(compiled(torch.ones(1))) == repr(fn(torch.ones(1)))
    stats = pliant.stats()
    assert stats["graphs"] and stats["graph_breaks"] and not stats["fallbacks"]


def test_each_turn_of_a_loop_over_groups_breaks_once():
    def fn(x, items):
        found = []
        for key, group in itertools.groupby(enumerate(items), lambda pair: pair[1]):
            group = list(group)
            pliant.graph_break()
            x = x * 2
            found.append((key, group))
        return x, found

    pliant.reset()
    compiled = pliant.compile(fn, backend="eager")
    for items in ("aabc", "abbb", "a", ""):
        assert repr(compiled(torch.ones(1), items)) == repr(fn(torch.ones(1), items))
    assert pliant.stats()["break_reasons"].keys() == {"user-request"} and not pliant.stats()["fallbacks"]


class Output(OrderedDict):
    """Keeps its items as attributes, too."""

    def __setattr__(self, name, value):
        if name in self:
            super().__setitem__(name, value)
        super().__setattr__(name, value)

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setattr__(key, value)


def test_attributes_of_a_dict_of_the_program_behind_a_break():
    def fn(x):
        out = Output(first=x)
        pliant.graph_break()
        out.first = x + 1
        out["second"] = x + 2
        del out.second
        return out, out.first, hasattr(out, "second")

    pliant.reset()
    compiled = pliant.compile(fn, backend="eager")
    assert repr(compiled(torch.ones(1))) == repr(fn(torch.ones(1)))
    assert pliant.stats()["graph_breaks"] == 1


class GrowingMask(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.zeros(2, 2), persistent=False)

    def forward(self, x):
        if self.mask.size(0) < x.size(0):
            self.mask = torch.full((x.size(0), x.size(0)), -2.0).triu(1)
        return x + self.mask[: x.size(0), : x.size(0)].sum(1, keepdim=True)


def test_a_buffer_that_grows():
    pliant.reset()
    mine, other = GrowingMask(), GrowingMask()
    compiled = pliant.compile(mine)
    for n in (4, 4, 6, 5, 7, 9, 8, 12, 11):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), other(x))
        assert torch.equal(mine.mask, other.mask)
    assert pliant.stats()["graphs"] == 4  # it grows or does not, for the first size and for any


@pytest.mark.parametrize("kept_before", [False, True])
def test_results_that_a_cache_has_kept_of_attributes_that_changed_since(kept_before):
    pliant.reset()
    recipe = Recipe(2)

    @functools.lru_cache(16)
    def scaled(recipe, shape):
        return [size * recipe.parts[0] for size in shape]

    def fn(x):
        return x + scaled(recipe, tuple(x.shape))[0]

    if kept_before:  # what the capture with sizes that vary finds
        recipe.parts[0] = 3
        scaled(recipe, (6,))
        recipe.parts[0] = 2
    compiled = pliant.compile(fn)
    sizes = (5, 6, 7)
    first = [compiled(torch.zeros(n))[0].item() for n in sizes]
    assert first == [10, 18 if kept_before else 12, 14]
    recipe.parts[0] = 4
    again = [compiled(torch.zeros(n))[0].item() for n in (*sizes, 8)]
    assert again == [*first, 32]
    assert scaled.cache_info().currsize == 4


def test_attributes_written_before_a_cached_function_reads_them():
    pliant.reset()
    recipe = Recipe(2)

    @functools.lru_cache(16)
    def scaled(recipe, shape):
        return [size * recipe.parts[0] for size in shape]

    def fn(x):
        recipe.parts[0] = x.shape[0]
        return x + scaled(recipe, tuple(x.shape))[0]

    compiled = pliant.compile(fn)
    assert [compiled(torch.zeros(n))[0].item() for n in (5, 6, 7, 6)] == [25, 36, 49, 36]


def linear(n, m):
    return torch.nn.Linear(n, m), torch.randn(m, n)


def block(n, m):
    made = torch.nn.Sequential(torch.nn.Conv1d(n, m, 3), torch.nn.BatchNorm1d(m), torch.nn.PReLU(m), torch.nn.LayerNorm(n))
    return made, torch.randn(m, n, n + 2)


def table(n, m):
    return torch.nn.Embedding(n, m), torch.arange(m) % n


@pytest.mark.parametrize("made", [linear, block, table])
def test_modules_of_other_sizes_in_the_place_of_one(made):
    pliant.reset()

    def fn(module, x):
        return module(x) * 2

    compiled = pliant.compile(fn, backend="aot_eager")
    for n, m in ((3, 4), (5, 6), (7, 5), (4, 8)):
        module, x = made(n, m)
        module, x = module.double(), x.double() if x.is_floating_point() else x
        other = copy.deepcopy(module)
        found, expected = compiled(module, x), fn(other, x)
        torch.testing.assert_close(found, expected)
        found.square().sum().backward()
        expected.square().sum().backward()
        for mine, its in zip(module.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, its.grad)
    assert pliant.stats()["graphs"] == 2


def test_a_parameter_that_is_exchanged():
    pliant.reset()
    linear = torch.nn.Linear(3, 4)
    compiled = pliant.compile(linear, backend="aot_eager")
    for n in (4, 5, 6, 7):
        linear.weight, linear.bias = (torch.nn.Parameter(torch.randn(*size)) for size in ((n, 3), (n,)))
        x = torch.randn(2, 3)
        torch.testing.assert_close(compiled(x), torch.nn.functional.linear(x, linear.weight, linear.bias))
    assert pliant.stats()["graphs"] == 2
    static = pliant.compile(linear, backend="aot_eager", dynamic=False)
    assert static(torch.randn(2, 3)).shape == (2, 7)
