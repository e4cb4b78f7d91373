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


class Logged:
    def __init__(self, rank, log):
        self.rank, self.log = rank, log

    def __lt__(self, other):
        self.log.append((self.rank, other.rank))
        return self.rank < other.rank

    __gt__ = __lt__


class LoggedText(str):
    log = []

    def __lt__(self, other):
        self.log.append((str(self), str(other)))
        return str.__lt__(self, other)

    __gt__ = __lt__


def pushed(items):
    heap = []
    for item in items:
        heapq.heappush(heap, item)
    return len(heap)


@pytest.mark.parametrize("asked", [sorted, max, pushed, lambda items: items[0] < items[1], lambda items: items.sort()])
@pytest.mark.parametrize("put", [lambda one: (one,), lambda one: [[1], one], lambda one: (1, (one,))])
@pytest.mark.parametrize("make", [Logged, lambda rank, log: LoggedText(rank)])
def test_orders_that_objects_in_sequences_have(asked, put, make):
    def program(x, log):
        asked([put(make(rank, log)) for rank in (2, 1, 3)])
        return x + 1

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for _ in range(3):
        mine, theirs = [], []
        for function, log in ((compiled, mine), (program, theirs)):
            LoggedText.log.clear()
            function(torch.ones(1), log)
            log += LoggedText.log
        assert mine == theirs and mine


def kept(heap, change, *item):
    """What an error leaves of the heap."""
    try:
        told = change(heap, *item)
    except (TypeError, IndexError, RuntimeError) as error:
        told = str(error)
    return heap, told


class Shrinking:
    def __init__(self, heap):
        self.heap = heap

    def __lt__(self, other):
        self.heap.pop()
        return True


HEAPS = [
    lambda: kept([(1, 2), "b", 3], heapq.heappush, 1),
    lambda: kept([3, "b", (1, 2)], heapq.heappop),
    lambda: kept([3, "b", (1, 2)], heapq.heapreplace, 1),
    lambda: kept([(1, 2), 4, 3, "b"], heapq.heapify),
    lambda: kept([2, "b", 3, 4], heapq.heappushpop, 3),
    lambda: [kept([], change, *item) for change, *item in ((heapq.heappop,), (heapq.heapreplace, 1), (heapq.heappushpop, 1))],
    lambda: [kept(3, change, *item) for change, *item in ((heapq.heapify,), (heapq.heappop,), (heapq.heappush, 1))],
    lambda: kept([], lambda heap: heap.extend(Shrinking(heap) for _ in range(5)) or heapq.heapify(heap))[1],
    lambda: [heapq.heapify(heap := [5, 3, 4, 1, 2]), heap, heapq.heappop(heap), heap, heapq.heappushpop(heap, 9), heap],
]


@pytest.mark.parametrize("asked", HEAPS)
def test_heaps_are_left_as_c_code_leaves_them(asked):
    pliant.reset()
    compiled = pliant.compile(lambda x: (x + 1, asked()), backend="eager")
    assert compiled(torch.ones(1))[1] == asked()
