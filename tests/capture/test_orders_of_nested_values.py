"""What decides an order is guarded: also what lies inside the values that are compared."""

import bisect
import functools
import heapq

import pytest
import torch

import pliant

TABLE = [[0], [1]]


def sorted_in_place(g):
    g.sort()
    return g


def sorted_by_table(g):
    TABLE[0][0] = g[0][0]
    found = [0, 1]
    found.sort(key=TABLE.__getitem__)
    return found


def removed(g):
    g.remove([1])
    return g


def heap(g):
    heapq.heapify(g)
    return g


PROGRAMS = [
    sorted_in_place,
    sorted_by_table,
    removed,
    heap,
    lambda g: sorted(g, key=lambda one: [one]),
    lambda g: sorted([(1, g[0]), (1, g[1])], reverse=True),
    lambda g: (max(g), min(g), functools.reduce(max, g)),
    lambda g: (bisect.bisect(g, [1]), [1] in g, g.index([1]), g.count([1])),
    lambda g: (g[0] < g[1], g == [[0], [1]], [g] < [[[1]]], (1, g[0]) < (1, [2])),
]


@pytest.mark.parametrize("asked", PROGRAMS)
def test_orders_of_lists_in_lists(asked):
    def program(x, g):
        return x + 1, asked(g)

    compiled = pliant.compile(program, backend="eager")
    for number in (2, 3, 0, 4, 1):
        given, mine = [[number], [1]], [[number], [1]]
        want, got = program(torch.ones(1), given), compiled(torch.ones(1), mine)
        assert (got[1], mine) == (want[1], given)
