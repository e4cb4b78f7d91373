"""The items of a long list or tuple from outside: its constants under one guard, everything else under guards of its own.

In:     the items, the source of the whole and that of each place.
Out:    their traced forms.
Holds:  a number that was another one at an earlier capture is no constant: it becomes a symbol, as a number alone would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pliant import config
from pliant.capture.signatures import World
from pliant.capture.value_kinds import is_constant, is_nan
from pliant.guards.kinds import ConstantItems, Kind
from pliant.guards.sources import Source

_FEW = 64  # which are guarded one by one


def bring_items(world: World, values: Sequence[Any], source: Source, place: Callable[[int], Source]) -> list[Any]:
    """What the program sees of the items, all of which it may use."""
    fixed = _constant_places(world, values, source, place)
    if len(fixed) <= _FEW:
        return [world.bring(value, place(i)) for i, value in enumerate(values)]
    known = frozenset(fixed)
    whole = len(fixed) == len(values)
    constants = ConstantItems(tuple(values[i] for i in fixed), None if whole else tuple(fixed))
    world.guard(source, Kind.ITEMS, constants)
    return [value if i in known else world.bring(value, place(i)) for i, value in enumerate(values)]


def _constant_places(
    world: World, values: Sequence[Any], source: Source, place: Callable[[int], Source]
) -> Sequence[int]:
    if len(values) <= _FEW or config.get().shapes.dynamic_sources:  # which may name an item
        return ()
    policy = world.inputs.policy
    varying = policy.varying_items(source, values)
    for i in varying:
        policy.note_varies(place(i), type(values[i]))
    return [i for i, value in enumerate(values) if is_constant(value) and i not in varying and not is_nan(value)]
