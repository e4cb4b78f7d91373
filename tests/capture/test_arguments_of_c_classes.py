"""What C code that makes iterators and containers gets for its arguments: items, numbers, functions, by place and by name."""

import collections
import itertools

import pytest
import torch

import pliant


class Place:
    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value

    def __repr__(self):
        return f"Place({self.value})"


PROGRAMS = {
    "zip_longest": lambda x: [str(v) for p in itertools.zip_longest([1, 2], [3], fillvalue=Place(4)) for v in p],
    "islice": lambda x: list(itertools.islice(range(10), Place(1), Place(7), Place(2))),
    "permutations": lambda x: list(itertools.permutations("abc", Place(2))),
    "combinations": lambda x: list(itertools.combinations(iterable=[1, 2, 3], r=2)),
    "product": lambda x: list(itertools.product([1, 2], repeat=Place(2))),
    "count": lambda x: list(itertools.islice(itertools.count(start=2, step=x.size(0)), 3)),
    "repeat": lambda x: list(itertools.repeat(Place(1), times=Place(2))),
    "groupby by name": lambda x: [(k, list(g)) for k, g in itertools.groupby(iterable=[1, 1, 2], key=lambda v: v > 1)],
    "groupby": lambda x: [(k, list(g)) for k, g in itertools.groupby([1, 1, 2])],
    "accumulate": lambda x: list(itertools.accumulate([1, 2, 3], lambda a, b: a * b, initial=x.size(0))),
    "deque": lambda x: (
        collections.deque(iterable=[1, 2, 3], maxlen=Place(2)) and collections.deque([1, 2, 3], Place(2))
    ),
    "filter": lambda x: (
        list(filter(None, [0, 1, 2])),
        list(filter(lambda v: v > 1, [0, 1, 2])),
        list(itertools.filterfalse(None, [0, 1])),
    ),
    "takewhile": lambda x: (
        list(itertools.takewhile(lambda v: v < 2, [0, 1, 2, 1])),
        list(itertools.dropwhile(lambda v: v < 2, [0, 1, 2, 1])),
    ),
    "starmap": lambda x: list(itertools.starmap(lambda a, b: a + b, [(1, 2), (3, 4)])),
    "zip": lambda x: list(zip([1, 2], [3], strict=False)),
    "zip strict": lambda x: list(zip([1, 2], [3], strict=True)),
    "enumerate": lambda x: list(enumerate([5, 6], Place(3))) + list(enumerate(iterable="ab", start=x.size(0))),
    "cycle": lambda x: list(itertools.islice(itertools.cycle([1, 2]), 5)),
    "compress": lambda x: list(itertools.compress("abc", [1, 0, 1])),
    "map of None": lambda x: list(map(None, [1])),
    "sets": lambda x: (sorted(frozenset([3, 1])), set("aab") == {"a", "b"}, tuple(v for v in [1, 2])),
    "list": lambda x: list(v * 2 for v in range(x.size(0))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name):
    def program(x):
        try:
            return x + 1, PROGRAMS[name](x)
        except (TypeError, ValueError) as error:
            return x, type(error), str(error)

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    for n in (3, 4, 5):
        assert repr(compiled(torch.ones(n, 2))[1:]) == repr(program(torch.ones(n, 2))[1:])
