"""The world outside the trace: what was read of it, under which guards, and how the trace would change it.

In:     raw objects and the sources they were read through (`bring`), stores into them.
Out:    traced values (tensors become fake, numbers may become symbolic, the rest stays itself), guards, effects.
Reads on: `origins.py` (sources and guards), `fields.py` (cells, slots, classes), `told_by_value.py` (values of which
        guards say what they are, not which); containers are here.
Holds:  nothing outside changes while tracing: stores to dicts and cells are kept beside them (`Changed`, `_slot_changes`),
        other containers are copied at first use that needs all of them (`adopt`), and the copy stands for the original.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sized
from dataclasses import field
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak, StartAgain
from pliant.capture.iterators.endings import check_let_go
from pliant.capture.outside.identity import TracedId, is_hook_id
from pliant.capture.outside.origins import Asked
from pliant.capture.outside.told_by_value import ToldByValue
from pliant.capture.outside.whole_containers import (
    ADD,
    Snapshot,
    Snapshots,
    base_in_c,
    copy_in,
    frozen,
    no_nan,
    plain_key,
    refuse_own_reads,
    store_or_drop,
    unowned_copy,
)
from pliant.capture.trace import DELETED, Effect, Extend, ReplaceContents, SetItem
from pliant.capture.value_kinds import (
    DICT_TYPES,
    SYMBOLIC_TYPES,
    ByKind,
    concrete,
    exactly,
    is_function,
    is_hashed_by_identity,
    is_list,
    is_mutable_container,
    is_plain_dict,
    is_tuple,
    own_dict,
    reader,
)
from pliant.capture.varying_values import UNSETTLED, HookNumber
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.parts import FieldSource, KeysSource
from pliant.guards.sources import DictAttributeSource, ItemSource, ModuleMemberSource, Source
from pliant.guards.standard import identity_types
from pliant.records import dataclass
from pliant.source import SourceLocation

_ADOPT_LIMIT = 100_000


@dataclass(slots=True, eq=False)
class Changed:
    """What the trace has done with a container from outside, which itself stays as it is.

    `stores`: into a dict that was not read as a whole; `moved`: its keys that were deleted and stored again, at the end.
    `added`: to a list or a set that was not read. `copy`: the trace's own, once it reads all; it held `before`.
    """

    real: Any
    stores: dict[Any, Any] = field(default_factory=dict)
    moved: dict[Any, None] = field(default_factory=dict)
    added: list[Any] | None = None
    copy: Any = None
    before: Snapshot | None = None


class World(ToldByValue):
    """Reads and buffered writes of one capture. `symbols` makes tensors fake and numbers symbolic."""

    bring_carried: Callable[[Any, Source], Any]  # the traced form of a loop's iterator

    def __init__(self, inputs: Any, location: Callable[[], SourceLocation | None]) -> None:
        super().__init__(inputs, location)
        self.effects_in_order: list[Effect] = []
        self._changed: dict[int, Changed] = {}
        self._read_whole = Snapshots()
        self._owner_of_dict: dict[int, Any] = {}
        self.viewed: set[int] = set()  # dicts behind proxies that the trace has copies of

    def forget(self) -> None:
        """Let go of all objects: what the program drops next is gone at once."""
        for held_here in vars(self).values():
            if is_plain_dict(held_here) or held_here is self.effects_in_order:
                held_here.clear()
        self.twins.forget()
        self._guarded.clear()
        self._read_whole, self.guards = Snapshots(), []  # a trace has the other guards

    # ---- dicts (of objects, of modules, plain) without copying them
    def instance_dict(self, obj: Any) -> dict[str, Any]:
        """The `__dict__` of a foreign object, known as a foreign dict; {} if it has none."""
        found = own_dict(obj)
        if not is_plain_dict(found):
            return {}
        if self.log is not None:
            self.log.append(Asked("dict", self.place_of(obj), obj, found, None))
        if id(found) not in self._owner_of_dict:
            source = self.place_of(obj)
            self._owner_of_dict[id(found)] = (obj, source, found)
            self.set_origin(found, self.field_source(obj, "__dict__"))
        return found  # type: ignore[no-any-return]

    @staticmethod
    def has_dict(obj: Any) -> bool:
        """Whether it has a `__dict__` of its own. A `__getattr__` of the program's is not asked."""
        return own_dict(obj) is not None

    def is_foreign_dict(self, obj: Any, name: str, mapping: Any) -> bool:
        """Whether `mapping`, the value of obj.__dict__[name], is a dict from outside; makes its origin known."""
        table = self.instance_dict(obj)
        if name in self.stores_into(table) or id(mapping) in self._stands:
            return False
        if not self.is_asked and self.is_foreign(mapping):
            return True
        source, known = self.item_source(table, name), self.source_of(mapping)
        if known is None or known == source and self.log is not None:
            self.bring(mapping, source)
        elif known != source:
            self.guard(source, Kind.SAME_AS, known)
        return True

    def item_source(self, mapping: dict[Any, Any], key: Any) -> Source:
        owner = self._owner_of_dict.get(id(mapping))
        if owner is not None and isinstance(key, str):
            place = self.place_of(mapping)
            return ItemSource(place, key) if isinstance(place, FieldSource) else DictAttributeSource(owner[1], key)
        source = self.place_of(mapping)
        if source.is_members:
            return ModuleMemberSource(source.parent, source.name, key)  # type: ignore[attr-defined]
        return ItemSource(source, key, reader(mapping, dict))

    def _held_here(self, mapping: Any) -> Any:
        """What the trace has in place of a dict that it read as a whole."""
        found, changed = self._stands.get(id(mapping)), self._changed.get(id(mapping))
        held_here = found[1] if found is not None else None if changed is None else changed.copy
        if held_here is not None:
            self.log_unlike(mapping)
        return held_here

    def stores_into(self, mapping: Any) -> dict[Any, Any]:
        """What the trace stored into a dict from outside that it did not read as a whole, `DELETED` where it deleted."""
        self.check_keys(mapping)
        changed = self._changed.get(id(mapping))
        if changed is None:
            return _NO_STORES
        self.changed_reads += bool(changed.stores)
        return changed.stores

    def _change(self, container: Any) -> Changed:
        """The record of a container that the trace is about to change, or to read as a whole."""
        if id(container) not in self._changed:
            self._changed[id(container)] = Changed(container)
        return self._changed[id(container)]

    def _in_trace(self, mapping: Any, key: Any) -> Any:
        """What the trace has of mapping[key] without asking the foreign dict, or MISSING; `_UNREAD` where that is to be asked."""
        if type(key) is str and not self.has_changes(mapping):
            self.check_keys(mapping)
            return _UNREAD
        if (held_here := self._held_here(mapping)) is not None:
            return dict.get(held_here, key, MISSING)
        stores = self.stores_into(mapping)
        if stores and key in stores:
            return MISSING if stores[key] is DELETED else stores[key]
        return MISSING if is_hook_id(key) else _UNREAD  # a hook's is a new one

    def dict_get(self, mapping: dict[Any, Any], key: Any) -> Any:
        """mapping[key] of a foreign dict, or MISSING, under a guard."""
        if (found := self._in_trace(mapping, key)) is not _UNREAD:
            return found
        key = key if type(key) is str else self.real_key(key)
        raw = dict.get(mapping, key, MISSING)
        if raw is MISSING:
            if self.is_asked:  # most names are in none of several dicts that are asked
                self.guard(self.keys_place(mapping), Kind.NO_KEY, key)
            return MISSING
        return self.bring(raw, self.item_source(mapping, key))

    def real_key(self, key: Any) -> Any:
        """Keys are looked up in real dicts: a fake input tensor stands for the tensor itself."""
        return _REAL_KEYS.of(key)(self, key)

    def _real_tensor(self, key: Any) -> torch.Tensor:
        found: torch.Tensor | None = self.inputs.example_of(key)
        if found is None:
            raise GraphBreak("unknown-object", "a tensor made here is looked up in a dict from outside")
        self.guard(self.source_of(key), Kind.IDENTITY, found)
        return found

    def _real_id(self, key: TracedId) -> int:
        real = self.real_object(key.obj)
        source = self.source_of(key.obj if is_fake(key.obj) else real)
        if source is None or is_fake(real):
            return key
        self.guard(source, Kind.IDENTITY, real)
        return id(real)

    def _fixed_object(self, key: Any) -> Any:
        """A container from outside knows the object itself."""
        if is_hashed_by_identity(key) and (source := self.source_of(key)) is not None:
            self.guard(source, Kind.IDENTITY, key)
        return key

    def _fixed_parts(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        for one in key:
            (self._fixed_parts if is_tuple(one) else self._fixed_object)(one)
        return key

    def contains(self, mapping: Any, key: Any) -> bool:
        """Whether a foreign dict, or a set without changes, has the key."""
        if (found := self._in_trace(mapping, key)) is not _UNREAD:
            return found is not MISSING
        base: Any = base_in_c(mapping)
        if _is_hook_number(key) and not base.__len__(mapping):
            self.guard(self.keys_place(mapping), Kind.LENGTH, 0)
            return False
        key = self.real_key(key)
        present: bool = base.__contains__(mapping, key)
        self.note_asked(mapping, present)
        self.guard(self.keys_place(mapping), Kind.HAS_KEY if present else Kind.NO_KEY, key)
        return present

    def keys_place(self, mapping: Any) -> Source:
        """Where guards read the keys of a dict, or the items of a set, from outside."""
        self.check_keys(mapping)
        place, cls = self.place_of(mapping), type(mapping)
        asks = cls is not dict and base_in_c(mapping) in DICT_TYPES and any(is_function(getattr(cls, name)) for name in _OF_KEYS)
        return KeysSource(place) if asks else place

    def keys_of(self, mapping: dict[Any, Any]) -> list[Any]:
        """The keys of a foreign dict that is not read as a whole, in order."""
        self.guard(self.keys_place(mapping), Kind.KEYS, tuple(map(plain_key, dict.keys(mapping))))
        changed = self._changed.get(id(mapping), Changed(mapping))
        self.changed_reads += bool(changed.stores)
        stores, moved = changed.stores, changed.moved
        keys = [key for key in dict.keys(mapping) if key not in moved and stores.get(key) is not DELETED]
        return keys + [key for key, value in stores.items() if value is not DELETED and key not in keys]

    def dict_set(self, mapping: dict[Any, Any], key: Any, value: Any) -> None:
        """Store (or DELETED) into a foreign dict, replayed at the end."""
        self._check_viewed(mapping)
        if (held_here := self._held_here(mapping)) is not None:
            store_or_drop(held_here, key, value)
            return
        self.check_keys(mapping)
        changed = self._change(mapping)
        stores = changed.stores
        if _is_name(key) and key not in stores:
            check_let_go((dict.get(mapping, key),))
        if stores.get(key) is DELETED and value is not DELETED:  # stored again, a deleted key goes to the end
            if id(mapping) not in self._owner_of_dict:  # no single store does that
                whole = self.contents(mapping)
                store_or_drop(self.adopt(mapping) if whole is None else whole, key, value)
                return
            del stores[key]
            if dict.__contains__(mapping, key):
                changed.moved[key] = None
        stores[key] = value

    def _check_viewed(self, mapping: Any) -> None:
        """A store would not be seen through the copies that the trace has of views of the dict."""
        if id(mapping) in self.viewed:
            raise GraphBreak("unknown-object", "a dict is used of which a view was read")

    def needs_guards(self, value: Any) -> bool:
        """Whether reading `value` reads the outside: it came from there and was not adopted."""
        return id(value) in self.origins and id(value) not in self._stands

    def is_opaque(self, value: Any) -> bool:
        """An object from outside that C code must not look into unguarded."""
        return id(value) in self.origins and id(value) not in self._stands and _HOLDS_MORE.of(value)

    def has_changes(self, container: Any) -> bool:
        number = id(container)
        return number in self._changed or number in self._stands

    def add_unread(self, container: Any, values: list[Any]) -> bool:
        """Add to a foreign list, set or deque, replayed at the end, without reading it; False if it is not such a one."""
        if base_in_c(container) not in ADD or self._held_here(container) is not None:
            return False
        if not self.needs_guards(container):
            return False
        changed = self._change(container)
        if changed.added is None:
            changed.added = []
        changed.added += values
        return True

    def unread_additions(self, container: Any) -> int | None:
        """How many values were added to a foreign list or deque that the trace neither read as a whole nor changed otherwise."""
        changed = self._changed.get(id(container))
        if changed is None or changed.added is None or base_in_c(container) is set:
            return None
        self.changed_reads += 1
        return len(changed.added)

    # ---- whole containers
    def varies(self, value: Any) -> bool:
        """Whether it is a list from outside, neither changed nor read as a whole yet, whose length is no constant."""
        return self.length_varies(value) and not self.has_changes(value)

    def length_varies(self, value: Any, *, is_long: bool = False) -> bool:
        """Whether it is a list from outside that has had another length; `is_long`: and is a long one."""
        asked = self.inputs.policy.long_varies if is_long else self.inputs.policy.length_varies
        return is_list(value) and self.needs_guards(value) and bool(asked(self.place_of(value), len(value)))

    def adopt(self, value: Any, looped: bool = False) -> Any:
        """The trace's own copy of a foreign container (itself, if it is not foreign or not a container). `looped`: a
        loop of the program takes its items, of which each would be a call of its own behind a break.
        """
        number = id(value)
        if number in self._stands:
            self.log_unlike(value)
            return self._stands[number][1]
        if number not in self.origins or not is_mutable_container(value):
            return concrete(value) if type(value) in UNSETTLED else value
        if self.length_varies(value) or not looped and self.length_varies(value, is_long=True):
            source = self.place_of(value)
            raise GraphBreak("varying-length", f"all of `{source.describe()}`, whose length varies, is used at once")
        if self.log is not None:
            self.log.append(Asked("whole", self.place_of(value), value, looped, self.location()))
        shadow = self._copied(value)
        self.stand_for(value, shadow)
        return shadow

    def _copied(self, value: Any) -> Any:
        """The trace's own copy of a container."""
        base: Any = base_in_c(value) or type(value)
        if (count := base.__len__(value)) > _ADOPT_LIMIT:
            raise GraphBreak("unknown-object", f"a {type(value).__name__} of {count} entries is used as a whole")
        check_let_go(dict.values(value) if base in DICT_TYPES else value)
        self._check_viewed(value)
        shadow = copy_in(self, value, self.place_of(value))
        self.set_origin(shadow, self.place_of(value))
        self.stand_for(shadow, shadow)  # it must not be taken for a container that still needs adopting
        if base is type(value) and self.has_dict(shadow):  # an OrderedDict's attributes are looked up in what stands for it
            shadow.__dict__ = self.adopt(self.instance_dict(value))
        changed = self._change(value)
        added, changed.added = changed.added, None  # not before: where the copy breaks, they are still to be replayed
        if added:
            ADD[type(shadow)](shadow, added)
        # Stores that happened before are part of the copy: it differs from the original from the start.
        changed.copy, changed.before = shadow, self._read_whole.take(shadow, is_changed=bool(changed.stores or added))
        changed.stores = {}
        return shadow

    def contents(self, value: Any) -> Any:
        """What a foreign container of a class of the program's holds, as one of the class in C that it derives from: the
        trace changes this one, and the object is given the same contents at the end. None of anything else.
        """
        base = base_in_c(value)
        if not self.needs_guards(value) or base in (None, type(value)):
            return None
        if (held_here := self._held_here(value)) is not None:
            return held_here
        source = self.place_of(value)
        self.log_unlike(value)
        refuse_own_reads(self, value)
        if base is list and self.inputs.policy.length_varies(source, len(value)):
            raise GraphBreak("varying-length", f"all of `{source.describe()}`, whose length varies, is used at once")
        return self._copied(value)

    def whole(self, value: Any) -> Any:
        """What the trace has of a container from outside as C code reads it; any other value is itself."""
        value = self.adopt(value)
        held_here = self.contents(value) if self.is_opaque(value) else None
        return value if held_here is None else held_here

    def changed_contents(self, value: Any) -> Any:
        """The contents, where the trace has read all of it, or has changed it."""
        return self.contents(value) if self.has_changes(value) else None

    def changes_of(self, mapping: dict[Any, Any]) -> dict[Any, Any]:
        """The stores into a foreign dict, which its copy has, too."""
        if id(mapping) in self._changed and self._changed[id(mapping)].moved:
            raise GraphBreak("unknown-object", "all of a dict of which an entry was deleted and stored again is used")
        return self.stores_into(mapping)

    # ---- the end
    def _stored_into(self) -> list[Changed]:
        """The dicts that the trace stored into without reading them as a whole."""
        return [changed for changed in self._changed.values() if changed.stores]

    def changed_copies(self) -> list[Changed]:
        """The containers that the trace read as a whole, and changed."""
        in_doubt = () if self._read_whole.hold() else self._changed.values()
        return [c for c in in_doubt if c.copy is not None and not (c.before and c.before.is_of(c.copy))]

    def check_states(self) -> None:
        """What the trace found and stores anew with symbols was no constant; otherwise the capture starts again."""
        left = [one for c in self._stored_into() for one in self._items_left(c.real, c.stores)]
        for c in self.changed_copies():
            left += _LEFT.of(c.real)(self, c.real, c.copy)
        if True in [self.inputs.learns_from(source, value) for source, value in left]:
            raise StartAgain

    def _items_left(self, mapping: Any, items: dict[Any, Any]) -> list[tuple[Source, Any]]:
        return [(self.item_source(mapping, key), v) for key, v in items.items() if _is_name(key)]

    def found_at(self, source: Source) -> Any:
        """What the trace read there; None if it did not."""
        return self._memo.get(source)

    def written(self) -> list[Any]:
        written = [*self.inputs.told, *(changed.real for changed in self._stored_into())]
        written += [slot.obj for slot in self._slot_changes.values()]
        written += self._stored_for_a_while.values()
        written += [changed.real for changed in self._changed.values() if changed.added is not None]
        written += [changed.real for changed in self._changed.values() if changed.copy is not None]
        return written + [self._owner_of_dict[id(obj)][0] for obj in written if id(obj) in self._owner_of_dict]

    def changes(self) -> list[tuple[Any, ...]]:
        """What the trace did to the world so far, in a form to compare with later."""
        found: list[tuple[Any, ...]] = [(len(self.effects_in_order) + len(self.inputs.told),)]
        found += [(id(slot.obj), slot.name, id(slot.value)) for slot in self._slot_changes.values()]
        found += [(id(one.real), id(key), id(value)) for one in self._stored_into() for key, value in one.stores.items()]
        found += [(id(one.real), *map(id, one.added)) for one in self._changed.values() if one.added is not None]
        return found + [(id(changed.real), frozen(changed.copy)) for changed in self.changed_copies()]

    def drop_restored(self) -> None:
        """Stores that leave in a dict what guards find there are none."""
        for c in self._stored_into():
            for key in [k for k in c.stores if _is_name(k) and k not in c.moved and dict.__contains__(c.real, k)]:
                found, source = dict.__getitem__(c.real, key), self.item_source(c.real, key)
                if self._memo.get(source, found) is c.stores[key] is self.bring(found, source):
                    del c.stores[key]

    def counts(self) -> tuple[int, ...]:
        """How much the trace knows of the outside beside values and guards: equal as long as it only reads."""
        known: tuple[Sized, ...] = (self._told_apart, self._differentiated, self.made, self.known_by_parts, self.viewed)
        return (*map(len, known), len(self.class_sources))

    def counts_of_copies(self) -> tuple[int, int]:
        """The same of what stands for other values, and of what it changed or copied."""
        return len(self._stands), len(self._changed)

    def only_stored_into(self) -> frozenset[int] | None:
        """By id, the dicts that the trace stored into and did not read as a whole; None if it changed anything else."""
        if self.effects_in_order or self.inputs.told or self._slot_changes or self.changed_copies():
            return None
        if [changed for changed in self._changed.values() if changed.added is not None]:
            return None
        return frozenset([id(changed.real) for changed in self._stored_into()])

    def effects(self) -> list[Effect]:
        """What the trace did to the world, to be replayed."""
        out: list[Effect] = [*self.effects_in_order, *self._slot_changes.values()]
        for changed in self._stored_into():
            out.extend(SetItem(changed.real, key, DELETED) for key in changed.moved)
            out.extend(SetItem(changed.real, key, value) for key, value in changed.stores.items())
        out.extend(Extend(one.real, tuple(one.added)) for one in self._changed.values() if one.added is not None)
        return out + [ReplaceContents(one.real, unowned_copy(one.copy)) for one in self.changed_copies()]


_NO_STORES: dict[Any, Any] = {}
_OF_KEYS = ("__iter__", "__contains__", "__len__")
_UNREAD = object()
_is_name, _is_hook_number = exactly(str, int), exactly(HookNumber)  # what guards find items by
# Whether C code that looks into such an object from outside finds more than its guards say.
_HOLDS_MORE: ByKind[bool] = ByKind(
    True,
    families={**dict.fromkeys((*identity_types(), torch.Tensor, tuple), False), **dict.fromkeys((type, functools.partial), True)},
)
_REAL_KEYS: ByKind[Callable[[World, Any], Any]] = ByKind(
    World._fixed_object,
    {
        str: lambda world, key: key,
        tuple: World._fixed_parts,
        FakeTensor: World._real_tensor,
        TracedId: World._real_id,
        **dict.fromkeys((*SYMBOLIC_TYPES, *UNSETTLED), lambda world, key: concrete(key)),
        **dict.fromkeys((float, complex), lambda world, key: no_nan(key)),
    },
)


# By the kind of a container from outside: where the next call finds what the trace left in its copy.
_LEFT: ByKind[Callable[[World, Any, Any], list[tuple[Source, Any]]]] = ByKind(
    lambda world, real, copy: [],
    {list: lambda world, real, copy: [(world.place_of(real), copy)], dict: World._items_left},
)
