"""The world outside the trace: what was read of it, under which guards, and how the trace would change it.

In:     raw objects and the sources they were read through (`bring`), stores into them.
Out:    traced values (tensors become fake, numbers may become symbolic, the rest stays itself), guards, effects.
Reads on: `origins.py` (sources and guards), `fields.py` (cells, slots, classes); containers are here.
Holds:  nothing outside changes while tracing: stores to dicts and cells are kept beside them (`_dict_changes`, `_cell_changes`),
        other containers are copied at first use that needs all of them (`adopt`), and the copy stands for the original.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak, StartAgain
from pliant.capture.iterators.endings import check_let_go
from pliant.capture.iterators.suspended import Carried
from pliant.capture.outside.bringing import traced_form
from pliant.capture.outside.fields import Fields
from pliant.capture.outside.identity import HookId, TracedId
from pliant.capture.outside.snapshots import frozen, unowned_copy
from pliant.capture.outside.whole_containers import base_in_c, copy_in, plain_key, refuse_own_reads
from pliant.capture.trace import DELETED, Effect, Extend, ReplaceContents, SetAttribute, SetItem
from pliant.capture.value_kinds import (
    MUTABLE_CONTAINERS,
    SYMBOLIC_TYPES,
    ByKind,
    concrete,
    is_hashed_by_identity,
)
from pliant.graph.fake_tensor import FakeTensor
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import (
    AttributeSource,
    DictAttributeSource,
    ItemSource,
    ModuleMemberSource,
    Source,
)
from pliant.guards.standard import IDENTITY_TYPES
from pliant.source import SourceLocation

_ADOPT_LIMIT = 100_000
_CHANGED: tuple[()] = ()  # unequal to every snapshot of a container


class World(Fields):
    """Reads and buffered writes of one capture. `symbols` makes tensors fake and numbers symbolic."""

    bring_carried: Callable[[Any, Source], Any]  # the traced form of a loop's iterator

    def __init__(self, inputs: Any, location: Callable[[], SourceLocation | None]) -> None:
        super().__init__(inputs, location)
        self.effects_in_order: list[Effect] = []
        self._shadows: dict[int, tuple[Any, Any, Any]] = {}
        self._dict_changes: dict[int, tuple[dict[Any, Any], dict[Any, Any]]] = {}
        self._moved: dict[int, dict[Any, None]] = {}  # keys of such dicts that were deleted and stored again, at the end
        self._added: dict[int, tuple[Any, list[Any]]] = {}
        self._contents: dict[int, tuple[Any, Any]] = {}  # of containers of the program's classes
        self._owner_of_dict: dict[int, Any] = {}

    def forget(self) -> None:
        """Let go of all objects: what the program drops next is gone at once."""
        for held_here in vars(self).values():
            if isinstance(held_here, dict) or held_here is self.effects_in_order:
                held_here.clear()
        self.twins.forget()
        self._guarded.clear()
        self.guards = []  # a trace has the others

    # ---- reading
    def bring(self, value: Any, source: Source) -> Any:
        """The traced form of `value`, which was just read through `source`."""
        if source in self._memo:
            return self._memo[source]
        result = traced_form(self, value, source)
        if type(value) is not Carried:  # a generator of the program ends when the loop drops it
            self._memo[source] = result
        return result

    def stand_for(self, value: Any, original: Any, shadow: Any) -> None:
        """Wherever `value` is met, `shadow` stands for it, which the trace does not change."""
        self._shadows[id(value)] = (original, shadow, None)

    def resolve(self, value: Any) -> Any:
        """The copy that stands for a foreign container once it was adopted; anything else is itself."""
        found = self._shadows.get(id(value))
        return found[1] if found is not None else value

    # ---- dicts (of objects, of modules, plain) without copying them
    def instance_dict(self, obj: Any) -> dict[str, Any]:
        """The `__dict__` of a foreign object, known as a foreign dict; {} if it has none."""
        found = _raw_dict(obj)
        if found is None:
            return {}
        if id(found) not in self._owner_of_dict:
            source = self.place_of(obj)
            self._owner_of_dict[id(found)] = (obj, source, found)
            self.set_origin(found, AttributeSource(source, "__dict__"))
        return found

    def is_foreign_dict(self, obj: Any, name: str, mapping: Any) -> bool:
        """Whether `mapping`, the value of obj.__dict__[name], is a dict from outside; makes its origin known."""
        table = self.instance_dict(obj)
        changes = self._dict_changes.get(id(table))
        if changes is not None and name in changes[1] or id(mapping) in self._shadows:
            return False
        source, known = self.item_source(table, name), self.source_of(mapping)
        if known is None:
            self.bring(mapping, source)
        elif known != source:
            self.guard(source, Kind.SAME_AS, known)
        return True

    def item_source(self, mapping: dict[Any, Any], key: Any) -> Source:
        owner = self._owner_of_dict.get(id(mapping))
        if owner is not None and isinstance(key, str):
            return DictAttributeSource(owner[1], key)
        source = self.place_of(mapping)
        if source.is_members:
            return ModuleMemberSource(source.parent, source.name, key)  # type: ignore[attr-defined]
        via = None if type(mapping) is dict else "dict"
        return ItemSource(source, key, via)

    def _held_here(self, mapping: Any) -> Any:
        """What the trace has in place of a dict that it read as a whole."""
        found = self._shadows.get(id(mapping)) or self._contents.get(id(mapping))
        return None if found is None else found[1]

    def dict_get(self, mapping: dict[Any, Any], key: Any) -> Any:
        """mapping[key] of a foreign dict, or MISSING, under a guard."""
        if (held_here := self._held_here(mapping)) is not None:
            return dict.get(held_here, key, MISSING)
        changes = self._dict_changes.get(id(mapping))
        if changes is not None and key in changes[1]:
            value = changes[1][key]
            return MISSING if value is DELETED else value
        if type(key) is HookId:  # a new one
            return MISSING
        key = key if type(key) is str else self.real_key(key)
        raw = dict.get(mapping, key, MISSING)
        if raw is MISSING:
            self.guard(self.source_of(mapping), Kind.NO_KEY, key)
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
        if (source := self.source_of(key.obj)) is None:
            return key
        self.guard(source, Kind.IDENTITY, key.obj)
        return int.__index__(key)

    def _fixed_object(self, key: Any) -> Any:
        """A container from outside knows the object itself."""
        if is_hashed_by_identity(key) and (source := self.source_of(key)) is not None:
            self.guard(source, Kind.IDENTITY, key)
        return key

    def _fixed_parts(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        for one in key:
            (self._fixed_parts if type(one) is tuple else self._fixed_object)(one)
        return key

    def contains(self, mapping: Any, key: Any) -> bool:
        """Whether a foreign dict, or a set without changes, has the key."""
        if (held_here := self._held_here(mapping)) is not None:
            return dict.__contains__(held_here, key)
        changes = self._dict_changes.get(id(mapping))
        if changes is not None and key in changes[1]:
            return changes[1][key] is not DELETED
        if type(key) is HookId:
            return False
        key = self.real_key(key)
        base: Any = base_in_c(mapping)
        present: bool = base.__contains__(mapping, key)
        self.guard(self.source_of(mapping), Kind.HAS_KEY if present else Kind.NO_KEY, key)
        return present

    def keys_of(self, mapping: dict[Any, Any]) -> list[Any]:
        """The keys of a foreign dict that is not read as a whole, in order."""
        self.guard(self.source_of(mapping), Kind.KEYS, tuple(map(plain_key, dict.keys(mapping))))
        changes = self._dict_changes.get(id(mapping), (mapping, {}))[1]
        moved = self._moved.get(id(mapping), {})
        keys = [key for key in dict.keys(mapping) if key not in moved and changes.get(key) is not DELETED]
        return keys + [key for key, value in changes.items() if value is not DELETED and key not in keys]

    def dict_set(self, mapping: dict[Any, Any], key: Any, value: Any) -> None:
        """Store (or DELETED) into a foreign dict, replayed at the end."""
        if (held_here := self._held_here(mapping)) is not None:
            _store(held_here, key, value)
            return
        changes = self._dict_changes.setdefault(id(mapping), (mapping, {}))[1]
        if type(key) in (str, int) and key not in changes:
            check_let_go((dict.get(mapping, key),))
        if changes.get(key) is DELETED and value is not DELETED:  # stored again, a deleted key goes to the end
            if id(mapping) not in self._owner_of_dict:  # no single store does that
                whole = self.contents(mapping)
                _store(self.adopt(mapping) if whole is None else whole, key, value)
                return
            del changes[key]
            if dict.__contains__(mapping, key):
                self._moved.setdefault(id(mapping), {})[key] = None
        changes[key] = value

    def needs_guards(self, value: Any) -> bool:
        """Whether reading `value` reads the outside: it came from there and was not adopted."""
        return id(value) in self.origins and id(value) not in self._shadows

    def is_opaque(self, value: Any) -> bool:
        """An object from outside that C code must not look into unguarded."""
        if id(value) not in self.origins or id(value) in self._shadows or isinstance(value, (torch.Tensor, tuple)):
            return False
        return not isinstance(value, IDENTITY_TYPES) or isinstance(value, (type, functools.partial))

    def has_changes(self, container: Any) -> bool:
        key = id(container)
        return key in self._dict_changes or key in self._added or key in self._shadows or key in self._contents

    def add_unread(self, container: Any, values: list[Any]) -> bool:
        """Add to a foreign list or set, replayed at the end, without reading it; False if it is not such a one."""
        if base_in_c(container) not in (list, set) or not self.needs_guards(container) or id(container) in self._contents:
            return False
        self._added.setdefault(id(container), (container, []))[1].extend(values)
        return True

    def unread_additions(self, container: Any) -> int | None:
        """How many values were added to a foreign list that the trace neither read as a whole nor changed otherwise."""
        if base_in_c(container) is not list or id(container) not in self._added or id(container) in self._shadows:
            return None
        return None if id(container) in self._dict_changes else len(self._added[id(container)][1])

    # ---- whole containers
    def varies(self, value: Any) -> bool:
        """Whether it is a list from outside, neither changed nor read as a whole yet, whose length is no constant."""
        return self.length_varies(value) and not self.has_changes(value)

    def length_varies(self, value: Any) -> bool:
        return self._varies(value, self.inputs.policy.length_varies)

    def long_varies(self, value: Any) -> bool:
        """Whether it is a long list from outside that has had another length."""
        return self._varies(value, self.inputs.policy.long_varies)

    def _varies(self, value: Any, asked: Callable[[Source, int], bool]) -> bool:
        return type(value) is list and self.needs_guards(value) and bool(asked(self.place_of(value), len(value)))

    def adopt(self, value: Any, looped: bool = False) -> Any:
        """The trace's own copy of a foreign container (itself, if it is not foreign or not a container). `looped`: a
        loop of the program takes its items, of which each would be a call of its own behind a break.
        """
        if id(value) in self._shadows:
            return self._shadows[id(value)][1]
        if id(value) not in self.origins or type(value) not in MUTABLE_CONTAINERS:
            return value
        if self.length_varies(value) or not looped and self.long_varies(value):
            source = self.place_of(value)
            raise GraphBreak("varying-length", f"all of `{source.describe()}`, whose length varies, is used at once")
        shadow, before = self._copied(value)
        self._shadows[id(value)] = (value, shadow, before)
        # `shadow` must not be taken for a foreign container that still needs adopting.
        self.stand_for(shadow, value, shadow)
        return shadow

    def _copied(self, value: Any) -> tuple[Any, Any]:
        """The trace's own copy of a container, and what it held before the trace changed it."""
        if len(value) > _ADOPT_LIMIT:
            raise GraphBreak("unknown-object", f"a {type(value).__name__} of {len(value)} entries is used as a whole")
        check_let_go(dict.values(value) if isinstance(value, dict) else value)
        shadow = copy_in(self, value, self.place_of(value))
        # Not before: where the copy breaks, they are still to be replayed.
        added = self._added.pop(id(value), (value, []))[1]
        stored = bool(self._dict_changes.pop(id(value), (value, {}))[1] or added)
        if added:
            shadow.update(added) if type(shadow) is set else shadow.extend(added)
        self.set_origin(shadow, self.origins[id(value)][1])
        # Stores that happened before are part of the copy: it differs from the original from the start.
        return shadow, _CHANGED if stored else frozen(shadow)

    def contents(self, value: Any) -> Any:
        """What a foreign container of a class of the program's holds, as one of the class in C that it derives from: the
        trace changes this one, and the object is given the same contents at the end. None of anything else.
        """
        if id(value) in self._contents:
            return self._contents[id(value)][1]
        base = base_in_c(value)
        if not self.needs_guards(value) or base in (None, type(value)):
            return None
        source = self.origins[id(value)][1]
        refuse_own_reads(self, value)
        if base is list and self.inputs.policy.length_varies(source, len(value)):
            raise GraphBreak("varying-length", f"all of `{source.describe()}`, whose length varies, is used at once")
        shadow, before = self._copied(value)
        self._contents[id(value)] = (value, shadow)
        self._shadows[id(shadow)] = (value, shadow, before)
        return shadow

    def changed_contents(self, value: Any) -> Any:
        """The same, where the trace has read all of it, or has changed it."""
        return self.contents(value) if self.has_changes(value) else None

    def changes_of(self, mapping: dict[Any, Any]) -> dict[Any, Any]:
        """The stores into a foreign dict, which its copy has, too."""
        if self._moved.get(id(mapping)):
            raise GraphBreak("unknown-object", "all of a dict of which an entry was deleted and stored again is used")
        return self._dict_changes.get(id(mapping), (mapping, {}))[1]

    # ---- the end
    def check_states(self) -> None:
        """What the trace found and stores anew with symbols was no constant; otherwise the capture starts again."""
        news = False
        for mapping, changes in self._dict_changes.values():
            for key, left in changes.items():
                if type(key) is str:
                    source = self.item_source(mapping, key)
                    news |= self.inputs.learns_from(source, self._memo.get(source), left)
        if news:
            raise StartAgain

    def written(self) -> list[Any]:
        written = [obj for obj, _ in self._dict_changes.values()] + [cell for cell, _ in self._cell_changes.values()]
        written += [self._owner_of_dict.get(id(obj), (obj,))[0] for obj in written]
        written += [slot.obj for slot in self._slot_changes.values()] + [obj for obj, _ in self._added.values()]
        written += [original for original, _, before in self._shadows.values() if before is not None]
        return written

    def changes(self) -> list[tuple[Any, ...]]:
        """What the trace did to the world so far, in a form to compare with later."""
        found: list[tuple[Any, ...]] = [(len(self.effects_in_order),)]
        found += [(id(cell), id(value)) for cell, value in self._cell_changes.values()]
        found += [(id(slot.obj), slot.name, id(slot.value)) for slot in self._slot_changes.values()]
        for mapping, changes in self._dict_changes.values():
            found += [(id(mapping), id(key), id(value)) for key, value in changes.items()]
        found += [(id(container), *map(id, values)) for container, values in self._added.values()]
        for original, shadow, before in self._shadows.values():
            if before is not None and frozen(shadow) != before:
                found.append((id(original), frozen(shadow)))
        return found

    def effects(self) -> list[Effect]:
        """What the trace did to the world, to be replayed."""
        out: list[Effect] = list(self.effects_in_order)
        for cell, value in self._cell_changes.values():
            out.append(SetAttribute(cell, "cell_contents", value, "cell"))
        out.extend(self._slot_changes.values())
        for mapping, changes in self._dict_changes.values():
            out.extend(SetItem(mapping, key, DELETED) for key in self._moved.get(id(mapping), ()))
            out.extend(SetItem(mapping, key, value) for key, value in changes.items())
        out.extend(Extend(container, tuple(values)) for container, values in self._added.values())
        for original, shadow, before in self._shadows.values():
            if before is not None and frozen(shadow) != before:
                out.append(ReplaceContents(original, unowned_copy(shadow)))
        return out


_REAL_KEYS: ByKind[Callable[[World, Any], Any]] = ByKind(
    World._fixed_object,
    {
        str: lambda world, key: key,
        tuple: World._fixed_parts,
        FakeTensor: World._real_tensor,
        TracedId: World._real_id,
        **dict.fromkeys(SYMBOLIC_TYPES, lambda world, key: concrete(key)),
    },
)


def _store(mapping: dict[Any, Any], key: Any, value: Any) -> None:
    """Into the trace's own dict, which is of a class in C."""
    if value is DELETED:
        mapping.pop(key, None)
    else:
        mapping[key] = value


def _raw_dict(obj: Any) -> dict[str, Any] | None:
    try:
        found = object.__getattribute__(obj, "__dict__")
    except (AttributeError, TypeError):
        return None
    return found if type(found) is dict else None
