"""Iterators of `itertools` as a loop takes them, where the loop breaks the graph: code behind the break goes on from their state.

Holds:  what each gives, and when it takes an item, is what C code does. It ends where a function that it calls raises
        StopIteration. Nothing here is a frame of the program.
Source: `Modules/itertoolsmodule.c`, and the library's reference.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Iterable
from typing import Any

from pliant.dispatch.own_frames import OWN_FILES
from pliant.unpatched import BUILTINS

OWN_FILES.add(__file__)
__builtins__ = vars(BUILTINS)  # type: ignore[assignment]  # of the functions below, also where CPython runs them
Items = Iterable[Any]
Gives = Generator[Any, None, None]
Function = Callable[..., Any]


def chain(*iterables: Items) -> Gives:
    for items in iterables:
        for item in items:  # noqa: UP028  # `yield from` would close them when the loop ends early
            yield item


def from_iterable(iterable: Iterable[Items], /) -> Gives:
    for items in iterable:
        for item in items:  # noqa: UP028
            yield item


def islice(iterable: Items, start: int | None, /, *bounds: int | None) -> Gives:
    stop, step = (bounds[0] if bounds else start), (bounds[1] if len(bounds) > 1 else 1)
    source, taken, wanted = iter(iterable), 0, start if bounds and start else 0
    while True:
        while taken < wanted:
            try:
                next(source)
            except StopIteration:
                return
            taken += 1
        if stop is not None and taken >= stop:
            return
        try:
            item = next(source)
        except StopIteration:
            return
        taken += 1
        wanted += step or 1
        if stop is not None and wanted > stop:
            wanted = stop
        yield item


def zip_longest(*iterables: Items, fillvalue: Any = None) -> Gives:
    sources: list[Any] = [iter(items) for items in iterables]
    left = len(sources)
    while left:
        row = []
        for place, source in enumerate(sources):
            item = fillvalue
            if source is not None:
                try:
                    item = next(source)
                except StopIteration:
                    sources[place] = None
                    left -= 1
            row.append(item)
        if left:
            yield tuple(row)


def accumulate(iterable: Items, func: Function | None = None, *, initial: Any = None) -> Gives:
    source, total, add = iter(iterable), initial, operator.add if func is None else func
    if initial is None:
        try:
            total = next(source)
        except StopIteration:
            return
    yield total
    for item in source:
        try:
            total = add(total, item)
        except StopIteration:
            return
        yield total


def starmap(function: Function, iterable: Iterable[Items], /) -> Gives:
    for given in iterable:
        args = tuple(given)
        try:
            item = function(*args)
        except StopIteration:
            return
        yield item


def takewhile(predicate: Function, iterable: Items, /) -> Gives:
    for item in iterable:
        try:
            if not predicate(item):
                return
        except StopIteration:
            return
        yield item


def dropwhile(predicate: Function, iterable: Items, /) -> Gives:
    drops = True
    for item in iterable:
        if drops:
            try:
                if predicate(item):
                    continue
            except StopIteration:
                return
            drops = False
        yield item


def filterfalse(function: Function | None, iterable: Items, /) -> Gives:
    for item in iterable:
        try:
            if item if function is None else function(item):
                continue
        except StopIteration:
            return
        yield item


def compress(data: Items, selectors: Items) -> Gives:
    for item, is_chosen in zip(data, selectors):
        if is_chosen:
            yield item


def pairwise(iterable: Items, /) -> Gives:
    source = iter(iterable)
    try:
        first = next(source)
    except StopIteration:
        return
    for second in source:
        yield first, second
        first = second


def product(*iterables: Items, repeat: int = 1) -> Gives:
    return _rows([tuple(items) for items in iterables] * repeat)


def _rows(pools: list[tuple[Any, ...]]) -> Gives:
    if not pools:
        yield ()
        return
    for head in _rows(pools[:-1]):
        for last in pools[-1]:
            yield *head, last


def repeat(object: Any, times: int | None = None) -> Gives:
    if times is None:
        while True:
            yield object
    for _ in range(times):
        yield object


def cycle(iterable: Items, /) -> Gives:
    seen = []
    for item in iterable:
        yield item
        seen.append(item)
    while seen:
        for item in seen:
            yield item


def count(start: Any = 0, step: Any = 1) -> Gives:
    while True:
        yield start
        start = start + step
