"""Loops over the rows of tensors whose number varies, and dicts that are made with sizes as keys: few graphs serve all sizes."""

import itertools

import pytest
import torch

import pliant

COUNTS = [4, 5, 7, 6, 9, 11, 8, 13, 10, 12, 15, 17]


def backward(x):
    total = torch.zeros(3)
    for row in reversed(x):
        total = total * 0.5 + row
    return total


def backward_behind(x):
    total = torch.zeros(3)
    pliant.graph_break()
    for row in reversed(x):
        total = total * 0.5 + row
    return total


def listed(x):
    total = torch.zeros(3)
    for row in list(x):
        total = total * 0.5 + row
    return total


def chained(x):
    total = torch.zeros(3)
    for row in itertools.chain(x, x * 2):
        total = total * 0.5 + row
    return total


def pairs(x):
    total = torch.zeros(3)
    for a, b in itertools.pairwise(x):
        total = total + a * b
    return total


def from_second(x):
    total = torch.zeros(3)
    for row in itertools.islice(x, 2, None):
        total = total * 0.5 + row
    return total


def both_ways(x):
    total = torch.zeros(3)
    for a, b in zip(x, reversed(x)):
        total = total * 0.5 + a * b
    return total


def keyed(x):
    known = {x.shape: x}
    return known[x.shape] * 2


def keyed_later(x):
    known = {}
    known[x.shape[0], "rows"] = x + 1
    return known[x.shape[0], "rows"] * 2


@pytest.mark.parametrize(
    "f", [backward, backward_behind, listed, chained, pairs, from_second, both_ways, keyed, keyed_later]
)
def test_numbers_of_rows_that_vary(f):
    pliant.reset()
    compiled = pliant.compile(f)
    for count in COUNTS:
        x = torch.randn(count, 3)
        torch.testing.assert_close(compiled(x), f(x))
    assert not pliant.stats()["recompile_limits"]
    assert not pliant.stats()["fallbacks"]
