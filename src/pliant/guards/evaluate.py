"""Guards looked at as the data that they are: whether one holds for values that have been read.

In:     a guard, and what reads the value of a source.
Out:    `holds(guard, read)`: whether it surely does, by the meaning that `kinds.Kind` gives. Of the kinds that memory can tell
        changes of (`watch.Watch.hold`) each has a row; others are for the text of `codegen` alone to decide.
Holds:  the text that is written of a guard never fails where this is true: texts of many guards take longer to compile than
        the graph that they guard, and are needed only once something has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.guards import facts
from pliant.guards.kinds import Guard, Kind, NumberOf, TensorFacts
from pliant.guards.sources import Source
from pliant.guards.steps import lookup

Read = Callable[[Source], Any]


def holds(guard: Guard, read: Read) -> bool:
    """Whether the guard holds."""
    if (of_value := _OF_VALUES.get(guard.kind)) is not None:
        return of_value(read(guard.source), guard.expected)
    of_several = _OF_SEVERAL.get(guard.kind)
    return of_several is not None and of_several(guard, read)


def _equals(value: Any, expected: Any) -> bool:
    return bool(value == expected) if type(expected) is facts.CacheToken else facts.same(value, expected)


def _keys(value: Any, expected: Any) -> bool:
    return facts.same(tuple(value), tuple(expected))


def _range(value: Any, expected: Any) -> bool:
    return type(value) is range and (value.start, value.stop, value.step) == tuple(expected)


def owner_of(cls: type, name: str) -> type | None:
    """The first of the class' bases that has the name."""
    return next((base for base in cls.__mro__ if name in base.__dict__), None)


def found_as_expected(cls: Any, expected: tuple[str, Any]) -> bool:
    """Whether the class has the value of this name that a guard expects."""
    name, value = expected
    found = lookup(cls, name)
    return type(found) is value.cls if isinstance(value, NumberOf) else found is value


def _tensor(value: Any, e: TensorFacts) -> bool:
    cls: Any = type(value)
    if cls is not e.cls or value.layout is not torch.strided or e.is_leaf is not None or e.dispatch_keys is not None:
        return False
    if (value.dtype, value.device, value.requires_grad) != (e.dtype, e.device, e.requires_grad):
        return False
    if value.is_neg() or value.is_conj() or not _fits(value.shape, e.sizes):
        return False
    if e.strides is not None and not _fits(value.stride(), e.strides):
        return False
    return e.storage_offset_zero is None or (value.storage_offset() == 0) is e.storage_offset_zero


def _fits(found: tuple[int, ...], expected: tuple[int | None, ...]) -> bool:
    return len(found) == len(expected) and all(want is None or want == one for one, want in zip(found, expected, strict=True))


def _distinct(guard: Guard, read: Read) -> bool:
    mine, others = ([id(read(source)) for source in sources] for sources in guard.expected)
    return len(set(mine)) == len(mine) and set(mine).isdisjoint(others)


def _separate(guard: Guard, read: Read) -> bool:
    mine, others = (facts.storages([read(source) for source in sources]) for sources in guard.expected)
    return mine.isdisjoint(others)


_OF_VALUES: dict[Kind, Callable[[Any, Any], bool]] = {
    Kind.TYPE: lambda value, e: type(value) is e,
    Kind.IDENTITY: lambda value, e: value is e,
    Kind.EQUALS: _equals,
    Kind.TENSOR: _tensor,
    Kind.LENGTH: lambda value, e: len(value) == e,
    Kind.KEYS: _keys,
    Kind.ITEMS: facts.has_items,
    Kind.HAS_KEY: lambda value, e: e in value,
    Kind.NO_KEY: lambda value, e: e not in value,
    Kind.EMPTY: lambda value, e: not value,
    Kind.ALL_EMPTY: facts.all_empty,
    Kind.RANGE: _range,
    Kind.TYPE_LOOKUP: found_as_expected,
}
_OF_SEVERAL: dict[Kind, Callable[[Guard, Read], bool]] = {
    Kind.SAME_AS: lambda guard, read: read(guard.source) is read(guard.expected),
    Kind.DISTINCT: _distinct,
    Kind.SEPARATE: _separate,
}
