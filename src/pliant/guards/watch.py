"""Watching memory in place of re-checking: "nothing that these guards read has changed" in about a microsecond.

In:     guards and sources that start at held objects (modules, functions, globals), and the values they lead to.
Out:    `Watch.pin`, `Watch.hold`: facts (address, words); `native_check(watch, result)`: a builtin function that
        returns `result`
        while all facts hold, else None.
Holds:  a fact is about memory of an object that the watch keeps alive, or of one that earlier facts prove alive, and
        facts are
        compared in order, so no dead memory is read. If all facts hold, every source leads to the object it led to,
        and every guard
        that held still holds. Facts may fail without need (then the guards themselves decide), never the other way
        round.
        CPython 3.11 to 3.13 with the global lock; elsewhere, or without a C compiler, nothing is watched.

What a change shows in: a dict in its version tag, an instance's class and dict in the object's header, a list in its
length, its
array and the array's entries, members of C types (`__code__`, cell contents...) in the word that refers to the value,
a class in
its dictionary's version and its `__mro__`, a tensor as `tensor_words` says.
"""

from __future__ import annotations

import collections
import ctypes
import functools
import gc
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from pliant.guards.kinds import MISSING, Guard, Kind
from pliant.guards.parts import shared
from pliant.guards.sources import AttributeSource, CellSource, HeldSource, ItemSource, Source, TypeSource
from pliant.guards.tensor_words import words_of

# Offsets in CPython's objects (64 bits, with the global lock). `supported` compares them with what the objects say of
# themselves.
_TYPE, _DICT_VERSION, _LIST_SIZE, _LIST_ITEMS = 8, 24, 16, 24
_MANAGED_DICT = -24
_TYPE_SIZE: int = type.__dict__["__basicsize__"].__get__(type) - 7
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
    types.FunctionType: ("__code__", "__defaults__", "__kwdefaults__", "__closure__", "__globals__"),
    types.MethodType: ("__func__", "__self__"),
    types.CellType: ("cell_contents",),
    functools.partial: ("func", "args", "keywords"),
}


class CannotWatch(Exception):
    """No fact in memory stands for this guard or source: it is checked at each call."""


class Watch:
    """Facts under which sources keep leading to the values found while they were pinned."""

    def __init__(self) -> None:
        self.facts: dict[int, tuple[int, ...]] = {}  # address -> words from there on, in order of comparison
        self.kept: list[Any] = []
        # by identity: hashing a source takes as long as its chain is deep
        self._by_id: dict[int, tuple[Source, Any]] = {}

    # ---- sources
    def pin(self, source: Source) -> Any:
        """The value of the source, with facts that it stays this object."""
        known = self._by_id.get(id(source))
        if known is not None:
            return known[1]
        step = shared(source)
        value = self._pin(step) if step is source else self.pin(step)
        self._by_id[id(source)] = (source, value)
        return value

    def _pin(self, source: Source) -> Any:
        match source:
            case HeldSource(held):
                return held.value
            case TypeSource(parent):
                return self._class_of(self.pin(parent))
            case ItemSource(parent, key, _):
                return self._item(self.pin(parent), key)
            case CellSource(parent):
                return self._member(self.pin(parent), "cell_contents")
            case AttributeSource(parent, name):
                return self._member(self.pin(parent), name)
            case _:
                raise CannotWatch

    def _note(self, owner: Any, address: int, *words: int) -> None:
        if address not in self.facts:
            self.facts[address] = words
            self.kept.append(owner)

    def _class_of(self, obj: Any) -> type:
        # others cannot change their class
        if type(obj).__flags__ & _TPFLAGS_HEAPTYPE or isinstance(obj, types.ModuleType):
            self._note(obj, id(obj) + _TYPE, id(type(obj)))
        return type(obj)

    def _item(self, container: Any, key: Any) -> Any:
        if isinstance(container, dict):
            self._dict(container)
            return dict.__getitem__(container, key)
        if isinstance(container, list):
            self._list(container)
            items = _word(id(container) + _LIST_ITEMS)
            place = key if key >= 0 else list.__len__(container) + key
            value = list.__getitem__(container, key)
            self._note(container, items + 8 * place, id(value))
            return value
        if isinstance(container, tuple):
            return tuple.__getitem__(container, key)
        raise CannotWatch

    def _dict(self, mapping: Any) -> None:
        if not isinstance(mapping, dict):
            raise CannotWatch
        address = id(mapping) + _DICT_VERSION
        self._note(mapping, address, _word(address))

    def _list(self, items: list[Any]) -> None:
        address = id(items) + _LIST_SIZE
        self._note(items, address, list.__len__(items), _word(id(items) + _LIST_ITEMS))

    def _member(self, obj: Any, name: str) -> Any:
        """An attribute that is one word of a C object (all words that hold the value, where several do)."""
        if name == "__dict__":
            return self._instance_dict(obj)
        if name == "__class__":
            return self._class_of(obj)
        descriptor = _static_attribute(type(obj), name)
        is_slot = (
            isinstance(descriptor, types.MemberDescriptorType) and descriptor.__objclass__.__flags__ & _TPFLAGS_HEAPTYPE
        )
        if not is_slot and name not in _POINTERS.get(type(obj), ()):
            raise CannotWatch
        value = descriptor.__get__(obj, type(obj))
        if value is None and not is_slot:
            raise CannotWatch  # kept as a null pointer, of which there may be many
        found = [a for a in range(id(obj) + 16, id(obj) + type(obj).__basicsize__ - 7, 8) if _word(a) == id(value)]
        if not found:
            raise CannotWatch
        for address in found:
            self._note(obj, address, id(value))
        return value

    def _instance_dict(self, obj: Any) -> dict[str, Any]:
        space: dict[str, Any] = object.__getattribute__(obj, "__dict__")
        if isinstance(obj, type):
            raise CannotWatch
        places = [id(obj) + _MANAGED_DICT] if type(obj).__flags__ & _TPFLAGS_MANAGED_DICT else []
        places += range(id(obj) + 16, id(obj) + type(obj).__basicsize__ - 7, 8)
        for address in places:
            if _word(address) == id(space):
                self._note(obj, address, id(space))
                return space
        raise CannotWatch

    # ---- guards
    def hold(self, guard: Guard) -> None:
        """Facts under which a guard that holds now goes on to hold."""
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
            case Kind.KEYS | Kind.KEY_SET | Kind.HAS_KEY | Kind.NO_KEY:
                if guard.kind is Kind.KEYS and isinstance(value, collections.OrderedDict):
                    raise CannotWatch  # its order is kept beside the dict
                self._dict(value)
            case Kind.HAS_ATTRIBUTE | Kind.NO_ATTRIBUTE:
                self._dict(self._instance_dict(value))
            case Kind.TYPE_LOOKUP:
                self._lookup(value, guard.expected[0])
            case Kind.TENSOR:
                self._tensor(value, guard)
            case _:
                raise CannotWatch

    def _contents(self, value: Any) -> None:
        if isinstance(value, list):
            self._list(value)
        elif not isinstance(value, (tuple, str)):
            self._dict(value)

    def _lookup(self, cls: Any, name: str) -> None:
        if not isinstance(cls, type):
            raise CannotWatch
        if cls.__flags__ & _TPFLAGS_HEAPTYPE:
            self._member_of_type(cls, cls.__mro__)
        for base in cls.__mro__:
            if base.__flags__ & _TPFLAGS_HEAPTYPE:
                self._dict(gc.get_referents(base.__dict__)[0])
            if name in base.__dict__:
                return

    def _member_of_type(self, cls: type, value: Any) -> None:
        found = [a for a in range(id(cls) + 16, id(cls) + _TYPE_SIZE, 8) if _word(a) == id(value)]
        if not found:
            raise CannotWatch
        for address in found:
            self._note(cls, address, id(value))

    def _tensor(self, tensor: Any, guard: Guard) -> None:
        if (
            guard.expected.is_leaf is not None
            or guard.expected.dispatch_keys is not None
            or not isinstance(tensor, torch.Tensor)
        ):
            raise CannotWatch
        self._class_of(tensor)
        words = words_of(tensor)
        if words is None:
            raise CannotWatch
        self._member_of_tensor(tensor)
        for address, run in words:
            self._note(tensor, address, *run)

    def _member_of_tensor(self, tensor: torch.Tensor) -> None:
        """The Python object goes on to stand for the same C++ object."""
        where = range(id(tensor) + 16, id(tensor) + torch.Tensor.__basicsize__ - 7, 8)
        found = [a for a in where if _word(a) == tensor._cdata]
        if not found:
            raise CannotWatch
        self._note(tensor, found[0], tensor._cdata)


def _word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def _static_attribute(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def _immutable(value: Any) -> bool:
    if type(value) in (tuple, frozenset, torch.Size):
        return all(map(_immutable, value))
    return type(value) in _IMMUTABLE


# ---- the native part

C_TEXT = """\
#include <stdint.h>
/* self: a tuple (table, unchanged, kept). table: bytes of the objects to return (unchanged, changed), the number
   of words, and runs (address, count, words...). */
void *pliant_watch(void *self, void *unused)
{
    const char *bytes = *(const char **)((char *)self + 24);
    const uint64_t *t = (const uint64_t *)(bytes + 32), *end = t + 3 + t[2];
    uint32_t *result = (uint32_t *)t[0];
    for (const uint64_t *p = t + 3; p < end; ) {
        const uint64_t *now = (const uint64_t *)p[0];
        uint64_t n = p[1], differ = 0;
        for (uint64_t i = 0; i < n; i++)
            differ |= now[i] ^ p[2 + i];
        if (differ) {
            result = (uint32_t *)t[1];
            break;
        }
        p += 2 + n;
    }
    if ((int32_t)*result >= 0)  /* negative: immortal. No count comes near 2**31. */
        ++*result;
    return result;
}
"""


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_METH_NOARGS = 4
_build: Callable[[str], int] | None = None  # C text -> address of `pliant_watch`
_definition: _MethodDef | None = None  # shared by all checks; functions refer to it by address


def use_builder(build: Callable[[str], int]) -> None:
    """Who compiles the native part (the C toolchain lies in a later layer)."""
    global _build
    _build = build


@functools.cache
def available() -> bool:
    """Whether memory can be watched here; compiles the native part."""
    global _definition
    address = _build(C_TEXT) if _build is not None and supported() else 0
    if address:
        _definition = _MethodDef(b"unchanged", address, _METH_NOARGS, None)
    return bool(address)


def native_check(watch: Watch, result: Any) -> Callable[[], Any]:
    """A builtin function: `result` while the facts hold, else None. It keeps alive what it refers to."""
    assert available() and _definition is not None
    words: list[int] = []
    for place, values in watch.facts.items():
        words += [place, len(values), *values]
    table = [id(result), id(None), len(words), *words]
    data = bytes((ctypes.c_uint64 * len(table))(*table))
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    check: Callable[[], Any] = make(ctypes.addressof(_definition), (data, result, watch.kept), None)
    return check


def supported() -> bool:
    """Whether this interpreter's objects are laid out, and their versions kept, as this module says."""
    if sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return False
    if ctypes.sizeof(ctypes.c_void_p) != 8 or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    if ctypes.string_at(id(b"words") + 32, 5) != b"words" or not _tuples_work():
        return False
    return _dict_versions_work() and _instance_stores_work() and _lists_work()


def _dict_versions_work() -> bool:
    """Every kind of change moves the version; reading does not."""
    d = {"a": 1, "b": 2}
    changes = (
        lambda: d.get("a"),
        lambda: d.update(a=3),
        lambda: d.pop("b"),
        lambda: d.update(c=1),
        lambda: d.setdefault("e", 2),
        lambda: d.popitem(),
        lambda: d.clear(),
    )
    seen = []
    for change in changes:
        before = _word(id(d) + _DICT_VERSION)
        change()
        seen.append(_word(id(d) + _DICT_VERSION) != before)
    return seen == [False] + [True] * 6


def _instance_stores_work() -> bool:
    """Stores by bytecode, adapted to the class or not, show in the version of the instance's dict; so do stores to a
    class."""

    class Probe:
        def __init__(self) -> None:
            self.a = self.b = 0

    def store(obj: Probe, value: int) -> None:
        obj.a = value

    plain, watched = Probe(), Probe()
    for i in range(100):  # let the interpreter adapt the store to instances without a dictionary first
        store(plain, i)
    for obj in (watched, plain):
        space, spaces = obj.__dict__, gc.get_referents(Probe.__dict__)[0]
        for i in range(100):
            before = _word(id(space) + _DICT_VERSION), _word(id(spaces) + _DICT_VERSION)
            store(obj, 1000 + i)
            Probe.c = i  # type: ignore[attr-defined]
            after = _word(id(space) + _DICT_VERSION), _word(id(spaces) + _DICT_VERSION)
            if before[0] == after[0] or before[1] == after[1] or space["a"] != 1000 + i:
                return False
    return True


def _tuples_work() -> bool:
    pair = (object(), object())
    return _word(id(pair) + 24) == id(pair[0])


def _lists_work() -> bool:
    items = [object(), object()]
    array = _word(id(items) + _LIST_ITEMS)
    return _word(id(items) + _LIST_SIZE) == 2 and [_word(array), _word(array + 8)] == [id(items[0]), id(items[1])]
