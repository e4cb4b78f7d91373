"""Names of generators made in the program: read, changed, refused; other attributes they do not have."""

import copy
import functools

import pytest
import torch

import pliant


def numbers():
    yield 1
    yield 2


@functools.wraps(torch.nn.Linear)
def wrapped():
    yield 3


def outcome(program):
    try:
        return str(program(torch.ones(2)))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


READS = {
    "function": lambda x: (x + next(g := numbers()), g.__name__, g.__qualname__),
    "expression": lambda x: (x + next(g := (i for i in range(3))), g.__name__, g.__qualname__),
    "wrapped": lambda x: (x, wrapped().__name__, wrapped().__qualname__),
    "absent": lambda x: (x, hasattr(numbers(), "name"), getattr(numbers(), "__wrapped__", None)),
}
STORES = {
    "no text": lambda x: (x, setattr(numbers(), "__name__", 3)),
    "unknown": lambda x: (x, setattr(numbers(), "name", 3)),
    "frame": lambda x: (x, setattr(numbers(), "gi_frame", None)),
    "deleted": lambda x: (x, delattr(numbers(), "__qualname__")),
}


@pytest.mark.parametrize("program", [pytest.param(one, id=name) for name, one in READS.items()])
def test_read(program):
    assert outcome(pliant.compile(program, fullgraph=True)) == outcome(program)


@pytest.mark.parametrize("program", [pytest.param(one, id=name) for name, one in STORES.items()])
def test_refused(program):
    assert "Error" in outcome(program)
    assert outcome(pliant.compile(program)) == outcome(program)


def test_changed():
    def program(x):
        g = numbers()
        g.__name__ = "counted"
        return x + next(g), g.__name__, g.__qualname__

    assert outcome(pliant.compile(program)) == outcome(program)


def called_otherwise():
    def made():
        yield 1
        yield 2
        yield 3

    made.__name__ = "other"
    generator = made()
    made.__name__ = "third"
    return generator


def broken(x):
    """Names of a generator that starts in front of a break, and of one that starts behind."""
    first, second = called_otherwise(), called_otherwise()
    x = x + next(first)
    pliant.graph_break()
    read = first.__name__, first.__qualname__, second.__name__, second.__qualname__
    return x + next(first) + next(second), *read


def renamed(x):
    g, h = wrapped(), called_otherwise()
    g.__name__, g.__qualname__ = "a", "b.c"
    x = x + next(h)
    h.__name__ = "d"
    pliant.graph_break()
    return x + next(g) + next(h), g.__name__, g.__qualname__, h.__name__, h.__qualname__


def kept(x, box):
    box[:] = called_otherwise(), numbers(), called_otherwise()
    return x + next(box[1]) + next(box[2])


@pytest.mark.parametrize("program", [broken, renamed])
def test_names_are_those_of_the_call(program):
    assert outcome(pliant.compile(program)) == outcome(program)


@pytest.mark.fallbacks_expected
def test_names_of_generators_that_leave():
    expected, found = [], []
    kept(torch.ones(2), expected)
    pliant.compile(kept)(torch.ones(2), found)
    assert [(one.__name__, one.__qualname__) for one in found] == [(one.__name__, one.__qualname__) for one in expected]


class NoException(Exception):
    def __new__(cls):
        return 5


class Own(ValueError):
    made = 0

    def __init__(self, *args):
        Own.made += 1
        super().__init__(*args)


def caught(action):
    try:
        return action()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def catching():
    try:
        yield 1
    except (TypeError, ValueError) as error:
        yield error.args


@pytest.mark.parametrize("thrown", [NoException, Own, Own("a"), "text", int, KeyError])
def test_what_is_thrown(thrown):
    def program(x):
        first, second = catching(), catching()
        next(first)
        return x, caught(lambda: first.throw(thrown)), caught(lambda: second.throw(thrown)), Own.made

    Own.made = 0
    expected = outcome(program)
    Own.made = 0
    assert outcome(pliant.compile(program)) == expected


@pytest.mark.parametrize("copies", [copy.copy, copy.deepcopy])
def test_generators_are_not_copied(copies):
    program = lambda x: (x, caught(lambda: copies(numbers())), caught(lambda: copies([numbers()])) == 1)  # noqa: E731
    pliant.reset()
    assert outcome(pliant.compile(program)).split("<")[0] == outcome(program).split("<")[0]
