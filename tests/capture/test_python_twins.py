"""Functions written in C that call methods of the program: these are followed, or the graph breaks."""

import collections
import math
import operator
import os

import pytest
import torch

import pliant

NUMBER = 2


class Even:
    def __eq__(self, other):
        return other % NUMBER == 0


class Own:
    def __length_hint__(self):
        return NUMBER

    def __fspath__(self):
        return "a" * NUMBER

    def __divmod__(self, other):
        return NUMBER, other

    def __pow__(self, other, modulo=None):
        return NUMBER

    def __rmul__(self, other):
        return NUMBER

    def __add__(self, other):
        return NUMBER

    def __getitem__(self, index):
        raise IndexError


CALLS = {
    "countOf": lambda: operator.countOf([1, 2, 4], Even()),
    "indexOf": lambda: operator.indexOf([1, 2, 4], Even()),
    "length_hint": lambda: operator.length_hint(Own()),
    "fspath": lambda: len(os.fspath(Own())),
    "divmod": lambda: divmod(Own(), 1)[0],
    "pow": lambda: pow(Own(), 1),
    "prod": lambda: math.prod([1, Own()]),
    "concat": lambda: operator.concat(Own(), Own()),
}
WHOLE = ("countOf", "indexOf", "length_hint")  # which are followed


@pytest.mark.parametrize("name", CALLS)
def test_what_methods_read_is_guarded(name, monkeypatch):
    call = CALLS[name]

    def program(x):
        return x * call()

    pliant.reset()
    compiled, x = pliant.compile(program, backend="eager", fullgraph=name in WHOLE), torch.ones(2)
    torch.testing.assert_close(compiled(x), program(x))
    monkeypatch.setitem(globals(), "NUMBER", 4)
    torch.testing.assert_close(compiled(x), program(x))


def test_sizes_are_counted():
    def program(x, y):
        counts = collections.Counter(one.shape[0] for one in (x, y, x))
        counts.update([y.shape[0]])
        return x * counts[x.shape[0]], counts

    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for first, second in ((2, 3), (4, 5), (4, 4), (7, 6)):
        x, y = torch.ones(first), torch.ones(second)
        expected, found = program(x, y), compiled(x, y)
        assert torch.equal(found[0], expected[0]) and list(found[1].items()) == list(expected[1].items())
        assert all(type(size) is int for size in found[1])
