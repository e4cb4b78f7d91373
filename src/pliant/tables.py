"""Tables that are filled from one place: a second row under one key is an error, not the last word; tables by class.

Holds:  a row stays as it is. Where a row is meant to be another's, the module that has both says so by its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
Rule = TypeVar("Rule")


class Table(dict[K, V]):
    """A dictionary to which rows are added."""

    def __setitem__(self, key: K, value: V) -> None:
        if key in self:
            raise ValueError(f"there is a row for {key!r} already: {self[key]!r}, and now {value!r}")
        super().__setitem__(key, value)

    def __ior__(self, rows: Mapping[K, V]) -> Table[K, V]:  # type: ignore[override, misc]
        self.add(rows)
        return self

    def row(self, *keys: K) -> Callable[[V], V]:
        """The decorated value is the row of these keys."""

        def add(value: V) -> V:
            for key in keys:
                self[key] = value
            return value

        return add

    def add(self, rows: Mapping[K, V]) -> None:
        """All rows of another table."""
        for key, value in rows.items():
            self[key] = value


def joined(*tables: Mapping[K, V]) -> Table[K, V]:
    """One table of the rows of several."""
    found: Table[K, V] = Table()
    for table in tables:
        found.add(table)
    return found


class ByKind(Generic[Rule]):
    """What is done with a value, by its class. `exact`: rows for the class alone; `families`: for what derives from it too,
    the nearest base first; `default`: for all others.
    """

    __slots__ = ("_default", "_exact", "_families")

    def __init__(
        self, default: Rule, exact: Mapping[type, Rule] | None = None, families: Mapping[type, Rule] | None = None
    ) -> None:
        self._default, self._exact, self._families = default, exact or {}, families or {}

    def of(self, value: Any) -> Rule:
        cls, exact = type(value), self._exact
        if cls in exact and (found := exact[cls]) is not None:  # asked often for each operation: no call of a method
            return found
        families = self._families
        for base in cls.__mro__ if families else ():
            if base in families:
                return families[base]
        return self._default


def by_kind(
    default: Callable[..., Any],
    exact: Mapping[type, Callable[..., Any]] | None = None,
    families: Mapping[type, Callable[..., Any]] | None = None,
    *,
    place: int = 0,
) -> Callable[..., Any]:
    """The function that does what such a table says for its argument at this place."""
    rule_of = ByKind(default, exact, families).of
    return lambda *args, **kwargs: rule_of(args[place])(*args, **kwargs)
