"""The native part of watching: one builtin function that compares memory with what it was.

In:     runs of words with the values they had, and dicts with the keys that matter of them (`Watched`).
Out:    `native_check(watched, result)`: a builtin function that returns `result` while all is as it was, else None;
        `version_place(d)`: the address of a word that changes whenever the dict does.
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
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

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
    words,
)
from pliant.guards.tensor_words import Description, Words, description

_DICT_VERSION, _DICT_VALUES = 24, 40  # offsets in CPython's dicts (64 bits, with the global lock)

ABSENT, PRESENT = 0, 1  # what a key is to be, where it is not one object

C_TEXT = """\
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
typedef uint64_t u64;

static void *(*get_item)(void *, void *); /* PyDict_GetItemWithError */
static int (*watch)(int, void *);         /* PyDict_Watch */
static int watcher = -1;

void pliant_bind(void *get, void *watch_dict, int id)
{
    get_item = (void *(*)(void *, void *))get;
    watch = (int (*)(int, void *))watch_dict;
    watcher = id;
}

/* ---- versions of dicts where CPython keeps none: cells that a dict watcher moves. Called with the lock held. */
struct cell { u64 version; void *dict; struct cell *next; };
enum { BUCKETS = 1 << 14, DEALLOCATED = 5 };
static struct cell *buckets[BUCKETS];

static struct cell **find(void *dict)
{
    struct cell **place = &buckets[((uintptr_t)dict >> 4) * 0x9E3779B97F4A7C15u >> 50];
    while (*place && (*place)->dict != dict)
        place = &(*place)->next;
    return place;
}

int pliant_event(int event, void *dict, void *key, void *value)
{
    struct cell **place = find(dict), *cell = *place;
    if (cell) {
        cell->version++;
        if (event == DEALLOCATED) { /* no check refers to it: that would keep the dict alive */
            *place = cell->next;
            free(cell);
        }
    }
    return 0;
}

void *pliant_cell(void *dict)
{
    struct cell **place = find(dict), *cell = *place;
    if (!cell) {
        if (watch(watcher, dict) < 0 || !(cell = malloc(sizeof *cell)))
            return 0;
        *cell = (struct cell){1, dict, 0};
        *place = cell;
    }
    return cell;
}

/* ---- the check. details: dict, number of keys, (key, value)...; ~0 keys: every change matters. */
static int same_items(const u64 *details)
{
    u64 count = details[1];
    if (count == ~(u64)0)
        return 0;
    for (const u64 *item = details + 2, *end = item + 2 * count; item < end; item += 2) {
        u64 found = (u64)get_item((void *)details[0], (void *)item[0]);
        if (item[1] == 1 ? !found : found != item[1])
            return 0;
    }
    return 1;
}

static int moved(const u64 *now, const u64 *before, u64 count)
{
    u64 differ = 0;
    for (u64 i = 0; i < count; i++)
        differ |= now[i] ^ before[i];
    return differ != 0;
}

/* Pairs (address, word): all are read, without a branch for each. */
static int any_moved(const u64 *p, const u64 *end)
{
    u64 differ = 0;
    for (; p < end; p += 2) {
        differ |= *(const u64 *)p[0] ^ p[1];
        __asm__("" : "+r"(differ)); /* no vectors: gathering words into them takes longer than reading them */
    }
    return differ != 0;
}

/* Whether what matters of each dict whose version moved is as it was; then its new version is the one to expect. */
static int dicts_hold(u64 *table, int strict, u64 *p, const u64 *end, const u64 *details)
{
    for (; p < end; p += 2, details++) {
        u64 version = *(u64 *)p[0];
        if (version != p[1]) {
            if (strict || !same_items(table + *details))
                return 0;
            p[1] = version;
        }
    }
    return 1;
}

/* ---- tensors. Forms: the words, under a mask, of all tensors of one dtype, device, sizes, strides... */
typedef u64 four __attribute__((vector_size(32), aligned(8)));
struct forms {
    u64 object;                  /* offset of the C++ object in a tensor's Python object */
    u64 autograd, requires_grad; /* word of the autograd record, and of requires_grad in that */
    u64 count, words[];          /* of a form, four or more; the mask, then one form after the other */
};

/* Four words from the i-th on: what differs from the form. */
static inline four four_from(u64 i, const u64 *object, const u64 *mask, const u64 *wanted)
{
    return (*(const four *)(object + i) & *(const four *)(mask + i)) ^ *(const four *)(wanted + i);
}

static inline four differences(const u64 *object, const struct forms *forms, u64 form)
{
    const u64 *mask = forms->words, *wanted = mask + form, last = forms->count - 4;
    four found = four_from(last, object, mask, wanted);
    for (u64 i = 0; i < last; i += 4)
        found |= four_from(i, object, mask, wanted);
    return found;
}

static inline int any(four found) { return (found[0] | found[1] | found[2] | found[3]) != 0; }

static void *counted(u64 object)
{
    uint32_t *count = (uint32_t *)object;
    if ((int32_t)*count >= 0) /* negative: immortal. No count comes near 2**31. */
        ++*count;
    return count;
}

/* What a builtin function's self, a tuple, has first: the bytes of a table. */
static u64 *table_of(void *self) { return (u64 *)(*(char **)((char *)self + 24) + 32); }

/* A table: the objects to return (unchanged, changed), whether any change of a dict counts, and the lengths of lists, in
   the order of what keeps their memory alive: words of objects, as pairs; versions of dicts, as pairs; runs behind those
   words (address, count, words...); tensors (address, class, C++ object, its autograd record, word of that, form);
   values inside objects (address, count, index of details, words...). Then the index of the details of each dict,
   details, and the tensors' forms. */
struct watched { u64 unchanged, changed, strict, words, dicts, runs, tensors, values, details; u64 list[]; };

static int holds(struct watched *t)
{
    u64 *words = t->list, *dicts = words + t->words, *runs = dicts + t->dicts, *tensors = runs + t->runs;
    u64 *values = tensors + t->tensors, *indexes = values + t->values;
    const struct forms *forms = (const struct forms *)(indexes + t->dicts / 2 + t->details);
    if (any_moved(words, runs) && (any_moved(words, dicts) || !dicts_hold((u64 *)t, t->strict, dicts, runs, indexes)))
        return 0;
    for (const u64 *p = runs; p < tensors; p += 2 + p[1])
        if (moved((u64 *)p[0], p + 2, p[1]))
            return 0;
    four differ = {0};
    for (const u64 *p = tensors; p < values; p += 6) {
        const u64 *tensor = (const u64 *)p[0], *object = (const u64 *)p[2], *record = (const u64 *)p[3];
        if (tensor[1] != p[1] || *(const u64 *)((const char *)tensor + forms->object) != p[2])
            return 0;
        if (object[forms->autograd] != p[3] || (record && record[forms->requires_grad] != p[4]))
            return 0;
        differ |= differences(object, forms, p[5]);
    }
    if (any(differ))
        return 0;
    for (u64 *p = values; p < indexes; p += 3 + p[1]) {
        if (moved((u64 *)p[0], p + 3, p[1])) {
            if (t->strict || !same_items((u64 *)t + p[2]))
                return 0;
            memcpy(p + 3, (void *)p[0], 8 * p[1]);
        }
    }
    return 1;
}

void *pliant_watch(void *self, void *unused)
{
    struct watched *t = (struct watched *)table_of(self);
    return counted(holds(t) ? t->unchanged : t->changed);
}

/* Whether arguments are tensors like those of the table, without autograd records.
   The table: the objects to return (alike, not alike); the length of a list (index in the arguments, class, form); forms. */
void *pliant_alike(void *self, void *args)
{
    const u64 *t = table_of(self), *end = t + 3 + t[2];
    const struct forms *forms = (const struct forms *)end;
    for (const u64 *p = t + 3; p < end; p += 3) {
        const char *tensor = *(const char **)((const char *)args + 24 + 8 * p[0]);
        if (*(const u64 *)(tensor + 8) != p[1])
            return counted(t[1]);
        const u64 *object = *(const u64 **)(tensor + forms->object);
        if (!object || object[forms->autograd] || any(differences(object, forms, p[2])))
            return counted(t[1]);
    }
    return counted(t[0]);
}
"""


@dataclass(slots=True)
class DictFacts:
    """What matters of a dict: the object or presence of some keys, or (`whole`) everything."""

    mapping: Any
    place: int
    version: int
    run: tuple[int, ...] = ()  # the words of values that lie inside the object whose `__dict__` it is
    whole: bool = False
    items: dict[Any, Any] = field(default_factory=dict)  # key -> ABSENT, PRESENT or [the object]

    def details(self) -> list[int]:
        """The words by which C compares the keys."""
        if self.whole:
            return [id(self.mapping), (1 << 64) - 1]
        words = [id(self.mapping), len(self.items)]
        for key, wanted in self.items.items():
            words += [id(key), id(wanted[0]) if isinstance(wanted, list) else wanted]
        return words


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What a tensor's memory says: its class, C++ object, autograd record and the word of that, and its form."""

    tensor: torch.Tensor
    words: tuple[int, ...]
    form: Words

    @staticmethod
    def of(known: Description, tensor: torch.Tensor) -> TensorFacts:
        return TensorFacts(tensor, (id(type(tensor)), tensor._cdata, *known.record_of(tensor)), known.of(tensor))


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
        return [known.offset, known.autograd, known.requires_grad, len(known.mask), *known.mask, *forms]


@dataclass(slots=True)
class Watched:
    """Facts in memory, and what keeps the memory alive.

    words: of objects that are kept. runs: behind addresses that are among the words.
    """

    words: dict[int, int] = field(default_factory=dict)  # address -> word
    runs: dict[int, tuple[int, ...]] = field(default_factory=dict)  # address -> words from there on
    tensors: dict[int, TensorFacts] = field(default_factory=dict)  # by identity
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
            place = version_place(mapping)
            found = self.dicts[id(mapping)] = DictFacts(mapping, place, word(place), _inline_values(mapping))
            if sys.version_info >= (3, 13):
                values = id(mapping) + _DICT_VALUES
                self.note(mapping, values, word(values))
        return found


def _inline_values(mapping: Any) -> tuple[int, ...]:
    """From CPython 3.13 on stores to an object write values inside the object, unseen by its dict: those words."""
    values = word(id(mapping) + _DICT_VALUES) if sys.version_info >= (3, 13) else 0
    if not values:
        return ()
    capacity, _, embedded, _ = ctypes.string_at(values, 4)  # also: entries in use, whether the values are valid
    return words(values, 1 + capacity) if embedded else ()


_build: Callable[[str], ctypes.PyDLL | None] | None = None
_definition: MethodDef | None = None  # shared by all checks
_alike_definition: MethodDef | None = None
_library: ctypes.PyDLL | None = None
_watching = False  # versions are kept by a dict watcher


def use_builder(build: Callable[[str], ctypes.PyDLL | None]) -> None:
    """Who compiles the native part (the C toolchain lies in a later layer)."""
    global _build
    _build = build


def available() -> bool:
    """Whether memory can be watched here; compiles the native part."""
    if _build is None:
        return False
    with _lock:
        return _prepare(_build)


@functools.cache
def prepare_beside() -> None:
    """Start to compile the native part in a thread, while something else is compiled; `available` waits for it."""
    threading.Thread(target=available, daemon=True, name="pliant-guards").start()


_lock = threading.RLock()


@functools.cache
def _prepare(build: Callable[[str], ctypes.PyDLL | None]) -> bool:
    global _alike_definition, _definition, _library, _watching
    _library = build(C_TEXT) if _layouts_work() else None
    if _library is None:
        return False
    _bind(0, -1)
    if not _versions_work():
        watch, identifier = _dict_watcher(_library)
        _bind(watch, identifier)
        _watching = True
        if identifier < 0 or not _versions_work():
            return False
    _definition = method("unchanged", _library.pliant_watch, METH_NOARGS)
    _alike_definition = method("alike", _library.pliant_alike, METH_O)
    return True


def _bind(watch: int, identifier: int) -> None:
    assert _library is not None
    _library.pliant_bind.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    _library.pliant_bind.restype = None
    _library.pliant_cell.argtypes, _library.pliant_cell.restype = [ctypes.py_object], ctypes.c_void_p
    _library.pliant_bind(address_of(ctypes.pythonapi.PyDict_GetItemWithError), watch, identifier)


def _dict_watcher(library: ctypes.PyDLL) -> tuple[int, int]:
    """Address of `PyDict_Watch` and the number of our watcher; -1 without one (there are eight)."""
    try:
        return address_of(ctypes.pythonapi.PyDict_Watch), ctypes.pythonapi.PyDict_AddWatcher(library.pliant_event)
    except (AttributeError, RuntimeError):
        return 0, -1


def version_place(mapping: dict[Any, Any]) -> int:
    """The address of a word that changes whenever the dict does, while the dict lives."""
    if not _watching:
        return id(mapping) + _DICT_VERSION
    assert _library is not None
    found = _library.pliant_cell(mapping)
    if not found:
        raise MemoryError
    return int(found)


_STRICT = BYTES + 2 * WORD  # where a table says that any change of a dict counts
_HEAD = 9  # words before the lists of a table


def native_check(watched: Watched, result: Any) -> Callable[[], Any] | None:
    """A builtin function: `result` while the facts hold, else None. None if they do not hold now."""
    assert available() and _definition is not None
    forms = Forms()
    dicts = list(watched.dicts.values())
    words = [value for pair in watched.words.items() for value in pair]
    versions = [value for facts in dicts for value in (facts.place, facts.version)]
    runs = [value for place, run in watched.runs.items() for value in (place, len(run), *run)]
    tensors = [v for place, one in watched.tensors.items() for v in (place, *one.words, forms.place(one.form))]
    sizes = len(words), len(versions), len(runs), len(tensors), sum(3 + len(facts.run) for facts in dicts if facts.run)
    indexes: list[int] = []
    values: list[int] = []
    details: list[int] = []
    for facts in dicts:
        indexes.append(_HEAD + sum(sizes) + len(dicts) + len(details))
        if facts.run:
            values += [word(id(facts.mapping) + _DICT_VALUES), len(facts.run), indexes[-1], *facts.run]
        details += facts.details()
    lists = [*words, *versions, *runs, *tensors, *values, *indexes, *details, *forms.table()]
    data = _bytes([id(result), id(None), 1, *sizes, len(details), *lists])
    check: Callable[[], Any] = builtin(_definition, (data, result, watched))
    if check() is not result:
        return None
    ctypes.c_uint64.from_address(id(data) + _STRICT).value = 0
    return check


def native_alike(known: Description, tensors: Mapping[int, torch.Tensor]) -> Callable[[tuple[Any, ...]], bool]:
    """A builtin function of the arguments: whether those at the indexes are tensors like these."""
    assert available() and _alike_definition is not None
    forms = Forms()
    rows = [v for index, one in tensors.items() for v in (index, id(type(one)), forms.place(known.of(one)))]
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


def _state(mapping: dict[Any, Any]) -> tuple[int, ...]:
    """The words that tell of changes of a dict."""
    return word(version_place(mapping)), *_inline_values(mapping)


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
        lambda: d.update({"z": 1}),
    )
    seen = []
    for change in changes:
        before = _state(d)
        change()
        seen.append(_state(d) != before)
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
        dicts = obj.__dict__, gc.get_referents(Probe.__dict__)[0], namespace
        for i in range(100):
            before = [_state(d) for d in dicts]
            store(obj, 1000 + i)
            Probe.c = i  # type: ignore[attr-defined]
            namespace["bind"](i)
            if any(_state(d) == old for d, old in zip(dicts, before, strict=True)):
                return False
            if obj.__dict__["a"] != 1000 + i:
                return False
    return True
