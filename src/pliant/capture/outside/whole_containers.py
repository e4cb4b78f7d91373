"""Containers from outside that a trace reads as a whole: their copies, and keys under guards.

In:     a container and the source it was read through.
Out:    the trace's own copy, with the stores that the trace did before; keys as a guard compares them; contents as they were at one
        moment, to tell later whether the trace changed them.
Holds:  every entry is guarded, or the capture breaks; the container itself stays as it is. The constants of a long list or tuple
        are under one guard; a number that was another one at an earlier capture is no constant: it becomes a symbol.
"""

from __future__ import annotations

import collections
import enum
import itertools
import operator
import types
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch

from pliant import config, set_orders
from pliant.capture.graph_breaks import GraphBreak, StartAgain
from pliant.capture.signatures import World
from pliant.capture.structures import parts_of
from pliant.capture.trace import DELETED
from pliant.capture.value_kinds import (
    COMPARED_IN_C,
    DICT_TYPES,
    ByKind,
    by_kind,
    derives,
    exactly,
    is_constant,
    is_module,
    is_nan,
    is_same_constant,
    reader,
)
from pliant.capture.varying_values import HookNumber
from pliant.cpython import state_of, table_of
from pliant.guards.facts import Itself, own_reference
from pliant.guards.kinds import ConstantItems, Kind
from pliant.guards.parts import EntrySource
from pliant.guards.sources import AttributeSource, ItemSource, ReferentSource, Source, TableSource, held
from pliant.guards.standard import identity_types


def copy_in(world: World, value: Any, source: Source) -> Any:
    """The trace's own copy of a container, every entry under guards."""
    cls: Any = base_in_c(value) or type(value)
    if cls in DICT_TYPES:
        return _copy_dict(world, value, source, cls)
    if cls is set:
        return _copy_set(world, value, source)
    if cls is bytearray:
        raise GraphBreak("unknown-object", "a bytearray from outside")
    world.guard(source, Kind.LENGTH, len(value))
    via = reader(value, list) if cls is list else None
    items = bring_items(world, tuple(cls.__iter__(value)), source, lambda i: ItemSource(source, i, via))
    return collections.deque(items, most_items(world, value, source)) if cls is collections.deque else items


ADD: dict[type, Callable[[Any, list[Any]], None]] = {
    list: list.extend, set: set.update, collections.deque: collections.deque.extend,
}  # fmt: skip


def base_in_c(value: Any) -> type | None:
    """Which container in C the value's class is or derives from."""
    return next((base for base in type(value).__mro__ if base in _IN_C), None)


def joined_to_dict(left: Any, given: Any, right: Any) -> Any:
    """What is joined to a dict in place of one from outside. One of a class derived from the left one's makes one of its own."""
    if right is given or base_in_c(given) is dict:
        return right
    if derives(type(given), type(left)):
        raise GraphBreak("unknown-object", f"a dict is joined to a {type(given).__name__} from outside, which makes another")
    return dict(right)


def most_items(world: World, value: collections.deque[Any], source: Source) -> int | None:
    """`maxlen`, under a guard that runs nothing of the program's."""
    descriptor: Any = collections.deque.maxlen
    if world.type_lookup(type(value), "maxlen") is not descriptor:
        raise GraphBreak("unknown-object", f"a {type(value).__name__} from outside with a `maxlen` of its own")
    most: int | None = descriptor.__get__(value)
    world.guard(AttributeSource(source, "maxlen"), Kind.EQUALS, most)
    return most


def at_most(world: World, container: Any, number: Any) -> Any:
    """The length of a container from outside that was given so many items: a deque may keep fewer."""
    most = most_items(world, container, world.place_of(container)) if base_in_c(container) is collections.deque else None
    return number if most is None or number <= most else most


_IN_C = frozenset((list, set, collections.deque, *DICT_TYPES))
_READ: dict[Any, tuple[str, ...]] = {list: ("__len__",), set: ("__len__", "__iter__"), collections.deque: ("__len__", "__iter__", "__getitem__")}


def refuse_own_reads(world: World, value: Any) -> None:
    """Break where a guard on what the container holds would run the program's code."""
    base = base_in_c(value)
    if base is not None and any(world.python_function(type(value), name) is not None for name in _READ.get(base, ())):
        raise GraphBreak("unknown-object", f"a {type(value).__name__} from outside reads its items in a way of its own")


def _copy_dict(world: World, value: dict[Any, Any], source: Source, cls: Any) -> Any:
    ordered = collections.OrderedDict if cls is collections.OrderedDict else dict
    keys = list(ordered.__iter__(value))
    world.guard(world.keys_place(value), Kind.KEYS, tuple(map(plain_key, keys)))
    changes = world.changes_of(value)
    items = {
        traced_key(world, k): changes[k]
        if k in changes
        else world.bring(dict.__getitem__(value, k), world.item_source(value, k))
        for k in keys
    }
    items.update(changes)
    items = {k: v for k, v in items.items() if v is not DELETED}
    if cls is not collections.defaultdict:
        return items if cls is dict else cls(items)
    factory = vars(collections.defaultdict)["default_factory"].__get__(value)
    return cls(world.bring(factory, AttributeSource(source, "default_factory")), items)


_is_ordered = exactly(collections.OrderedDict)
_HOOK_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def hooks_in_order(world: World, value: Any) -> list[tuple[HookNumber, Any]] | None:
    """The hooks of a module as they were before the trace, in order, under keys of which their number is of no matter."""
    source: Any = world.source_of(value)
    plain = world.inputs.policy.plain_places
    if getattr(source, "name", "") not in _HOOK_TABLES or source in plain or world.has_changes(value) or not _is_ordered(value):
        return None
    if not is_module(source.parent.held.value if source.parent.is_held else world.found_at(source.parent)):
        return None
    world.guard(source, Kind.LENGTH, len(value))
    hooks = enumerate(value.values())
    return [(HookNumber(lambda: StartAgain(lambda: plain.add(source))), world.bring(hook, EntrySource(source, place))) for place, hook in hooks]


def items_in_order(world: World, value: set[Any], source: Source) -> list[Any]:
    """The items of a set, under a guard on their order."""
    world.check_keys(value)
    world.note_asked(value, len(value))
    world.guard(source, Kind.KEYS, tuple(map(plain_key, value)))
    return [traced_key(world, key) for key in value]


def _copy_set(world: World, value: set[Any], source: Source) -> set[Any]:
    """With its table, too: where hashes meet, the order of what is made of a set depends on it. Not of one item, or none."""
    items = items_in_order(world, value, source)
    if len(items) < 2:
        return set(items)
    made = set_orders.same_set(value, items)
    if made is None:
        raise GraphBreak("unknown-object", "a set from outside, of which elements were removed, is used as a whole")
    world.guard(TableSource(source), Kind.EQUALS, table_of(value))
    return made


def know_items(world: World, value: frozenset[Any], source: Source) -> None:
    """The items of a frozenset are the program's: those that are no plain values are guarded by which objects they are."""
    own = {id(item): item for item in value if _PLAIN_KEYS.of(item) is None}
    world.guard(source, Kind.KEYS, tuple(_itself_or_held(item) if id(item) in own else plain_key(item) for item in value))
    for item in value:
        if id(item) not in own:
            traced_key(world, item)
        elif type(item).__weakrefoffset__:
            _known_object(world, item)
        else:
            world.hold(item, type(item).__name__)


def _itself_or_held(item: Any) -> Any:
    return Itself(item) if type(item).__weakrefoffset__ else item


def no_nan(key: Any) -> Any:
    """The key of a container from outside. A guard compares keys by value, and a NaN is found by which object it is."""
    if is_nan(key):
        raise GraphBreak("unknown-object", "a NaN is a key of a container from outside")
    return key


def plain_key(key: Any) -> Any:
    """The key as a guard compares it."""
    if (plain := _PLAIN_KEYS.of(key)) is not None:
        return plain(key)
    if _is_itself(key):
        return Itself(key)
    raise GraphBreak("unknown-object", f"a dict from outside with a {type(key).__name__} as key is used as a whole")


def _plain_frozenset(key: frozenset[Any]) -> frozenset[Any]:
    if any(plain_key(part) is not part for part in key):
        raise GraphBreak("unknown-object", "a frozenset with objects of the program is a key of a container from outside")
    return key


_PLAIN_KEYS: ByKind[Callable[[Any], Any] | None] = ByKind(
    None,
    families={
        **dict.fromkeys((str, int, float, bytes, type(None), type, enum.Enum, types.FunctionType), no_nan),
        **dict.fromkeys((torch.dtype, torch.device, weakref.ref), lambda key: key),
        tuple: lambda key: tuple(map(plain_key, key)),
        frozenset: _plain_frozenset,
        **dict.fromkeys(COMPARED_IN_C, lambda key: key),
    },
)


def _traced_object(world: World, key: Any) -> Any:
    if not _is_itself(key):
        return key
    return _known_object(world, key)


def _known_object(world: World, key: Any) -> Any:
    traced = world.bring(key, ReferentSource(held(own_reference(key), type(key).__name__)))
    world.note_identity(traced)
    return traced


def _traced_parts(world: World, key: Any) -> Any:
    """Objects in a key are the program's, too."""
    if any(traced_key(world, part) is not part for part in parts_of(key)):
        raise GraphBreak("unknown-object", f"a {type(key).__name__} with traced objects is a key from outside")
    return key


# The key of a container that is used as a whole, as the program sees it.
traced_key = by_kind(
    _traced_object,
    families={
        **dict.fromkeys(identity_types(), lambda world, key: key),
        weakref.ref: lambda world, key: world.hold(key, "reference"),
        **dict.fromkeys((tuple, frozenset), _traced_parts),
    },
    place=1,
)


def _is_itself(key: Any) -> bool:
    """Whether an object of the program, or a module, is equal to itself alone."""
    cls = type(key)
    known = (cls.__hash__, cls.__eq__) == (object.__hash__, object.__eq__)  # type: ignore[comparison-overlap]
    return known and cls.__weakrefoffset__ != 0


# ---- items of lists and tuples
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


# ---- whether a container was changed since
class _ById:
    """Compares values by identity (fake tensors must not be compared by value)."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and (self.value is other.value or is_same_constant(self.value, other.value))

    __hash__ = None  # type: ignore[assignment]  # never a key


class Snapshot:
    """What a container held at one moment. Later it mostly holds the very same objects, for which their addresses are compared."""

    __slots__ = ("_addresses", "_contents", "_look")

    def __init__(self, container: Any) -> None:
        self._look = _ADDRESSES.of(container)
        self._addresses, self._contents = self._look(container), frozen(container)

    def is_of(self, container: Any) -> bool:
        """Whether the container, which it was taken of, holds that."""
        same = self._addresses is not None and self._look(container) == self._addresses
        return same or bool(frozen(container) == self._contents)


_ADDRESSES: ByKind[Callable[[Any], list[int] | None]] = ByKind(
    lambda value: [*map(id, value)],
    families={dict: lambda value: [*map(id, value), *map(id, value.values())], set: lambda value: None},  # a set's table counts, too
)
class Snapshots:
    """Those of a trace, which each repeated call asks about: of all that was read before it, so all at once."""

    def __init__(self) -> None:
        self._parts: list[Collection[Any]] = []
        self._lengths: list[int] = []
        self._held: list[Any] = []
        self._are_all = True  # of what the trace read

    def take(self, container: Any, *, is_changed: bool) -> Snapshot | None:
        """That of the container as it is now; none of one that the trace has changed before."""
        parts = () if is_changed else _LIVE_PARTS.of(container)(container)
        self._are_all &= bool(parts)
        self._parts += parts
        self._lengths += map(len, parts)
        self._held += itertools.chain.from_iterable(parts)
        return None if is_changed else Snapshot(container)

    def hold(self) -> bool:
        """Whether each container holds the very same objects still, as far as that can be told at once."""
        if not self._are_all or [*map(len, self._parts)] != self._lengths:
            return False
        return all(map(operator.is_, itertools.chain.from_iterable(self._parts), self._held))


# What a container has in order, as it is whenever it is looked at; () where that does not say all.
_LIVE_PARTS: ByKind[Callable[[Any], tuple[Collection[Any], ...]]] = ByKind(
    lambda value: (value,), families={dict: lambda value: (value, value.values()), set: lambda value: ()}
)
# A snapshot to compare with later: keys and elements by identity, in order.
frozen = by_kind(
    lambda value: [*map(_ById, value)],
    families={
        dict: lambda value: [(_ById(k), _ById(v)) for k, v in value.items()],
        set: lambda value: ({one: _ById(one) for one in value}, state_of(value) if set_orders.lost_items(value) else None),
    },
)


# A set is itself: its copy would have another table.
unowned_copy = by_kind(
    lambda value: type(value)(value), families={set: lambda value: value, collections.deque: collections.deque, dict: dict}
)


def store_or_drop(mapping: dict[Any, Any], key: Any, value: Any) -> None:
    """Into the trace's own dict, which is of a class in C."""
    if value is DELETED:
        mapping.pop(key, None)
    else:
        mapping[key] = value
