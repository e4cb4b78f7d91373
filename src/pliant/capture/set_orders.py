"""In which order items are added so that a set is as another one is.

In:     a set.
Out:    `same_set`, `additions`.
Holds:  where hashes meet, the order of a set, and of what is made of it, depends on its table: on its size, and on which item came
        first. A table that lost items is like none that only grew.
"""

from __future__ import annotations

import operator
import random
from collections.abc import Iterator
from typing import Any

from pliant.cpython import slots_of

_TURNS = 30
AnySet = set[Any] | frozenset[Any]


def same_set(value: set[Any], items: list[Any]) -> set[Any] | None:
    """A set of these items, which are in the other's order, that has its table and order; None if none is found."""
    slots = slots_of(value)
    return next((made for _, made in _tries(items, slots) if _in_order(made, items) and slots_of(made) == slots != []), None)


def additions(value: AnySet) -> tuple[list[Any], list[Any] | None] | None:
    """What is added to an empty set, and then as the keys of a dict (not, if that is None), for a set of the same order; None
    if no such additions are found. With the same table, where these are."""
    base: Any = set if isinstance(value, set) else frozenset
    items, slots = list(base.__iter__(value)), slots_of(value)
    found = None
    for added, made in _tries(items, slots):
        if _in_order(made, items) and (found is None or slots_of(made) == slots):
            found = added
            if not slots or slots_of(made) == slots:
                return found
    return found


def _in_order(made: set[Any], items: list[Any]) -> bool:
    return all(map(operator.is_, made, items))


def _tries(items: list[Any], slots: list[int]) -> Iterator[tuple[tuple[list[Any], list[Any] | None], set[Any]]]:
    """What lies where its hash says was added before what lies elsewhere, or may have been. A dict's keys are made room for at
    once, for twice as many as there then are, those counted twice that were there."""
    places = [place for place, number in enumerate(slots) if number != -1]
    displaced = [place != slots[place] & len(slots) - 1 for place in places] or [True] * len(items)
    first = [item for item, moved in zip(items, displaced) if not moved]
    rest = [item for item, moved in zip(items, displaced) if moved]
    twice = min(max(0, len(slots) // 4 - len(items)), len(items))
    for turn in range(_TURNS):
        given = first + rest
        yield (given, None), set(given)
        made = set(given[:twice])
        made.update(dict.fromkeys(given))
        yield (given[:twice], given), made
        random.Random(turn).shuffle(rest)
