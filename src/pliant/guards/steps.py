"""The statements of an entry's check as data, and what their text refers to: all that a check needs which is there already.

Out:    `Step`, a statement with the guard that it checks; `MISS`, what an entry returns when a guard fails; `READ_ERRORS`.
Reads on: `codegen.py`, which writes the statements.
"""

from __future__ import annotations

from typing import Any

from pliant.guards.kinds import MISSING, Guard
from pliant.guards.sources import Source
from pliant.records import dataclass


class _Miss:
    """What an entry returns when a guard fails."""

    def __repr__(self) -> str:
        return "MISS"


MISS: Any = _Miss()

# What reading a source that is not there raises (ValueError: an empty cell; RuntimeError: strides of a sparse tensor),
# and what an expression has no value for: the guard that says so may come later, or be left out of a probe.
READ_ERRORS = (KeyError, AttributeError, IndexError, TypeError, ValueError, RuntimeError, ArithmeticError)


@dataclass(frozen=True, slots=True)
class Step:
    """One statement of the check; `guard` is None for a statement that only reads `source`."""

    text: str
    guard: Guard | None
    source: Source | None = None


def lookup(cls: type, name: str) -> Any:
    """The first value of the name along the class' bases, or MISSING."""
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING
