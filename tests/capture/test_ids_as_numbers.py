"""`id()` of what comes from outside, compared with numbers from outside: which object it is decides, at each call."""

import pytest
import torch

import pliant


class Plain:
    pass


def equal(x, given, number):
    return x + 1, id(given) == number, number == id(given), id(given) != number, id(given) in [number]


def as_key(x, given, number):
    return x + 1, id(given) in {number}


def found(x, given, number):
    return x + 1, {number: 1}.get(id(given)), {id(given): 2}.get(number)


def written(x, given, number):
    given.update(key=1)
    return x + 1, id(given) == number


def behind_a_break(x, given, number):
    made = {1: 2}
    number = id(made)
    pliant.graph_break()
    made.update(key=1)
    return x + 1, id(made) == number


@pytest.mark.parametrize("make", [lambda: {1: 2}, lambda: [1], Plain, lambda: torch.ones(2)], ids=["dict", "list", "object", "tensor"])
@pytest.mark.parametrize("function", [equal, as_key, found, written, behind_a_break], ids=lambda one: one.__name__)
def test_ids_are_compared_at_each_call(function, make):
    one, other = make(), make()
    if function is written and not isinstance(one, dict):
        return
    compiled = pliant.compile(function, backend="eager")
    for given, number in ((one, id(one)), (other, id(one)), (one, id(other)), (other, id(other)), (one, 7)):
        assert compiled(torch.ones(2), given, number)[1:] == function(torch.ones(2), given, number)[1:]
