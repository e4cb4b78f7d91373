"""Special methods that a class takes from others in C, under another name."""

import collections

import pytest
import torch

import pliant


class Backwards(list):
    __iter__ = list.__reversed__


class Popped(dict):
    __getitem__ = dict.pop


class Found(dict):
    __contains__ = dict.get


class Unequal(list):
    __eq__ = list.__ne__
    __hash__ = None


class Attributes(dict):
    __getattr__ = dict.__getitem__


class Ordered(collections.OrderedDict):
    __iter__ = collections.OrderedDict.__reversed__


GIVEN = Backwards([3.0, 4.0])
PROGRAMS = {
    "iteration": lambda x: x * next(iter(GIVEN)),
    "loop": lambda x: x * [v for v in GIVEN][0],
    "as a list": lambda x: x * list(GIVEN)[0],
    "starred": lambda x: torch.add(x, *Backwards([3.0])),
    "subscript": lambda x: (lambda d: x * (d["a"] + len(d)))(Popped(a=2.0)),
    "contains": lambda x: x * (("a" in Found(a=0.0)) + 1),
    "equal": lambda x: x * ((Unequal([1]) == [1]) + 1),
    "attribute": lambda x: x * Attributes(a=2.0).a,
    "ordered": lambda x: x * ord(next(iter(Ordered(a=1, b=2)))),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_the_class_says_runs(name):
    program, x = PROGRAMS[name], torch.ones(2)
    assert torch.equal(pliant.compile(program)(x), program(x))
