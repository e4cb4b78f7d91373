"""Functions in C that go through an iterator, which raises midway, or gives what they cannot use: what is taken by then."""

import functools
import math
import operator

import pytest
import torch

import pliant


class Ranked:
    def __init__(self, rank):
        self.rank = rank

    def __repr__(self):
        return f"Ranked({self.rank})"

    def __lt__(self, other):
        return self.rank < checked(other.rank)

    def __gt__(self, other):
        return self.rank > checked(other.rank)


def checked(rank):
    if rank == 2:
        raise KeyError("ranked")
    return rank


def counted(taken, items):
    for item in items:
        taken.append(item)
        if item == 2:
            raise ValueError("midway")
        yield item


def noted(taken, item):
    taken.append(item)
    return 1 // (2 - item)


ITERATORS = {
    "generator": lambda taken: counted(taken, range(4)),
    "generator of mixed": lambda taken: counted(taken, [3, 1, "a", 5]),
    "generator of tensors": lambda taken: (torch.ones(2) * len(taken) for _ in range(3)),
    "generator of objects": lambda taken: (Ranked(n) for n in (1, 3, 2, 5)),
    "map": lambda taken: map(functools.partial(noted, taken), range(4)),
    "filter": lambda taken: filter(functools.partial(noted, taken), range(4)),
    "zip": lambda taken: zip(counted(taken, range(4)), range(4)),
    "list": lambda taken: iter([1, "a", 3]),
    "objects": lambda taken: iter([Ranked(n) for n in (1, 3, 2, 5)]),
    "none": lambda taken: iter(()),
}
FUNCTIONS = {
    "max": max,
    "min": min,
    "max of keys": lambda items: max(items, key=lambda item: -item),
    "min or else": lambda items: min(items, default=7),
    "max of no key": lambda items: max(items, key=lambda item: item.missing),
    "max of a wrong name": lambda items: max(items, wrong=1),
    "dict": dict,
    "update": lambda items: {}.update(items),
    "fromkeys": dict.fromkeys,
    "sum": sum,
    "prod": math.prod,
    "all": all,
    "list": list,
    "sorted": sorted,
    "join": ",".join,
    "contains": lambda items: 9 in items,
    "index": lambda items: operator.indexOf(items, 9),
    "reduce": lambda items: functools.reduce(operator.add, items),
}


def program(function, make):
    def run(x, taken):
        seen, items = [], make(taken)
        for call in (function, lambda items: next(items, "end")):
            try:
                seen.append(call(items))
            except Exception as error:
                seen.append((type(error), str(error)))
        return seen, x + 1

    return run


def seen(run):
    taken = []
    return repr(run(torch.ones(1), taken)[0]), taken


@pytest.mark.parametrize("function", FUNCTIONS)
def test_what_is_taken(function):
    for make in ITERATORS.values():
        run = program(FUNCTIONS[function], make)
        compiled = pliant.compile(run, backend="eager")
        assert [seen(compiled), seen(compiled)] == [seen(run)] * 2
