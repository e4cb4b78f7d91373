"""Sources as steps that share intermediate values: an object's dictionary, a tensor's sizes; how a dictionary is read.

In:     a source as capture made it.
Out:    `shared(source)`: the same value, reached through parts that other sources use too.
Holds:  a part reads what the source would read, no more.
"""

from __future__ import annotations

import collections
import itertools
from collections.abc import KeysView
from typing import Any

from pliant.guards.sources import (
    AttributeSource,
    ChainedSource,
    DictAttributeSource,
    ItemSource,
    ModuleMemberSource,
    Namer,
    SizeSource,
    Source,
    StrideSource,
    source_class,
)


@source_class
class Local(Source):
    """A local variable of the generated function: a source that has been read."""

    name: str

    def code(self, hold: Namer) -> str:
        return self.name

    def describe(self) -> str:
        return self.name


@source_class
class Part(ChainedSource):
    """An intermediate value shared by sources: the sizes or the strides of the parent."""

    suffix: str
    hint: str
    text = "{parent}{self.suffix}"
    words = "{parent}_{self.hint}"


@source_class
class StoragesSource(Source):
    """The memory of tensors, as a set (`facts.storages`). All sources have the same kind of root."""

    sources: tuple[Source, ...]

    @property
    def base(self) -> Source:
        return self.sources[0]

    def describe(self) -> str:
        return "the memory of " + ", ".join(source.describe() for source in self.sources)


@source_class
class FieldSource(ChainedSource):
    """What an `AttributeSource` reads, of an object whose class has a `__getattribute__` of the program's, which is not asked."""

    name: str
    text = "{function}({parent}, {self.name!r})"
    words = "{parent}.{self.name}"
    function = object.__getattribute__

    @property
    def is_namespace(self) -> bool:
        return self.name == "__dict__"


def plain_keys(mapping: dict[Any, Any]) -> KeysView[Any]:
    """The keys that a dict has, whatever methods its class has; they are counted and looked up as such, too."""
    return (collections.OrderedDict if issubclass(type(mapping), collections.OrderedDict) else dict).keys(mapping)


@source_class
class KeysSource(ChainedSource):
    """The keys of a dict whose class has methods of the program's to count, find or walk through them."""

    text = "{function}({parent})"
    words = "{parent}"
    function = plain_keys


def value_at(mapping: dict[Any, Any], position: int) -> Any:
    for value in itertools.islice(mapping.values(), position, None):
        return value
    raise IndexError(position)  # which is a guard that fails


@source_class
class EntrySource(ChainedSource):
    """The value at a place in the order of a dict: what a program registers anew with others is found there, under another
    key."""

    position: int
    text = "{function}({parent}, {self.position})"
    words = "value {self.position} of {parent}"
    function = value_at
    is_registered = True


def dict_of(parent: Source) -> Source:
    return AttributeSource(parent, "__dict__")


def shape_of(parent: Source) -> Source:
    return Part(parent, ".shape", "shape")  # 0.1 µs less than .size(dim), and read once


def stride_of(parent: Source) -> Source:
    return Part(parent, ".stride()", "stride")


def shared(source: Source) -> Source:
    """The same value by way of intermediate values that other sources share."""
    match source:
        case DictAttributeSource(parent, name):
            return ItemSource(dict_of(parent), name)
        case ModuleMemberSource(parent, table, name):
            return ItemSource(ItemSource(dict_of(parent), table), name)
        case SizeSource(parent, dim):
            return ItemSource(shape_of(parent), dim)
        case StrideSource(parent, dim):
            return ItemSource(stride_of(parent), dim)
        case _:
            return source


def root_of(source: Source) -> Source:
    """The source that the chain starts from."""
    try:  # of each guard, whose chain may be long, and `base` is a call
        while True:
            source = source.parent  # type: ignore[attr-defined]
    except AttributeError:
        base = source.base
    return source if base is None else root_of(base)
