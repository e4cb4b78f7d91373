"""Containers from outside that a trace reads as a whole: their copies, and keys under guards.

In:     a container and the source it was read through.
Out:    the trace's own copy, with the stores that the trace did before; keys as a guard compares them.
Holds:  every entry is guarded, or the capture breaks; the container itself stays as it is.
"""

from __future__ import annotations

import collections
import enum
import operator
import random
import types
import weakref
from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.constant_items import bring_items
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.trace import DELETED
from pliant.capture.value_kinds import DICT_TYPES
from pliant.guards.facts import Itself
from pliant.guards.kinds import Kind
from pliant.guards.sources import (
    AttributeSource,
    ItemSource,
    ReferentSource,
    Source,
    held,
)
from pliant.guards.standard import IDENTITY_TYPES

if TYPE_CHECKING:
    from pliant.capture.world import World


def copy_in(world: World, value: Any, source: Source) -> Any:
    """The trace's own copy of a container, every entry under guards."""
    cls = type(value)
    if cls in DICT_TYPES:
        return _copy_dict(world, value, source)
    if cls is set:
        world.guard(source, Kind.KEYS, tuple(map(plain_key, value)))
        return _set_in_order([_traced_key(world, key) for key in value])
    if cls is bytearray:
        raise GraphBreak("unknown-object", "a bytearray from outside")
    world.guard(source, Kind.LENGTH, len(value))
    items = bring_items(world, tuple(value), source, lambda i: ItemSource(source, i))
    return collections.deque(items, value.maxlen) if cls is collections.deque else items


def _copy_dict(world: World, value: dict[Any, Any], source: Source) -> Any:
    world.guard(source, Kind.KEYS, tuple(plain_key(k) for k in value))
    changes = world.take_changes(value)
    items = {
        _traced_key(world, k): changes[k] if k in changes else world.bring(v, world.item_source(value, k))
        for k, v in value.items()
    }
    for key, stored in changes.items():
        items[key] = stored
    items = {k: v for k, v in items.items() if v is not DELETED}
    match value:
        case collections.defaultdict():
            factory = world.bring(value.default_factory, AttributeSource(source, "default_factory"))
            return collections.defaultdict(factory, items)
        case collections.OrderedDict() | collections.Counter():
            return type(value)(items)
        case _:
            return items


def _set_in_order(keys: list[Any]) -> set[Any]:
    """A set of these keys that is iterated over in this order, which depends on the order of additions where hashes meet."""
    given = list(keys)
    for turn in range(_TURNS):
        made = set[Any]()
        for key in given:  # one by one: a set grows otherwise when it is made of another
            made.add(key)
        if all(map(operator.is_, made, keys)):
            return made
        random.Random(turn).shuffle(given)
    raise GraphBreak("unknown-object", "the order of a set from outside, of which elements were removed")


_TURNS = 30


_PLAIN_KEYS = (
    str, int, float, bytes, type(None), type, enum.Enum, types.FunctionType, torch.dtype, torch.device, weakref.ref,
)  # fmt: skip


def plain_key(key: Any) -> Any:
    """The key as a guard compares it."""
    if isinstance(key, _PLAIN_KEYS):
        return key
    if isinstance(key, tuple):
        return tuple(map(plain_key, key))
    if _is_itself(key):
        return Itself(key)
    raise GraphBreak("unknown-object", f"a dict from outside with a {type(key).__name__} as key is used as a whole")


def _traced_key(world: World, key: Any) -> Any:
    """The key of a container that is used as a whole, as the program sees it."""
    if isinstance(key, weakref.ref):
        world.set_origin(key, held(key, "reference"))
    elif not isinstance(key, IDENTITY_TYPES) and _is_itself(key):
        traced = world.bring(key, ReferentSource(held(weakref.ref(key), type(key).__name__)))
        world.note_identity(traced)
        return traced
    return key


def _is_itself(key: Any) -> bool:
    """Whether an object of the program, or a module, is equal to itself alone."""
    cls = type(key)
    known = (cls.__hash__, cls.__eq__) == (object.__hash__, object.__eq__)  # type: ignore[comparison-overlap]
    return known and cls.__weakrefoffset__ != 0
