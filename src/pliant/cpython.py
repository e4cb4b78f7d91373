"""CPython's objects in memory: words at addresses, and builtin functions made of native code; what it tells in private.

In:     addresses; C functions of libraries that are loaded; abstract classes; functions with a cache.
Out:    `word`, `words`: what lies there; `builtin`: a C function as a Python function; `registered_classes`; `kept_result`:
        what a function's cache holds; `stored_item`: what a dict does.
Holds:  offsets are those of 64-bit CPython 3.11 to 3.13 with the global lock; who relies on one checks it first.
"""

from __future__ import annotations

import abc
import ctypes
import functools
import gc
from collections.abc import Iterable
from typing import Any

WORD = 8
TYPE, LIST_SIZE, LIST_ITEMS, TUPLE_ITEMS, BYTES = 8, 16, 24, 24, 32  # offsets in objects
_NOTHING = object()
METH_NOARGS, METH_O, METH_FASTCALL = 4, 8, 0x80


class MethodDef(ctypes.Structure):
    """CPython's PyMethodDef, part of its stable interface."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


def word(address: int) -> int:
    return ctypes.c_uint64.from_address(address).value


def words(address: int, count: int) -> tuple[int, ...]:
    return tuple((ctypes.c_uint64 * count).from_address(address))


def address_of(function: Any) -> int:
    """Where a function that ctypes found starts."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def definition_of(name: str, function: Any, flags: int) -> MethodDef:
    """The definition of a builtin function. Functions refer to it by address, so it has to outlive them."""
    return MethodDef(name.encode(), address_of(function), flags, None)


def method(name: str, function: Any, flags: int) -> MethodDef:
    """A definition that is kept for good."""
    made = definition_of(name, function, flags)
    _definitions.append(made)
    return made


_definitions: list[MethodDef] = []


def builtin(definition: MethodDef, owner: object = None) -> Any:
    """A builtin function that has `owner` as its `self`."""
    make = ctypes.pythonapi.PyCFunction_NewEx
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p]
    return make(ctypes.addressof(definition), owner, None)


def table_of(items: set[Any] | frozenset[Any]) -> int | None:
    """How many slots the set's table has; None if that is not to be had, or items were taken out of it: where those that are left
    lie, and which one `pop` takes, then depends on them."""
    if not _tables_read():
        return None
    filled, used, mask, _, _, popped = words(id(items) + SET_TABLE, 6)
    return mask + 1 if filled == used and not popped else None


def slots_of(items: set[Any] | frozenset[Any]) -> list[int]:
    """For each slot of the set's table the hash of its item, -1 where there is none; empty where `table_of` is None."""
    size = table_of(items) or 0
    entries = words(words(id(items) + SET_TABLE, 4)[3], 2 * size) if size else ()
    return [number if key else -1 for key, number in zip(entries[::2], entries[1::2])]


def state_of(items: set[Any] | frozenset[Any]) -> tuple[list[int | None], int] | None:
    """For each slot of the set's table the hash of its item, -1 where there never was one, None where it is gone; and the slot
    at which `pop` begins to look. None if that is not to be had."""
    if not _tables_read():
        return None
    _, _, mask, table, _, popped = words(id(items) + SET_TABLE, 6)
    entries = words(table, 2 * (mask + 1))
    slots = [None if key and number == _NO_HASH else number if key else -1 for key, number in zip(entries[::2], entries[1::2])]
    return slots, popped & mask


_NO_HASH = 2**64 - 1  # what an item has for a hash that is not there any more


# Where CPython has the numbers of slots that were filled, that are used, and all of them, less one; the table; the hash; where
# `pop` looks next.
SET_TABLE = 16


@functools.cache
def _tables_read() -> bool:
    """Whether the numbers lie there, by experiment."""
    whole, lacking = ([set(range(n)) for n in (1, 3, 40)] for _ in range(2))
    for one in lacking:
        one.discard(0)
    found = [(words(id(one) + SET_TABLE, 3), len(one)) for one in (*whole, *lacking)]
    if any(used != count or mask & (mask + 1) for (_, used, mask), count in found):
        return False
    return [filled - used for (filled, used, _), _ in found] == [0, 0, 0, 1, 1, 1]


def order_in_table(items: Iterable[Any], size: int) -> list[Any] | None:
    """The order in which a set of that many slots gives these; None if it depends on which came first."""
    slots = {hash(one) & (size - 1): one for one in items}
    ordered = [slots[number] for number in sorted(slots)]
    return ordered if len(ordered) == len(list(items)) else None


def registered_classes(cls: abc.ABCMeta) -> list[type] | None:
    """Classes registered with an abstract one; None where this Python does not tell. There is no public form: the documented
    one, the token of the cache, says only that something was registered since."""
    dump = getattr(abc, "_get_dump", None)  # what `ABCMeta._dump_registry` prints
    if dump is None:
        return None
    return [one for reference in dump(cls)[0] if (one := reference()) is not None]


def stored_item(mapping: dict[Any, Any], key: Any) -> Any:
    """What a dict holds. `dict.__getitem__` calls the `__missing__` of its class, which may store something."""
    found = dict.get(mapping, key, _NOTHING)
    if found is _NOTHING:
        raise KeyError(key)
    return found


def kept_result(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a function of `functools.lru_cache` keeps for these arguments, without asking it; `NOT_KEPT` if nothing."""
    wanted = _cache_key(args, kwargs, bool(function.cache_parameters()["typed"]))
    is_own_key = len(wanted) == 1 and type(wanted[0]) in (int, str)  # other arguments are keys in a tuple
    for key, result in _cached(function):
        if is_own_key is (type(key) is tuple):
            continue
        found = key if type(key) is tuple else (key,)
        if kwargs and len(found) > len(args):  # a mark that is not to be had stands between them
            found = (*found[: len(args)], *found[len(args) + 1 :])
        if len(found) == len(wanted) and all(map(_same_key, found, wanted)):
            return result
    return NOT_KEPT


NOT_KEPT = object()
_PLAIN = frozenset((int, float, complex, bool, str, bytes))


def _same_key(one: Any, other: Any) -> bool:
    """Whether they are equal, found without calling what the program defines."""
    if _equals_as_tuple(one) and _equals_as_tuple(other):
        return len(one) == len(other) and all(map(_same_key, one, other))
    return one is other or type(one) in _PLAIN and type(other) in _PLAIN and one == other


def _equals_as_tuple(value: Any) -> bool:
    """Whether it is a tuple or of a class, as sizes are, that leaves comparing to it."""
    cls: Any = type(value)
    return cls.__eq__ is tuple.__eq__


def _cache_key(args: tuple[Any, ...], kwargs: dict[str, Any], typed: bool) -> tuple[Any, ...]:
    key = (*args, *(part for item in kwargs.items() for part in item))
    return (*key, *map(type, args), *map(type, kwargs.values())) if typed else key


def _cached(function: Any) -> list[tuple[Any, Any]]:
    """The pairs of a cache, as garbage collection sees them: of a bounded one key, result and the type of what links them."""
    seen = gc.get_referents(function)
    if function.cache_parameters()["maxsize"] is None:
        held = (one for one in seen if type(one) is dict and one is not function.__dict__)
        return list(next(held, {}).items())
    size: int = function.cache_info().currsize
    starts = [i for i, one in enumerate(seen) if isinstance(one, type) and one.__name__ == "_lru_list_elem"][:size]
    return [(seen[i - 2], seen[i - 1]) for i in starts]
