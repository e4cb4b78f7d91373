"""Sets from outside are iterated over in their own order, which what was added and removed before decides."""

import random

import pytest
import torch
from tests.capture.set_programs import disagreement

import pliant
from pliant import set_orders


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


@pytest.mark.fallbacks_expected  # a set that lost items is used as a whole
def test_random_programs_of_sets():
    """The order of a set that is made of another depends on the other's slots, not on its order alone."""
    for seed in range(120):
        assert not disagreement(seed)


MADE = [
    "{7, 15}", "{15, 7}", "set([7, 15, 23])", "set({15, 7})", "set([-2, -1])", "{8, 0, 16, 24, 32}", "set({8, 0, 16, 24, 32})",
    "frozenset([15, 7])", "frozenset([-2, -1])", "frozenset({8, 0, 16, 24, 32})", "{64, *dict.fromkeys([11, 64, 24, 32])}",
]  # fmt: skip


@pytest.mark.parametrize("text", MADE)
def test_sets_that_are_returned_or_live_across_a_break(text):
    names = {"pliant": pliant}
    exec(f"def f(x):\n    s = {text}\n    pliant.graph_break()\n    return s, list(s | {{40}}), {text}, x + 1", names)
    found, expected = (call(torch.ones(1))[:3] for call in (pliant.compile(names["f"], backend="eager"), names["f"]))
    assert [*map(list, found)] == [*map(list, expected)]


def with_lost_items(items):
    found = {*items, 3}
    found.discard(3)
    return found


@pytest.mark.parametrize("text", ["set(s)", "s.copy()", "s | {24}", "{24, *s}", "frozenset(s)", "s"])
def test_what_is_made_of_a_set_from_outside(text):
    """One whose table lost items, or is larger, gives another order, though its own is the same."""
    names = {}
    exec(f"def f(x, s): return list({text}), x + 1", names)
    compiled = pliant.compile(names["f"], backend="eager")
    for items in ({15, 7}, with_lost_items([7, 15]), {7, 15}):
        assert compiled(torch.ones(1), items)[0] == names["f"](torch.ones(1), items)[0]


def test_additions_before_a_break_at_the_set_itself():
    def f(x, s):
        s.add(24)
        return list(s), x + 1

    items, others = with_lost_items([7, 15]), with_lost_items([7, 15])
    assert pliant.compile(f, backend="eager")(torch.ones(1), items)[0] == f(torch.ones(1), others)[0]
    assert items == others == {7, 15, 24}


def test_iterating_over_a_set_that_lost_items_breaks():
    items = with_lost_items([7, 15])
    compiled = pliant.compile(lambda x: (x + sum(n for n in items), list(items)), backend="eager")
    assert compiled(torch.zeros(1))[1] == list(items)
    assert pliant.stats()["graph_breaks"]


def _worked_off(x, outside):
    """What is taken next depends on what was taken before, over graph breaks too."""
    work, seen = {1, 2, 3}, []
    while work:
        number = work.pop()
        seen.append(number)
        if number == 1:
            work.add(0)
        print(end="")
        x = x + number
    return seen


def _returned(x, outside):
    work = {1, 2, 3}
    work.pop()
    work.add(0)
    return x + 1, work


def _from_outside(x, outside):
    first = outside.pop()
    outside.add(0)
    return x + first


def _put_back(x, outside):
    outside.add(outside.pop())
    return x + 1


@pytest.mark.parametrize("program", [_worked_off, _returned, _from_outside, _put_back])
def test_what_is_taken_from_a_set_that_lost_items(program):
    found = []
    for function in (program, pliant.compile(program, backend="eager")):
        outside, taken = {1, 2, 3}, []
        result = function(torch.ones(1), outside)
        for one in (outside, *(part for part in result if isinstance(part, set))):
            taken.append([one.pop() for _ in range(len(one))])
        found.append((taken, result if isinstance(result, list) else []))
    assert found[0] == found[1]


def test_sets_that_lost_items_are_made_again():
    """As they are, where steps to them are found; where not, none are told."""
    found = 0
    for seed in range(200):
        chance, made = random.Random(seed), set()
        for _ in range(chance.randrange(1, 40)):
            match chance.randrange(5):
                case 0 if made:
                    made.pop()
                case 1 if made:
                    made.discard(chance.choice(list(made)))
                case _:
                    made.add(chance.choice((0, 8, 16, 24, 32, -1, -2, 3, 7, 11, 19, chance.randrange(200))))
        steps = set_orders.steps_to(made)
        if steps is not None:
            found += 1
            again = set_orders.done(steps, set())
            assert again == made and [made.pop() for _ in range(len(made))] == [again.pop() for _ in range(len(again))]
    assert found > 150


def of_lost():
    """A set that nothing makes again but what it went through."""
    found = {0, 1, 2, 9, 17}
    found.remove(0)
    return found


def changed_in_a_loop(x, numbers, change, brk):
    seen = []
    try:
        for one in numbers:
            seen.append(one)
            if brk:
                pliant.graph_break()
            change(numbers, one)
            x = x + 1
    except RuntimeError as error:
        seen.append(str(error))
    return seen, sorted(numbers), x


CHANGES = {
    "taken": lambda numbers, one: numbers.remove(one),
    "added": lambda numbers, one: numbers.add(one + 50),
    "added again": lambda numbers, one: numbers.add(one),
    "nothing": lambda numbers, one: None,
}


@pytest.mark.fallbacks_expected  # a set that changes in its loop
@pytest.mark.parametrize("brk", [False, True])
@pytest.mark.parametrize("change", CHANGES)
def test_a_set_that_lost_items_changes_in_a_loop(change, brk):
    change = CHANGES[change]
    compiled = pliant.compile(changed_in_a_loop, backend="eager")
    expected = changed_in_a_loop(torch.ones(1), of_lost(), change, brk)[:2]
    for _ in range(2):
        assert compiled(torch.ones(1), of_lost(), change, brk)[:2] == expected


def test_an_iterator_over_a_set_that_lost_items_crosses_a_break():
    def crossed(x, numbers):
        it = iter(numbers)
        seen = [next(it)]
        pliant.graph_break()
        seen += it
        numbers.add(77)
        return seen, next(it, "end"), x + 1

    compiled = pliant.compile(crossed, backend="eager")
    expected = crossed(torch.ones(1), of_lost())[:2]
    assert [compiled(torch.ones(1), of_lost())[:2] for _ in range(2)] == [expected] * 2
