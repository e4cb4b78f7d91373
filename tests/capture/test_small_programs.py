"""Small programs that once did not do compiled what they do in Python: values, errors with their texts, what is left of objects."""

import fractions
import ipaddress
import itertools
import pathlib
import types
import uuid
import warnings

import numpy as np
import pytest
import torch
from tests.capture.constructs.harness import observe, same

import pliant

PROGRAMS = []


def program(*given):
    """The values that its calls are given in turn; a function is called for one."""

    def add(function):
        PROGRAMS.append((function, given or (2, 2, 3)))
        return function

    return add

TEXTS_OF_CALLS = ("b", "a", "", "")


@program(*TEXTS_OF_CALLS)
def texts_as_keys_of_tensors(x, key, log):
    y = x * 1
    for keys in (key, [key], (0, key)):
        try:
            log.append(y[keys])
        except (TypeError, IndexError) as error:
            log.append(str(error))
        try:
            y[keys] = 1
        except (TypeError, IndexError) as error:
            log.append(str(error))


@program(*TEXTS_OF_CALLS)
def texts_as_elements_of_tensors(x, text, log):
    try:
        return torch.tensor([text])
    except (TypeError, ValueError) as error:
        return str(error)

@program(lambda: shown.__get__(3), lambda: shown.__get__([]))
def methods_say_what_they_are_themselves(x, method, log):
    log += [method.__class__.__name__, method.__class__ is type(method), method.__name__, method.__repr__()[:9]]
    log += [method.__hash__() == hash(method), method.__doc__, method.__get__(4)()]


def shown(value):
    """It."""
    return repr(value)


@program(lambda: {"a": {}, "b": [1]}, lambda: {"a": {}, "b": [1]})
def tees_give_the_items_themselves(x, table, log):
    one, other = itertools.tee([(1, table["a"]), (2, table["b"])])
    next(one)[1]["k"] = 1
    log += [next(other)[1] is table["a"], next(one)[1] is table["b"], table]


@program(*[lambda items=items: (frozenset({1, 2}), items) for items in ({1}, {2}, {1}, frozenset({2}))])
def frozen_sets_of_fewer_items(x, given, log):
    log += [given[0] & given[1], given[0] ^ given[1], given[0] - given[1]]


@program(*map(np.float64, (3, 4, 0.5)), np.float32(2), np.int64(3), np.int64(4))
def parts_of_scalars(x, number, log):
    log += [number.real, number.imag, number.T, type(number.real), number.real + 1, float(number.imag)]


KEYS = {
    "method": lambda n: types.MethodType(shown, n),
    "memory": lambda n: memoryview(b"abcd")[:n],
    "uuid": lambda n: uuid.UUID(int=n),
    "path": lambda n: pathlib.PurePosixPath(str(n)),
    "fraction": lambda n: fractions.Fraction(n, 7),
    "address": ipaddress.ip_address,
}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_that_are_equal_without_being_one(kind):
    def told(x, one, other):
        return len({one, other}), {one: 1}[one], other in {one: 1}, (one, 1) in {(other, 1)}

    compiled, make = pliant.compile(told, backend="eager"), KEYS[kind]
    for one, other in ((1, 1), (1, 2), (2, 2), (2, 1), (1, 1)):
        assert compiled(torch.ones(2), make(one), make(other)) == told(None, make(one), make(other))


@pytest.mark.parametrize(("function", "given"), PROGRAMS, ids=[function.__name__ for function, _ in PROGRAMS])
def test_as_in_python(function, given):
    compiled = pliant.compile(function, backend="eager")
    with pliant.config.patch(strict=True), warnings.catch_warnings(action="ignore"):
        for one in given:
            want, got = (observe(f, (torch.ones(2), one() if callable(one) else one, [])) for f in (function, compiled))
            assert same(got, want), (got, want)
