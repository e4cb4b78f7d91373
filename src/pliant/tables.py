"""Tables that are filled from one place: a second row under one key is an error, not the last word.

Holds:  a row stays as it is. Where a row is meant to be another's, the module that has both says so by its own name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


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
