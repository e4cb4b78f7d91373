"""Functions written in C that compare what they are given, or change it: Python versions, mostly the library's own, are interpreted.

Holds:  so comparisons of the program run in the interpreter, and numbers in a list stay symbolic.
Source: of heaps CPython's `Modules/_heapqmodule.c`.
"""

from __future__ import annotations

import collections
import functools
import heapq
import importlib.util
import sys
import types
from typing import Any

from pliant.capture.handlers.c_functions import call_native
from pliant.capture.handlers.table import Rows
from pliant.capture.protocols.subscripts import as_index
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.value_kinds import is_builtin, is_dict, is_text_or_bytes

ROWS = Rows()
handles, TABLE = ROWS.handles, ROWS.callables


_count: Any = vars(collections)["_count_elements"]


@functools.cache
def _in_python(name: str) -> types.ModuleType:
    """The module of the standard library as it is where its part in C is missing."""
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    part = f"_{name}"
    in_c = sys.modules.get(part)
    sys.modules[part] = None  # type: ignore[assignment]
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[part]
        if in_c is not None:
            sys.modules[part] = in_c
    return module


def _twin(module: str, name: str, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    return t.call(vars(_in_python(module))[name], args, kwargs)


def _bisect(name: str, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """Of the bounds C code makes numbers first, the Python version compares them as they are."""
    bounds = [bound if bound is None else as_index(t, bound) for bound in args[2:4]]
    named = {key: as_index(t, v) if key in ("lo", "hi") and v is not None else v for key, v in kwargs.items()}
    return _twin("bisect", name, t, (*args[:2], *bounds, *args[4:]), named)


@handles(_count)
def _count_elements(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """Of texts by C code. Other items may be symbolic numbers, or a subclass reads and stores them by methods of its own."""
    in_c = is_dict(args[0]) and is_text_or_bytes(args[1])
    return call_native(t, _count, args, kwargs) if in_c else _twin("collections", "_count_elements", t, args, kwargs)


for _module, _names in (
    ("heapq", [name for name in vars(importlib.import_module("_heapq")) if name.endswith("_max")]),  # others: below
    ("bisect", vars(importlib.import_module("_bisect"))),
    ("operator", ("countOf", "indexOf", "length_hint")),  # the others have rows of their own
):
    for _name in _names:
        _function = getattr(importlib.import_module(f"_{_module}"), _name)
        if is_builtin(_function):
            by_twin = functools.partial(_twin, _module)
            TABLE[_function] = functools.partial(_bisect if _module == "bisect" else by_twin, _name)

# ---- heaps, as C code has them: items are swapped one at a time, so what an error leaves of a heap is what C code leaves. The
# library's own Python version would lose an item.
_at, _put, _length = list.__getitem__, list.__setitem__, list.__len__


def _check(heap: Any, what: str) -> None:
    if not issubclass(type(heap), list):
        raise TypeError(f"{what} must be list, not {type(heap).__name__}")


def _is_less(heap: Any, one: int, other: int) -> bool:
    size = _length(heap)
    less = bool(_at(heap, one) < _at(heap, other))
    if _length(heap) != size:
        raise RuntimeError("list changed size during iteration")
    return less


def _swap(heap: Any, one: int, other: int) -> None:
    first = _at(heap, one)
    _put(heap, one, _at(heap, other))
    _put(heap, other, first)


def _rise(heap: Any, top: int, place: int) -> None:
    """Move the item up to where it belongs, at most to the top."""
    while place > top:
        above = (place - 1) >> 1
        if not _is_less(heap, place, above):
            return
        _swap(heap, place, above)
        place = above


def _settle(heap: Any, top: int) -> None:
    """Move the item down to the end along the smaller items, and up again."""
    size, place = _length(heap), top
    while place < size >> 1:
        below = 2 * place + 1
        if below + 1 < size and not _is_less(heap, below, below + 1):
            below += 1
        _swap(heap, place, below)
        place = below
    _rise(heap, top, place)


def _heappush(heap: Any, item: Any, /) -> None:
    _check(heap, "heappush() argument 1")
    list.append(heap, item)
    _rise(heap, 0, _length(heap) - 1)


def _heappop(heap: Any, /) -> Any:
    _check(heap, "heappop() argument")
    if not _length(heap):
        raise IndexError("index out of range")
    last = list.pop(heap)
    return _replaced(heap, last) if _length(heap) else last


def _replaced(heap: Any, item: Any) -> Any:
    if not _length(heap):
        raise IndexError("index out of range")
    least = _at(heap, 0)
    _put(heap, 0, item)
    _settle(heap, 0)
    return least


def _heapreplace(heap: Any, item: Any, /) -> Any:
    _check(heap, "heapreplace() argument 1")
    return _replaced(heap, item)


def _heappushpop(heap: Any, item: Any, /) -> Any:
    _check(heap, "heappushpop() argument 1")
    if not _length(heap) or not _at(heap, 0) < item:
        return item
    return _replaced(heap, item)


def _heapify(heap: Any, /) -> None:
    _check(heap, "heapify() argument")
    for place in range((_length(heap) >> 1) - 1, -1, -1):
        _settle(heap, place)


def _interpreted(function: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    return t.call(function, args, kwargs)


for _function in (_heappush, _heappop, _heapreplace, _heappushpop, _heapify):
    TABLE[getattr(heapq, _function.__name__[1:])] = functools.partial(_interpreted, _function)
