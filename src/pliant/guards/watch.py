"""Watching memory in place of re-checking: "nothing that these guards read has changed" in about a microsecond.

In:     guards and sources that start at held objects (modules, functions, globals), and the values they lead to.
Out:    `Watch.pin`, `Watch.hold`: facts, gathered in `Watch.watched` for `native_watch.native_check`.
Holds:  if all facts hold, every source leads to the object it led to, and every guard that held still holds. Facts may
        fail without need (then the guards themselves decide), never the other way round.

What a change shows in: a dict in its version and then in the keys that matter, an instance's class and dict in the
object's header, a list in its length, its array and the array's entries, members of C types (`__code__`, cell
contents...) in the word that refers to the value, a class in its dictionary and its `__mro__`, a tensor as
`tensor_words` says.
"""

from __future__ import annotations

import collections
import functools
import gc
import types
from typing import Any

import torch

from pliant.cpython import LIST_ITEMS, LIST_SIZE, TYPE, WORD, stored_item, word, words
from pliant.guards import facts
from pliant.guards.codegen import related
from pliant.guards.kinds import MISSING, Guard, Kind
from pliant.guards.native_watch import (
    ABSENT,
    PRESENT,
    CannotWatch,
    DictFacts,
    TensorMemory,
    Watched,
    take_out_values,
)
from pliant.guards.parts import StoragesSource, shared
from pliant.guards.sources import (
    AttributeSource,
    CellSource,
    DictAttributeSource,
    HeldSource,
    ItemSource,
    ModuleMemberSource,
    Source,
    TypeSource,
)
from pliant.guards.steps import lookup
from pliant.guards.tensor_words import description, memory_word
from pliant.torch_adapter import BYTES_OF_TENSOR

# Offsets in CPython's objects; `native_watch` compares them with what the objects say of themselves.
_MANAGED_DICT = -24
_TYPE_SIZE: int = type.__dict__["__basicsize__"].__get__(type)
_TPFLAGS_MANAGED_DICT, _TPFLAGS_HEAPTYPE = 1 << 4, 1 << 9

_IMMUTABLE = (
    int,
    float,
    complex,
    str,
    bytes,
    bool,
    type(None),
    range,
    type(...),
    type(NotImplemented),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)


# Attributes of C types that are one pointer of the object to the value itself.
_POINTERS: dict[type, tuple[str, ...]] = {
    types.FunctionType: (
        "__code__",
        "__defaults__",
        "__kwdefaults__",
        "__closure__",
        "__globals__",
        "__name__",
        "__qualname__",
    ),
    types.MethodType: ("__func__", "__self__"),
    types.CellType: ("cell_contents",),
    functools.partial: ("func", "args", "keywords"),
}


_OF_CLASSES = frozenset(("__name__", "__qualname__", "__mro__", "__bases__"))


class Watch:
    """Facts under which sources keep leading to the values found while they were pinned."""

    def __init__(self) -> None:
        self.watched = Watched()
        # by identity: hashing a source takes as long as its chain is deep
        self._by_id: dict[int, tuple[Source, Any]] = {}
        self._spaces: dict[int, tuple[Any, dict[str, Any]]] = {}  # namespaces, by the identity of their objects

    # ---- sources
    def pin(self, source: Source) -> Any:
        """The value of the source, with facts that it stays this object."""
        number = id(source)
        known = self._by_id.get(number)
        if known is None:
            known = self._by_id[number] = source, self._pin(source)
        return known[1]

    def _pin(self, source: Source) -> Any:
        match source:
            case HeldSource(held):
                return held.value
            case DictAttributeSource(parent, name):
                return self._item(self._instance_dict(self.pin(parent)), name)
            case ModuleMemberSource(parent, table, name):
                return self._item(self._item(self._instance_dict(self.pin(parent)), table), name)
            case TypeSource(parent):
                return self._class_of(self.pin(parent))
            case ItemSource(parent, key, _):
                return self._item(self.pin(parent), key)
            case CellSource(parent):
                return self._member(self.pin(parent), "cell_contents")
            case AttributeSource(parent, name):
                return self._member(self.pin(parent), name)
            case StoragesSource(sources=sources):
                tensors = [self.pin(s) for s in sources]
                for tensor in tensors:
                    self._memory(tensor)
                return facts.storages(tensors)
            case _ if (step := shared(source)) is not source:
                return self.pin(step)
            case _:
                raise CannotWatch

    def _class_of(self, obj: Any) -> type:
        # others cannot change their class
        if type(obj).__flags__ & _TPFLAGS_HEAPTYPE or isinstance(obj, types.ModuleType):
            self.watched.note(obj, id(obj) + TYPE, id(type(obj)))
        return type(obj)

    def _item(self, container: Any, key: Any) -> Any:
        if issubclass(type(container), dict):
            known = self.watched.of_dict(container)
            value = stored_item(container, key)
            _note_key(known, key, [value])
            return value
        if issubclass(type(container), list):
            self._list(container)
            items = word(id(container) + LIST_ITEMS)
            place = key if key >= 0 else list.__len__(container) + key
            value = list.__getitem__(container, key)
            self.watched.runs[items + WORD * place] = (id(value),)
            return value
        if isinstance(container, tuple):
            return tuple.__getitem__(container, key)
        raise CannotWatch

    def _key(self, mapping: Any, key: Any, wanted: int) -> None:
        if not isinstance(mapping, dict):
            raise CannotWatch
        _note_key(self.watched.of_dict(mapping), key, wanted)

    def _whole_dict(self, mapping: Any) -> None:
        if not isinstance(mapping, dict):
            raise CannotWatch
        self.watched.of_dict(mapping).whole = True

    def _list(self, items: list[Any]) -> None:
        address = id(items) + LIST_SIZE
        self.watched.note(items, address, list.__len__(items), word(id(items) + LIST_ITEMS))

    def _member(self, obj: Any, name: str) -> Any:
        """An attribute that is one word of a C object (all words that hold the value, where several do)."""
        if name == "__dict__":
            return self._instance_dict(obj)
        if name == "__class__":
            return self._class_of(obj)
        if issubclass(type(obj), type) and name in _OF_CLASSES:
            value = getattr(obj, name)
            if obj.__flags__ & _TPFLAGS_HEAPTYPE:
                self._member_of_type(obj, value)
            return value
        descriptor = lookup(type(obj), name)
        is_slot = (
            isinstance(descriptor, types.MemberDescriptorType) and descriptor.__objclass__.__flags__ & _TPFLAGS_HEAPTYPE
        )
        if not is_slot and name not in _POINTERS.get(type(obj), ()):
            raise CannotWatch
        value = descriptor.__get__(obj, type(obj))
        if value is None and not is_slot:
            raise CannotWatch  # kept as a null pointer, of which there may be many
        found = _places(obj, type(obj).__basicsize__, id(value))
        if not found:
            raise CannotWatch
        for address in found:
            self.watched.note(obj, address, id(value))
        return value

    def _instance_dict(self, obj: Any) -> dict[str, Any]:
        known = self._spaces.get(id(obj))
        if known is None:
            known = self._spaces[id(obj)] = obj, self._found_dict(obj)
        return known[1]

    def _found_dict(self, obj: Any) -> dict[str, Any]:
        space: dict[str, Any] = object.__getattribute__(obj, "__dict__")
        if issubclass(type(obj), type):
            raise CannotWatch
        managed = id(obj) + _MANAGED_DICT if type(obj).__flags__ & _TPFLAGS_MANAGED_DICT else None
        if managed is not None and word(managed) == id(space):
            found = [managed]
        else:
            found = _places(obj, type(obj).__basicsize__, id(space))
        if not found:
            raise CannotWatch
        take_out_values(obj, space)
        self.watched.note(obj, found[0], id(space))
        return space

    # ---- guards
    def hold(self, guard: Guard) -> None:
        """Facts under which a guard that holds now goes on to hold."""
        if guard.kind in (Kind.SAME_AS, Kind.DISTINCT, Kind.SEPARATE):
            self._relation(guard)
            return
        value = self.pin(guard.source)
        match guard.kind:
            case Kind.IDENTITY:
                pass
            case Kind.TYPE | Kind.NUMBER_TYPE:
                self._class_of(value)
            case Kind.EQUALS | Kind.RANGE:
                if not _immutable(value):
                    raise CannotWatch
            case Kind.LENGTH | Kind.EMPTY:
                self._contents(value)
            case Kind.ITEMS:
                self._items(value)
            case Kind.ALL_EMPTY:
                for name in guard.expected:
                    self._whole_dict(self._item(value, name))
            case Kind.KEYS:
                if isinstance(value, collections.OrderedDict):
                    raise CannotWatch  # its order is kept beside the dict
                self._whole_dict(value)
            case Kind.HAS_KEY | Kind.NO_KEY:
                self._key(value, guard.expected, PRESENT if guard.kind is Kind.HAS_KEY else ABSENT)
            case Kind.TYPE_LOOKUP:
                self._lookup(value, guard.expected[0])
            case Kind.TENSOR:
                self._tensor(value, guard)
            case _:
                raise CannotWatch

    def _relation(self, guard: Guard) -> None:
        for source in related(guard):
            value = self.pin(source)
            if guard.kind is Kind.SEPARATE:
                self._memory(value)

    def _contents(self, value: Any) -> None:
        if isinstance(value, list):
            self._list(value)
        elif not isinstance(value, (tuple, str)):
            self._whole_dict(value)

    def _items(self, value: Any) -> None:
        """All items of a list stay these objects; those of a tuple do."""
        if type(value) is list:
            self._list(value)
            if value:
                self.watched.runs[word(id(value) + LIST_ITEMS)] = tuple(map(id, value))
                self.watched.kept.append(tuple(value))
        elif type(value) is not tuple:
            raise CannotWatch

    def _lookup(self, cls: Any, name: str) -> None:
        if not isinstance(cls, type):
            raise CannotWatch
        if cls.__flags__ & _TPFLAGS_HEAPTYPE:
            self._member_of_type(cls, cls.__mro__)
        for base in cls.__mro__:
            heap = base.__flags__ & _TPFLAGS_HEAPTYPE
            known = self.watched.of_dict(gc.get_referents(base.__dict__)[0]) if heap else None
            found = base.__dict__.get(name, MISSING)
            if known is not None:
                _note_key(known, name, ABSENT if found is MISSING else [found])
            if found is not MISSING:
                return

    def _member_of_type(self, cls: type, value: Any) -> None:
        found = _places(cls, _TYPE_SIZE, id(value))
        if not found:
            raise CannotWatch
        for address in found:
            self.watched.note(cls, address, id(value))

    def _tensor(self, tensor: Any, guard: Guard) -> None:
        if (
            guard.expected.is_leaf is not None
            or guard.expected.dispatch_keys is not None
            or not isinstance(tensor, torch.Tensor)
        ):
            raise CannotWatch
        known = description()
        if known is None or not known.describes(tensor):
            raise CannotWatch
        self.watched.tensors[id(tensor)] = TensorMemory.of(known, tensor)

    def _memory(self, tensor: torch.Tensor) -> None:
        """The tensor goes on to refer to the same memory: as the same C++ object, of which this word stays."""
        found = memory_word(tensor)
        if found is None:
            raise CannotWatch
        places = _places(tensor, BYTES_OF_TENSOR, tensor._cdata)
        if not places:
            raise CannotWatch
        self.watched.note(tensor, places[0], tensor._cdata)
        self.watched.runs[found[0]] = found[1:]


def _places(obj: Any, size: int, wanted: int) -> list[int]:
    """Where in an object of this many bytes, behind its type, a word is."""
    start = id(obj) + 16
    return [start + WORD * i for i, found in enumerate(words(start, (size - 16) // WORD)) if found == wanted]


def _note_key(facts: DictFacts, key: Any, wanted: Any) -> None:
    """Demand an object (in a list), presence or absence of a key."""
    if type(key) is not str:
        facts.whole = True  # looking up other keys may run code
    if isinstance(wanted, list) or facts.items.get(key, ABSENT) == ABSENT:
        facts.items[key] = wanted


def _immutable(value: Any) -> bool:
    if type(value) in (tuple, frozenset, torch.Size):
        return all(map(_immutable, value))
    return type(value) in _IMMUTABLE
