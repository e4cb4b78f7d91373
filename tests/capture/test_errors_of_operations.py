"""Errors of operations of the interpreter itself: which one, with which words, and what it leaves."""

import pytest
import torch

import pliant


class Point:
    __match_args__ = ("x",)

    def __init__(self, x):
        self.x = x


def _too_many_patterns(x):
    match Point(1):
        case Point(_, _):
            return 1


def _no_such_attribute(x):
    match Point(1):
        case Point(x=_, y=_):
            return 1
    return 2


def _no_such_key(x):
    match {"a": 1}:
        case {"a": _, "b": _}:
            return 1
    return 2


def _too_few_for_a_star(x):
    first, second, *rest = (1,)
    return first, second, rest


def _deleted_twice(x):
    value = 1
    del value  # noqa: F821
    del value  # noqa: F821


def _deleted_variable_of_a_closure(x):
    value = 1

    def inner():
        return value  # noqa: F821

    del value  # noqa: F821
    return inner()


def _no_such_name_in_a_class(x):
    class Holder:
        del missing  # noqa: F821

    return Holder


PROGRAMS = [
    _too_many_patterns,
    _no_such_attribute,
    _no_such_key,
    _too_few_for_a_star,
    _deleted_twice,
    _deleted_variable_of_a_closure,
    _no_such_name_in_a_class,
]


def _outcome(function):
    try:
        return function(torch.ones(1))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_they_are_those_of_eager(program):
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    assert _outcome(compiled) == _outcome(compiled) == _outcome(program)
