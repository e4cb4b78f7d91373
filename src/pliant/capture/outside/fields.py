"""What a trace reads and stores in cells, slots and classes from outside.

In:     cells of functions, attributes that lie outside an object's `__dict__`, names that are looked up on classes.
Out:    values under guards; stores, which are kept beside the objects until the entry replays them.
Holds:  a class that can change is guarded name by name.
"""

from __future__ import annotations

import gc
import types
from collections.abc import Callable
from typing import Any

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.iterators.endings import check_let_go
from pliant.capture.outside import made_at_run_time
from pliant.capture.outside.origins import Origins
from pliant.capture.outside.whole_containers import base_in_c
from pliant.capture.trace import DELETED, SetAttribute
from pliant.capture.value_kinds import is_fixed_number, is_function
from pliant.guards.kinds import MISSING, Kind, NumberOf
from pliant.guards.parts import FieldSource
from pliant.guards.sources import AttributeSource, CellSource, Source, held
from pliant.guards.standard import can_change, standard_class


class Fields(Origins):
    """Cells, slots and classes of one capture; `World` is the whole."""

    refuse_own_keys: Callable[[tuple[Any, ...]], None]  # breaks where comparing one of the keys runs code of the program

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._slot_changes: dict[tuple[int, str], SetAttribute] = {}
        self.changed_reads = 0  # how often something was asked into which the trace had stored
        self._stored_for_a_while: dict[int, Any] = {}  # by id: objects with an attribute that was stored, and is as before
        self._lookups: dict[tuple[type, str], tuple[Any]] = {}
        self._compared: dict[int, Any] = {}  # by id: containers whose keys were checked
        self.class_sources: dict[type, Source] = {}  # of classes that are known by what they hold

    def is_told_apart(self, value: Any) -> bool:
        if id(value) in self._told_apart or id(value) in self._differentiated:
            return True
        return self.has_changed_slots(value)

    def has_changed_slots(self, value: Any) -> bool:
        return any(id(value) == key for key, _ in self._slot_changes)

    # ---- cells and slots
    def bring_cell(self, cell: types.CellType, source: Source) -> types.CellType:
        """A foreign function's cell, its origin known. Functions that are held keep the cells they share."""
        if source not in self._memo:
            known = self.source_of(cell)
            if known is None:
                self.twins.note_own(source)
                self.set_origin(cell, source)
            elif known != source and not (_is_of_held_function(known) and _is_of_held_function(source)):
                cell = self.second_way(cell, source, known)
            self._memo[source] = cell
        found: types.CellType = self._memo[source]
        return found

    def cell_get(self, cell: types.CellType) -> Any:
        if (stored := self.slot_get(cell, "cell_contents")) is not MISSING:
            return stored
        source = self.source_of(cell)
        try:
            raw = cell.cell_contents
        except ValueError:
            if source is not None:
                self.guard(source, Kind.UNSET, types.CellType.cell_contents)
            return MISSING
        return raw if source is None else self.bring(raw, CellSource(source))

    def cell_set(self, cell: types.CellType, value: Any) -> None:
        """Store into a cell; MISSING empties it. Cells made by the trace are changed at once."""
        if id(cell) in self.origins:
            if self.slot_get(cell, "cell_contents") is MISSING:
                check_let_go(gc.get_referents(cell))
            self.slot_set(cell, "cell_contents", DELETED if value is MISSING else value, "cell")
        elif value is MISSING:
            del cell.cell_contents
        else:
            cell.cell_contents = value

    def slot_get(self, obj: Any, name: str) -> Any:
        found = self._slot_changes.get((id(obj), name))
        if found is None:
            return MISSING
        self.changed_reads += 1
        return found.value

    def slot_set(self, obj: Any, name: str, value: Any, via: str) -> None:
        """Store, or DELETED; MISSING forgets what was stored."""
        if value is MISSING:
            if self._slot_changes.pop((id(obj), name), None) is not None:
                self._stored_for_a_while[id(obj)] = obj
            return
        self.inputs.one_if_shared(obj)
        self._slot_changes[id(obj), name] = SetAttribute(obj, name, value, via)
        if via == "type":
            self.forget_lookups()

    def has_stored(self, name: str) -> bool:
        """Whether something was stored under the name, in any object."""
        return any(stored == name for _, stored in self._slot_changes)

    # ---- keys
    def check_keys(self, container: Any) -> None:
        """Before a key is looked for in a dict or a set from outside, which compares it with keys of the same hash."""
        if id(container) not in self._compared:
            self._compared[id(container)] = container
            base: Any = base_in_c(container)
            self.refuse_own_keys(tuple(base.__iter__(container)))

    def field_source(self, obj: Any, name: str) -> Source:
        """Where a field that C code keeps of a foreign object is read."""
        kind = FieldSource if is_function(type(obj).__getattribute__) else AttributeSource
        return kind(self.place_of(obj), name)

    # ---- classes
    def type_lookup(self, cls: type, name: str) -> Any:
        """First hit of `name` along the MRO (raw, unbound), or MISSING, under a guard if the class can change."""
        if cls in self.class_sources:
            if not self._slot_changes:
                return made_at_run_time.lookup(self, cls, name)
            self.fix_class(cls)
        key = cls, name
        if key in self._lookups:  # asked several times for each attribute that a program reads
            return self._lookups[key][0]
        owner: Any = next((base for base in cls.__mro__ if name in base.__dict__), None)
        value: Any = MISSING if owner is None else owner.__dict__[name]
        stored = self._stored_in_class(cls, name)
        if not self.is_made(cls):  # stores into those are done at once
            self._lookups[cls, name] = (value if stored is None else stored,)
        if not self.is_made(cls) and any(map(_may_be_another, cls.__mro__)):
            known = NumberOf(type(value)) if is_fixed_number(value) else value  # read under a guard of its own
            self.guard(held(cls, cls.__qualname__), Kind.TYPE_LOOKUP, (name, known))
        if stored is not None:
            return stored
        known = owner is not None and not self.is_made(owner)
        if known and isinstance(value, (types.FunctionType, property, classmethod, staticmethod)):
            self.hold(value, f"{owner.__qualname__}.{name}")
        return value

    def python_function(self, cls: type, name: str) -> types.FunctionType | None:
        """What `type_lookup` finds, if it is written in Python."""
        found = self.type_lookup(cls, name)
        if is_function(found):
            return found
        if isinstance(found, _METHODS_IN_C) and found.__name__ != name and found is not _standard(cls, name):
            raise GraphBreak("unknown-object", f"the {name} of {cls.__qualname__} is another method in C: {found.__name__}")
        return None

    def fix_class(self, cls: type) -> None:
        """The class itself matters, not only what it holds."""
        place = self.class_sources.pop(cls, None)
        if place is not None:
            self.guard(place, Kind.IDENTITY, cls)

    def class_source(self, cls: type) -> Source:
        return self.class_sources.get(cls) or held(cls, cls.__qualname__)

    def _stored_in_class(self, cls: type, name: str) -> Any:
        """What is first along the MRO where the trace stored or deleted the name; None if it did so behind that, or nowhere."""
        is_changed = False
        for base in cls.__mro__ if self._slot_changes else ():
            stored = self.slot_get(base, name)
            is_changed = is_changed or stored is not MISSING
            if stored is DELETED or stored is MISSING and name not in base.__dict__:
                continue
            if not is_changed:
                return None
            return self.hold(base.__dict__[name], f"{base.__qualname__}.{name}") if stored is MISSING else stored
        return MISSING if is_changed else None

    def forget_lookups(self) -> None:
        """A class was changed."""
        self._lookups.clear()


_METHODS_IN_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)


def _standard(cls: type, name: str) -> Any:
    """What a class of PyTorch or the standard library has under the name: what C code does with its objects."""
    return next((base.__dict__[name] for base in cls.__mro__ if name in base.__dict__ and standard_class(base)), MISSING)


def _may_be_another(cls: type) -> bool:
    """Whether it can change. What stands for the program's objects while they are traced does not."""
    return can_change(cls) and not str(cls.__dict__.get("__module__")).startswith("pliant.capture.")


def _is_of_held_function(cell: Source) -> bool:
    return cell.base is not None and cell.base.base is not None and cell.base.base.is_held
