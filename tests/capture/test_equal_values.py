"""Values that are equal, and are not one another's: zeros of two signs, 0 and False, a deque that is bounded and one that is not."""

import collections
import functools
import math
import types

import pytest
import torch

import pliant

X = torch.ones(2)


def check(function, *calls):
    """In turn, each call with arguments of its own."""
    compiled = pliant.compile(function, backend="eager")
    for make in calls:
        found = []
        for called in (function, compiled):
            arguments = make()
            found.append(repr((called(*arguments), arguments)))
        assert found[0] == found[1]


def first(x, items):
    items[0] = -items[0]
    return x + 1


def sorted_first(x, items):
    items.sort()
    items[0] = -0.0
    return x + 1


def other_zero(x, items):
    items.discard(0.0)
    items.add(-0.0)
    return x + 1


def other_class(x, items):
    items.clear()
    items.add(False)
    return x + 1


def added_again(x, items):
    items.add(-0.0)
    items.add(True)
    return x + 1


@pytest.mark.parametrize(
    ("function", "make"),
    [
        (first, lambda: (X, [0.0])),
        (first, lambda: (X, [0j])),
        (sorted_first, lambda: (X, [1.0, 0.0])),
        (other_zero, lambda: (X, {0.0})),
        (other_class, lambda: (X, {0})),
        (other_class, lambda: (X, {0, 5, "a"})),
        (added_again, lambda: (X, {0.0, 1})),
    ],
)  # fmt: skip
def test_what_is_stored_in_the_place_of_an_equal_value(function, make):
    check(function, make, make)


@pytest.mark.parametrize("value", [0.0, (1, 0.0)])
def test_what_a_cache_holds_of_an_equal_argument(value):
    kept = functools.lru_cache(None)(lambda number: (number, 1))
    kept(value)
    negated = -0.0 if value == 0.0 else (True, -0.0)
    check(lambda x: (x + 1, kept(negated)), lambda: (X,))


@pytest.mark.parametrize("bound", [None, 8])
def test_an_int_has_another_place_in_a_cache_than_an_equal_float(bound):
    kept = functools.lru_cache(bound)(lambda number: [number])
    kept(0.0)
    check(lambda x, number: (x + 1, kept(number)), lambda: (X, 0), lambda: (X, False), lambda: (X, 0.0))


class Bounded(collections.deque):
    maxlen = 7


def appended(x, items):
    items.append(3.0)
    return x + 1, repr(items)


@pytest.mark.parametrize("made", [collections.deque, Bounded])
def test_how_many_items_a_deque_takes(made):
    check(appended, *[lambda most=most: (X, made([1.0, 2.0], most)) for most in (None, 2, 3, None, 2)])


def told(x, items):
    return x + 1, repr(items), items.maxlen


def test_a_deque_that_is_only_shown():
    check(told, *[lambda most=most: (X, collections.deque([1.0], most)) for most in (None, 2, None)])


def test_the_sign_of_a_zero_that_is_taken_of_two():
    def chosen(x):
        return x.sum() > 1, math.copysign(1, -0.0 if x.sum() > 1 else 0.0)

    check(chosen, lambda: (X,), lambda: (-X,))


KEYS = [{0: 1}, {5: 1}, {False: 1}, {0.0: 1}, {0j: 1}, {"a": 1}]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, view: (x + 1, repr(view)),
        lambda x, view: (x + 1, view & {0, 5}),
        lambda x, view: (x + 1, {0, 5} - view),
        lambda x, view: (x + 1, view == {0}),
    ],
    ids=["repr", "and", "sub", "eq"],
)
@pytest.mark.parametrize("name", ["keys", "items"])
def test_what_a_view_of_a_dict_from_outside_shows(function, name):
    check(function, *[lambda made=made: (X, getattr(made, name)()) for made in KEYS])


def test_the_text_of_a_view_behind_a_break():
    def shown(x, made):
        return x + 1, repr(made.keys()), repr(made.items())

    check(shown, *[lambda made=made: (X, made) for made in reversed(KEYS)])


PROXIES = pytest.param(types.MappingProxyType, marks=pytest.mark.fallbacks_expected)  # one is of a dict with a complex key


@pytest.mark.parametrize("make", [PROXIES, lambda made: types.SimpleNamespace(a=list(made)[0])])
def test_what_an_object_in_c_from_outside_holds(make):
    check(lambda x, given: (x + 1, repr(given), given == make({0: 1})), *[lambda made=made: (X, make(made)) for made in KEYS])
