"""Sources and guards of tables of JSON.

In:     the tables.
Out:    `FactReader`: sources and guards that `FactWriter` wrote down, made again when they are asked for.
Holds:  a row refers to rows before it only. What guards of sizes say is kept as text, for explanations: the entry's own
        text checks them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from pliant.cache.lines import Lines
from pliant.entries import constants
from pliant.entries.constants import Json
from pliant.entries.objects import Finder, at_path
from pliant.guards import sources
from pliant.guards.kinds import ConstantItems, Guard, Kind, NumberOf, TensorFacts
from pliant.guards.sources import Source
from pliant.source import SourceLocation

# Others are named with their modules, which few entries load.
CLASSES: dict[str, type[Any]] = {name: cls for name, cls in vars(sources).items() if isinstance(cls, type) and issubclass(cls, Source)}
HELD = sources._Held


def _class_of(name: str) -> Any:
    module, _, last = name.rpartition(".")
    return at_path(module, [last]) if module else CLASSES[name]


class Told:
    """Stands for an expression of which only the text matters."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __str__(self) -> str:
        return self.text


def weakly(table: Any) -> Callable[[Any], Any]:
    """`table.source` for what the table holds itself: else the program's objects in both would live on as a cycle."""
    held = weakref.ref(table)

    def source(given: Any) -> Any:
        there = held()
        assert there is not None
        return there.source(given)

    return source


class FactReader:
    """The same in another process; objects are found by `finder`."""

    def __init__(self, data: Lines, root: Any) -> None:
        self._data = data
        self._sources: dict[int, Source] = {}
        self._guards: dict[int, Guard] = {}
        self.finder = Finder(data["objects"], root, weakly(self))

    def source(self, place: int) -> Source:
        found = self._sources.get(place)
        if found is None:
            name, *values = self._data["sources"][place]
            found = self._sources[place] = _class_of(name)(*map(self._value, values))
        return found

    def guard(self, place: int) -> Guard:
        found = self._guards.get(place)
        if found is None:
            kind, source, expected, where = self._data["guards"][place]
            origin = SourceLocation(*where) if where is not None else None
            at = None if source is None else self.source(source)
            found = self._guards[place] = Guard(at, Kind[kind], self._value(expected), origin)
        return found

    def _value(self, json: Json) -> Any:
        return _READ[json[0]](self, *json[1:])


_READ: dict[str, Callable[..., Any]] = {
    "s": FactReader.source,
    "ss": lambda reader, *places: tuple(map(reader.source, places)),
    "h": lambda reader, place: HELD(reader.finder.find(place)),
    "o": lambda reader, place: reader.finder.find(place),
    "c": lambda reader, json: constants.read(json),
    "t": lambda reader, *items: tuple(map(reader._value, items)),
    "told": lambda reader, text: Told(text),
    "tensor": lambda reader, *fields: TensorFacts(*map(reader._value, fields)),
    "items": lambda reader, values, places: ConstantItems(reader._value(values), reader._value(places)),
    "number": lambda reader, cls: NumberOf(reader.finder.find(cls)),
    "lookup": lambda reader, name, value: (name, reader._value(value)),
    "relation": lambda reader, sides: tuple(tuple(map(reader.source, side)) for side in sides),
}
