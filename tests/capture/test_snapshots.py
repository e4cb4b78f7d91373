"""Whether a container still holds what it held: by identity, constants by value, in order."""

import collections
import cProfile
import pstats

import pytest
import torch

from pliant.capture.outside.whole_containers import Snapshot

ONE, OTHER = torch.zeros(2), torch.zeros(2)


def number():
    return int("1000")  # another object each time


CONTAINERS = {
    "list": lambda: [ONE, number(), OTHER],
    "deque": lambda: collections.deque([ONE, number(), OTHER]),
    "dict": lambda: {"a": ONE, "b": number(), "c": OTHER},
    "OrderedDict": lambda: collections.OrderedDict(a=ONE, b=number(), c=OTHER),
}


@pytest.mark.parametrize("kind", CONTAINERS)
def test_items_are_compared_by_identity_and_constants_by_value(kind):
    container = CONTAINERS[kind]()
    first, middle, last = container if kind in ("list", "deque") else container.keys()
    places = (0, 1, 2) if kind in ("list", "deque") else (first, middle, last)
    before = Snapshot(container)
    assert before.is_of(container)
    container[places[1]] = number()
    assert before.is_of(container)
    container[places[0]] = OTHER
    assert not before.is_of(container)
    container[places[0]] = ONE
    assert before.is_of(container)
    container.clear()
    assert not before.is_of(container)


@pytest.mark.parametrize("kind", ("dict", "OrderedDict"))
def test_the_order_of_keys_counts(kind):
    container = CONTAINERS[kind]()
    before = Snapshot(container)
    container["a"] = container.pop("a")
    assert not before.is_of(container)


def test_items_of_sets_count():
    container = {ONE, "b"}
    before = Snapshot(container)
    assert before.is_of(container)
    container.add(OTHER)
    assert not before.is_of(container)


def test_items_that_are_the_same_are_not_gone_through_in_python():
    container, profile = [object() for _ in range(50)], cProfile.Profile()
    before = Snapshot(container)
    assert profile.runcall(before.is_of, container)
    assert pstats.Stats(profile).total_calls < 100
