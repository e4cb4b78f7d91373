"""In which order items are added so that a set is as another one is.

In:     a set.
Out:    `same_set`; `additions` and, for sets that lost items, `steps_to`: what an empty set goes through.
Holds:  where hashes meet, the order of a set, and of what is made of it, depends on its table: on its size, and on which item came
        first. A table that lost items is like none that only grew: their places stay taken, and `pop` begins to look behind
        the one that it took last. Numbers stand for them while a table is made.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Iterator
from typing import Any

from pliant.cpython import slots_of, state_of

_TURNS = 30
AnySet = set[Any] | frozenset[Any]
Step = tuple[str, list[Any]]  # "add", "add keys", "discard", "pop", and of what
HASH_ALIKE: frozenset[type] = frozenset((int, float, bool))  # in all processes
_HASH_FIXED = HASH_ALIKE | {str, bytes, type(None)}  # as long as the process lives


def same_set(value: set[Any], items: list[Any]) -> set[Any] | None:
    """A set of these items, which are in the other's order, that has its table and order; None if none is found."""
    slots = slots_of(value)
    return next((made for _, made in _tries(items, slots) if _in_order(made, items) and slots_of(made) == slots != []), None)


def additions(value: AnySet) -> list[Step] | None:
    """What is added to an empty set for one of the same order, with the same table where that is found; None if none is."""
    items, slots = list(_iterator(value)), slots_of(value)
    found = None
    for steps, made in _tries(items, slots):
        if _in_order(made, items) and (found is None or slots_of(made) == slots):
            found = steps
            if not slots or slots_of(made) == slots:
                return found
    return found


def _iterator(value: AnySet) -> Iterator[Any]:
    """No method of the program's."""
    return frozenset.__iter__(value) if isinstance(value, frozenset) else set.__iter__(value)


def _in_order(made: set[Any], items: list[Any]) -> bool:
    return all(map(operator.is_, made, items))


def _tries(items: list[Any], slots: list[int]) -> Iterator[tuple[list[Step], set[Any]]]:
    """What lies where its hash says was added before what lies elsewhere, or may have been. A dict's keys are made room for at
    once, for twice as many as there then are, those counted twice that were there."""
    places = [place for place, number in enumerate(slots) if number != -1]
    displaced = [place != slots[place] & len(slots) - 1 for place in places] or [True] * len(items)
    first = [item for item, moved in zip(items, displaced) if not moved]
    rest = [item for item, moved in zip(items, displaced) if moved]
    twice = min(max(0, len(slots) // 4 - len(items)), len(items))
    for turn in range(_TURNS):
        given = first + rest
        yield [("add", given)], set(given)
        for count in sorted({twice, (twice + len(items)) // 2, len(items)}):
            made = set(given[:count])
            made.update(dict.fromkeys(given))
            yield [("add", given[:count]), ("add keys", given)], made
        random.Random(turn).shuffle(rest)


# ---------------------------------------------------------------------------------------------------- sets that lost items

def lost_items(value: AnySet) -> bool:
    """Whether items were taken out of it, all of which, and those that are left, have one hash as long as the process lives."""
    state = state_of(value)
    return state is not None and (None in state[0] or bool(state[1])) and _HASH_FIXED.issuperset(map(type, value))


def done(steps: list[Step], made: set[Any]) -> set[Any]:
    """The set after these steps."""
    for what, items in steps:
        if what == "pop":
            set.pop(made)
        elif what == "discard":
            for item in items:
                set.discard(made, item)
        else:
            set.update(made, items if what == "add" else dict.fromkeys(items))
    return made


def is_same(one: AnySet, other: AnySet) -> bool:
    """Whether they have the same items in the same table."""
    return len(one) == len(other) and all(map(operator.is_, one, other)) and state_of(one) == state_of(other)


def copied(value: set[Any]) -> set[Any] | None:
    """A set with the same items in the same table; None if none is found."""
    if lost_items(value):
        steps = steps_to(value)
        return None if steps is None else done(steps, set())
    return same_set(value, list(value))


def steps_to(value: set[Any]) -> list[Step] | None:
    """What an empty set goes through to have the items and the table of this one; None if that is not found."""
    state = state_of(value)
    if state is None:
        return None
    slots, begin = state
    for steps in _ways(dict(zip([i for i, h in enumerate(slots) if h is not None and h != -1], value)), slots, begin):
        if is_same(done(steps, set()), value):
            return steps
    return None


def _ways(items: dict[int, Any], slots: list[int | None], begin: int) -> Iterator[list[Step]]:
    """Perhaps the steps. `items`: by their slots."""
    size, hashes = len(slots), {*map(hash, items.values())}
    dead = {i: _filler(i, size, hashes) for i, number in enumerate(slots) if number is None}
    gone: Step = ("discard", [*dead.values()])
    if not begin:
        yield from ([*steps, gone] for steps in _grown({**items, **dead}, slots))
        return
    last = (begin - 1) % size  # where `pop` took the last one
    if slots[last] != -1:
        low = {i: _filler(i, size, hashes) for i in (*items, *dead) if i <= last}
        back = {i: one for i, one in {**items, **dead}.items() if i < last or i == last and i in items}
        popped: list[Step] = [("discard", [one for i, one in low.items() if i < last]), ("pop", [])]
        for steps in _grown({**items, **dead, **low}, slots):
            yield from ([*steps, *popped, ("add", order), gone] for order in _orders(back, size))
    if begin <= _SMALL:  # before the table grew
        early: list[Step] = [("add", [_filler(last % _SMALL, _SMALL, hashes)]), ("pop", [])]
        yield from ([*early, *steps, gone] for steps in _grown({**items, **dead}, slots))


def _orders(items: dict[int, Any], size: int) -> Iterator[list[Any]]:
    """In which they may have come to their slots, of which some are free again: an item takes the last free one that it sees."""
    places = sorted(items, reverse=True)
    yield [items[i] for i in places]
    places.sort(key=lambda i: hash(items[i]) & size - 1 != i)
    for turn in range(8):
        yield [items[i] for i in places]
        random.Random(turn).shuffle(places)


_SMALL = 8  # slots of a new set


def _filler(place: int, size: int, hashes: set[int]) -> int:
    """A number whose hash says that it lies there, of another hash than all others."""
    number = place
    while number in hashes:
        number += size
    hashes.add(number)
    return number


def _grown(items: dict[int, Any], slots: list[int | None]) -> Iterator[list[Step]]:
    """What gives an empty set these items, by their slots, in a table of this size."""
    places = sorted(items)
    table = [hash(items[i]) if i in items else -1 for i in range(len(slots))]
    yield from (steps for steps, _ in _tries([items[i] for i in places], table))
