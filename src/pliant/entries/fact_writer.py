"""Sources and guards written as tables of JSON, in the process that made them.

In:     sources and guards as capture made them.
Out:    `FactWriter`: places in two tables, which `facts.FactReader` reads. NotKept.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

from pliant.entries import constants
from pliant.entries.constants import Json
from pliant.entries.content import NotKept, check_type
from pliant.entries.facts import CLASSES, HELD, weakly
from pliant.entries.namer import Namer, path_of
from pliant.entries.taken import Taken
from pliant.guards.kinds import MISSING, ConstantItems, Guard, Kind, NumberOf, TensorFacts
from pliant.guards.sources import Source

_LOADED_LATER = ("pliant.capture.", "pliant.guards.")


def _name_of(cls: type) -> str | None:
    """What stands for a class of sources; of those that are loaded where an entry has them, with its module."""
    name = cls.__name__
    if CLASSES.get(name) is cls:
        return name
    path = path_of(cls) if cls.__module__.startswith(_LOADED_LATER) else None
    return None if path is None else f"{path[0]}.{name}"


@functools.cache
def _field_names(cls: Any) -> tuple[str, ...]:
    return tuple(f.name for f in dataclasses.fields(cls) if f.init)


@functools.cache
def _expressions() -> type[Any]:
    from pliant.symbolic.expr import Expr  # what is written was captured; what is read was not

    return Expr


class FactWriter:
    """Writes sources and guards; objects get names in `namer`. Rows are tuples, of which there are many: collection of garbage
    lets go of those that refer to nothing it looks at."""

    def __init__(self, root: Any, guards: Iterable[Guard], taken: Taken) -> None:
        self.sources: list[Json] = []
        self.guards: list[Json] = []
        self._places: dict[int, tuple[int, Source]] = {}
        self._by_value: dict[Source, int] = {}
        self.namer = Namer(root, guards, weakly(self), taken)

    def source(self, source: Source) -> int:
        known = self._places.get(id(source))
        if known is not None:
            return known[0]
        place = self._by_value.get(source)
        if place is None:
            cls: Any = type(source)
            name = _name_of(cls)
            if name is None:
                raise NotKept("no-form", f"what is read by a {cls.__name__}: {source.describe()}")
            row = (name, *[self._field(getattr(source, field)) for field in _field_names(cls)])
            place = self._by_value[source] = len(self.sources)
            self.sources.append(row)
        self._places[id(source)] = place, source
        return place

    def _field(self, value: Any) -> Json:
        if type(value) in constants.ITSELF:
            return "c", value
        if isinstance(value, Source):
            return "s", self.source(value)
        if type(value) is HELD:
            return "h", self.namer.reference(value.value)
        if type(value) is tuple and value and all(isinstance(one, Source) for one in value):
            return "ss", *map(self.source, value)
        spelled = constants.spelled(value)
        return ("c", spelled) if spelled is not None or value is None else ("o", self.namer.reference(value))

    def guard(self, guard: Guard) -> int:
        if guard.kind is Kind.TYPE:
            check_type(guard.expected)
        source = None if guard.source is None else self.source(guard.source)
        origin = guard.origin
        where = (origin.file, origin.line, origin.function) if origin is not None else None
        self.guards.append((guard.kind._name_, source, self._expected(guard), where))
        return len(self.guards) - 1

    def _expected(self, guard: Guard) -> Json:
        value = guard.expected
        if type(value) in constants.ITSELF:
            return "c", value
        match value:
            case TensorFacts():
                return "tensor", *(self._expected_part(getattr(value, f.name)) for f in dataclasses.fields(value))
            case ConstantItems():
                return "items", *map(self._expected_part, (value.values, value.places))
            case Source():
                return "s", self.source(value)
        if isinstance(value, _expressions()):
            return "told", str(value)
        if guard.kind in (Kind.DISTINCT, Kind.SEPARATE):
            return ["relation", [[self.source(one) for one in side] for side in value]]
        if guard.kind is Kind.TYPE_LOOKUP:
            return "lookup", value[0], self._looked_up(value[1])
        return self._expected_part(value)

    def _looked_up(self, value: Any) -> Json:
        return ("number", self.namer.reference(value.cls)) if isinstance(value, NumberOf) else self._object(value)

    def _expected_part(self, value: Any) -> Json:
        spelled = constants.spelled(value)
        return ("c", spelled) if spelled is not None or value is None else self._object(value)

    def _object(self, value: Any) -> Json:
        if type(value) is tuple and value is not MISSING and not constants.is_constant(value):
            return "t", *map(self._expected_part, value)
        return "o", self.namer.reference(value)
