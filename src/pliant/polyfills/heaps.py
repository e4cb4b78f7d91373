"""Heaps, as CPython's C code has them.

Holds:  items are swapped one at a time, so what an error leaves of a heap is what C code leaves. The library's own Python
        version would lose an item.
Source: `Modules/_heapqmodule.c`.
"""

from __future__ import annotations

from typing import Any

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


def heappush(heap: Any, item: Any, /) -> None:
    _check(heap, "heappush() argument 1")
    list.append(heap, item)
    _rise(heap, 0, _length(heap) - 1)


def heappop(heap: Any, /) -> Any:
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


def heapreplace(heap: Any, item: Any, /) -> Any:
    _check(heap, "heapreplace() argument 1")
    return _replaced(heap, item)


def heappushpop(heap: Any, item: Any, /) -> Any:
    _check(heap, "heappushpop() argument 1")
    if not _length(heap) or not _at(heap, 0) < item:
        return item
    return _replaced(heap, item)


def heapify(heap: Any, /) -> None:
    _check(heap, "heapify() argument")
    for place in range((_length(heap) >> 1) - 1, -1, -1):
        _settle(heap, place)
