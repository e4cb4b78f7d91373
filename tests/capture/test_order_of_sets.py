"""Sets from outside are iterated over in their own order, which what was added and removed before decides."""

import random

import pytest
import torch
from tests.capture.set_programs import disagreement

import pliant


class Thing:
    def __init__(self, number):
        self.number = number


def changed_set(seed, make):
    """A set that grew, shrank and grew again."""
    chance = random.Random(seed)
    things = [make(n) for n in range(40)]
    found = set()
    for one in chance.sample(things, 15):
        found.add(one)
    for one in list(found)[:9]:
        found.discard(one)
    for one in chance.sample(things, 6):
        found.add(one)
    return found


@pytest.mark.parametrize("make", [Thing, lambda n: f"name {n}", lambda n: 8 * n], ids=["objects", "strings", "numbers"])
def test_the_order_of_a_set_from_outside(make):
    for seed in range(8):
        found = changed_set(seed, make)

        def listed(x, found=found):
            seen = []
            for one in found:
                seen.append(one)
            return seen, list(found), [one for one in found], tuple(found), x + 1

        pliant.reset()
        compiled = pliant.compile(listed, backend="eager")
        assert compiled(torch.ones(1))[:4] == listed(torch.ones(1))[:4], seed


def test_a_set_made_of_a_set():
    names = {f"name {n}" for n in range(20)}
    compiled = pliant.compile(lambda x: (list(set(names)), list(frozenset(names)), x + 1), backend="eager")
    assert compiled(torch.ones(1))[:2] == (list(set(names)), list(frozenset(names)))


def test_random_programs_of_sets():
    """The order of a set that is made of another depends on the other's slots, not on its order alone."""
    for seed in range(120):
        assert not disagreement(seed)
