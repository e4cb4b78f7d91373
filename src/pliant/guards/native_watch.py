"""The native part of watching: one builtin function that compares memory with what it was.

In:     runs of words with the values they had, and dicts with the keys that matter of them (`Watched`).
Out:    `native_check(watched, result)`: a builtin function that returns `result` while all is as it was, else None;
        `version_place(d)`: the address of a word that grows whenever the dict changes, beyond those of all others.
Holds:  all objects are kept alive by the check, so no dead memory is read. A dict whose version moved is compared by
        the keys that matter, so stores to others cost tens of nanoseconds and no check of guards.
        CPython 3.11 to 3.13 with the global lock; elsewhere, or without a C compiler, nothing is watched
        (`docs/decisions/0006-watching-state.md`).
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any

import torch

from pliant import background
from pliant.cpython import (
    BYTES,
    LIST_ITEMS,
    LIST_SIZE,
    METH_NOARGS,
    METH_O,
    TUPLE_ITEMS,
    WORD,
    MethodDef,
    address_of,
    builtin,
    method,
    word,
)
from pliant.guards import native_builder
from pliant.guards.tensor_words import Description, Words, description
from pliant.records import dataclass

_DICT_VERSION, _DICT_VALUES = 24, 40  # offsets in CPython's dicts (64 bits, with the global lock)

ABSENT, PRESENT = 0, 1  # what a key is to be, where it is not one object


class CannotWatch(Exception):
    """No fact in memory stands for this guard or source: it is checked at each call."""


@dataclass(slots=True)
class DictFacts:
    """What matters of a dict: the object or presence of some keys, or (`whole`) everything."""

    mapping: Any
    place: int
    version: int
    whole: bool = False
    items: dict[Any, Any] = field(default_factory=dict)  # key -> ABSENT, PRESENT or [the object]

    def hold_still(self) -> bool:
        """Whether what matters of it is what it was. That other keys came, as modules do while a program is compiled, is
        nothing from now on."""
        version = word(self.place)  # before the keys are looked at
        if version != self.version:
            found = [(dict.get(self.mapping, key, self), wanted) for key, wanted in self.items.items()]
            same = [one is wanted[0] if isinstance(wanted, list) else (one is not self) == wanted for one, wanted in found]
            if self.whole or not all(same):
                return False
            self.version = version
        return True

    def details(self) -> list[int]:
        """The words by which C compares the keys."""
        if self.whole:
            return [id(self.mapping), (1 << 64) - 1]
        words = [id(self.mapping), len(self.items)]
        for key, wanted in self.items.items():
            words += [id(key), id(wanted[0]) if type(wanted) is list else wanted]
        return words


@dataclass(frozen=True, slots=True)
class TensorMemory:
    """What a tensor's memory says: where its C++ object and its autograd record are; and, equal in many tensors, its
    class, the word of that record, and its form."""

    tensor: torch.Tensor
    places: tuple[int, int]
    kind: tuple[int, int]
    form: Words

    @staticmethod
    def of(known: Description, tensor: torch.Tensor) -> TensorMemory:
        record, requires_grad = known.record_of(tensor)
        return TensorMemory(tensor, (tensor._cdata, record), (id(type(tensor)), requires_grad), known.of(tensor))


class Forms:
    """The distinct forms of tensors, as the last part of a table."""

    def __init__(self) -> None:
        self._places: dict[Words, int] = {}

    def place(self, form: Words) -> int:
        """Where it lies, in words behind the mask's first."""
        return self._places.setdefault(form, (1 + len(self._places)) * len(form))

    def table(self) -> list[int]:
        known = description()
        if known is None:
            return []
        forms = [one for form in self._places for one in form]
        places = [known.offset, known.autograd, known.requires_grad, known.required, known.history]
        return [*places, len(known.mask), *known.mask, *forms]

    def groups(self, tensors: Iterable[TensorMemory]) -> list[int]:
        """Those of one kind and form after each other: class, word of the record, form, count; then for each where it,
        its C++ object and its record are."""
        groups: dict[tuple[int, ...], list[int]] = {}
        for one in tensors:
            rows = groups.setdefault((*one.kind, self.place(one.form)), [])
            rows += [id(one.tensor), *one.places]
        return [value for kind, rows in groups.items() for value in (*kind, len(rows), *rows)]


@dataclass(slots=True)
class Watched:
    """Facts in memory, and what keeps the memory alive.

    words: of objects that are kept. runs: behind addresses that are among the words.
    """

    words: dict[int, int] = field(default_factory=dict)  # address -> word
    runs: dict[int, tuple[int, ...]] = field(default_factory=dict)  # address -> words from there on
    tensors: dict[int, TensorMemory] = field(default_factory=dict)  # by identity
    dicts: dict[int, DictFacts] = field(default_factory=dict)  # by the identity of the dict
    kept: list[Any] = field(default_factory=list)

    def note(self, owner: Any, address: int, *words: int) -> None:
        """Words of an object's own memory."""
        self.words |= {address + WORD * i: one for i, one in enumerate(words)}
        self.kept.append(owner)

    def of_dict(self, mapping: Any) -> DictFacts:
        """The facts of a dict; its version is read before anything else of it."""
        found = self.dicts.get(id(mapping))
        if found is None:
            if not available() or has_inline_values(mapping):
                raise CannotWatch
            place = version_place(mapping)
            found = self.dicts[id(mapping)] = DictFacts(mapping, place, word(place))
        return found


def has_inline_values(mapping: Any) -> bool:
    """From CPython 3.13 on a dict may have its values inside the object whose `__dict__` it is: stores to the object go
    there, unseen by the dict."""
    values = word(id(mapping) + _DICT_VALUES) if sys.version_info >= (3, 13) else 0
    return values != 0 and ctypes.string_at(values, 4)[2] != 0  # capacity, entries in use, inside an object, valid


def take_out_values(obj: Any, space: dict[str, Any]) -> None:
    """Give an object's `__dict__` values of its own: CPython does, where it is set, and they never move back."""
    descriptor = next((one for base in type(obj).__mro__ if (one := base.__dict__.get("__dict__"))), None)
    if has_inline_values(space) and isinstance(descriptor, types.GetSetDescriptorType):
        descriptor.__set__(obj, space)


_definition: MethodDef | None = None  # shared by all checks
_alike_definition: MethodDef | None = None
_library: ctypes.PyDLL | None = None
_watching = False  # versions are kept by a dict watcher


def available() -> bool:
    """Whether memory can be watched here; compiles the native part."""
    build = native_builder.chosen
    if build is None:
        return False
    with _lock:
        return _prepare(build)


@functools.cache
def prepare_beside() -> None:
    """Start to compile the native part in a thread, while something else is compiled; `available` waits for it."""
    background.begin(available, "pliant-guards")


_lock = background.reentrant_lock()


@functools.cache
def _prepare(build: Callable[[], ctypes.PyDLL | None]) -> bool:
    global _alike_definition, _definition, _library, _watching
    _library = build() if _layouts_work() else None
    if _library is None:
        return False
    watch, identifier = _dict_watcher(_library)
    _bind(watch, identifier)
    _watching = identifier >= 0
    if not _versions_work():
        return False
    _definition = method("unchanged", _library.pliant_watch, METH_NOARGS)
    _alike_definition = method("alike", _library.pliant_alike, METH_O)
    return True


def _bind(watch: int, identifier: int) -> None:
    assert _library is not None
    _library.pliant_bind.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    _library.pliant_bind.restype = None
    _library.pliant_cell.argtypes, _library.pliant_cell.restype = [ctypes.py_object], ctypes.c_void_p
    _library.pliant_clock.restype = ctypes.c_uint64
    _library.pliant_bind(address_of(ctypes.pythonapi.PyDict_GetItemWithError), watch, identifier)


def _dict_watcher(library: ctypes.PyDLL) -> tuple[int, int]:
    """Address of `PyDict_Watch` and the number of our watcher; -1 without one (there are eight)."""
    try:
        return address_of(ctypes.pythonapi.PyDict_Watch), ctypes.pythonapi.PyDict_AddWatcher(library.pliant_event)
    except (AttributeError, RuntimeError):
        return 0, -1


def version_place(mapping: dict[Any, Any]) -> int:
    """The address of a word that grows beyond all others whenever the dict changes, while the dict lives."""
    if not _watching:
        return id(mapping) + _DICT_VERSION
    assert _library is not None
    found = _library.pliant_cell(mapping)
    if not found:
        raise MemoryError
    return int(found)


_FEW = 8  # restless dicts that a table has room for
_HEAD = 10 + _FEW  # words before the lists of a table


def native_check(watched: Watched, result: Any) -> Callable[[], Any] | None:
    """A builtin function: `result` while the facts hold, else None. None if they do not hold now."""
    assert available() and _definition is not None
    dicts = list(watched.dicts.values())
    newest = _newest_version()  # before the dicts are looked at: changes behind that are seen by the check
    if not all(facts.hold_still() for facts in dicts):
        return None
    forms = Forms()
    words = [value for pair in watched.words.items() for value in pair]
    runs = [value for place, run in watched.runs.items() for value in (place, len(run), *run)]
    tensors = forms.groups(watched.tensors.values())
    sizes = len(words), len(dicts), len(runs), len(tensors)
    indexes: list[int] = []
    details: list[int] = []
    for facts in dicts:
        indexes.append(_HEAD + sum(sizes) + len(dicts) + len(details))
        details += facts.details()
    places = [facts.place for facts in dicts]
    lists = [*words, *places, *runs, *tensors, *indexes, *details, *forms.table()]
    data = _bytes([id(result), id(None), newest, 0, 0, *[0] * _FEW, *sizes, len(details), *lists])
    check: Callable[[], Any] = builtin(_definition, (data, result, watched))
    return check if check() is result else None


def _newest_version() -> int:
    """A version that no dict exceeds that does not change from now on."""
    if not _watching:
        fresh: dict[Any, Any] = {}
        return word(version_place(fresh))
    assert _library is not None
    return int(_library.pliant_clock())


def native_alike(known: Description, tensors: Mapping[int, torch.Tensor]) -> Callable[[tuple[Any, ...]], bool]:
    """A builtin function of the arguments: whether those at the indexes are tensors like these."""
    assert available() and _alike_definition is not None
    forms = Forms()
    rows = [
        word
        for index, one in tensors.items()
        for word in (index, id(type(one)), forms.place(known.of(one)), known.kind_of_record(one) or 0)
    ]
    data = _bytes([id(True), id(False), len(rows), *rows, *forms.table()])
    alike: Callable[[tuple[Any, ...]], bool] = builtin(_alike_definition, (data, [type(t) for t in tensors.values()]))
    return alike


def _bytes(table: list[int]) -> bytes:
    return bytes((ctypes.c_uint64 * len(table))(*table))


# ---- whether this interpreter is as this module says


def _layouts_work() -> bool:
    """Whether objects lie in memory as assumed."""
    if sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info[:2] <= (3, 13):
        return False
    if ctypes.sizeof(ctypes.c_void_p) != 8 or not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False
    return ctypes.string_at(id(b"words") + BYTES, 5) == b"words" and _tuples_work() and _lists_work()


def _tuples_work() -> bool:
    pair = (object(), object())
    return word(id(pair) + TUPLE_ITEMS) == id(pair[0])


def _lists_work() -> bool:
    items = [object(), object()]
    array = word(id(items) + LIST_ITEMS)
    return word(id(items) + LIST_SIZE) == 2 and [word(array), word(array + 8)] == [id(items[0]), id(items[1])]


def _versions_work() -> bool:
    return _dict_versions_work() and _instance_versions_work()


def _dict_versions_work() -> bool:
    """Every kind of change makes the version the newest of all; reading leaves it."""
    d = {"a": 1, "b": 2}
    place = version_place(d)
    changes = (
        lambda: d.get("a"),
        lambda: d.update(a=3),
        lambda: d.pop("b"),
        lambda: d.update(c=1),
        lambda: d.setdefault("e", 2),
        lambda: d.popitem(),
        lambda: d.clear(),
        lambda: d.update({"z": 1}),
    )
    seen = []
    for change in changes:
        before = word(place), _newest_version()
        change()
        seen.append(word(place) > max(before) and word(place) <= _newest_version())
        if word(place) != before[0] and not seen[-1]:
            return False
    return seen == [False] + [True] * 7


def _instance_versions_work() -> bool:
    """Stores by bytecode, adapted to the class or not, move the version of the instance's dict; stores to a class
    that of the class' dict, stores to globals that of the module's."""

    class Probe:
        def __init__(self) -> None:
            self.a = self.b = 0

    def store(obj: Probe, value: int) -> None:
        obj.a = value

    namespace: dict[str, Any] = {}
    exec("def bind(value):\n    global g\n    g = value\n", namespace)
    plain, watched = Probe(), Probe()
    for i in range(100):  # let the interpreter adapt the store to instances without a dictionary first
        store(plain, i)
    for obj in (watched, plain):
        take_out_values(obj, obj.__dict__)
        if has_inline_values(obj.__dict__):
            return False
        places = [version_place(d) for d in (obj.__dict__, gc.get_referents(Probe.__dict__)[0], namespace)]
        for i in range(100):
            before = _newest_version()
            store(obj, 1000 + i)
            Probe.c = i  # type: ignore[attr-defined]
            namespace["bind"](i)
            if any(word(place) <= before for place in places):
                return False
            if obj.__dict__["a"] != 1000 + i:
                return False
    return True
