"""Functions written in C that call methods of the program: these are followed, or the graph breaks."""

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
