"""What a running graph checks: conditions that the program states, and assumptions that its code was made under.

Out:    `check`, `assume`: functions that graphs call; `place`: marks in messages.
Holds:  a process that found its graph on disk runs them: they need nothing that compiles.
"""

from __future__ import annotations

import builtins
from typing import Any

from pliant.errors import AssumptionError
from pliant.regular import pattern

_PLACE = pattern("\0(\\d+):(.*?)\0")


def place(number: int, spec: str) -> str:
    """The mark in a message where value `number` is to be formatted by `spec`."""
    return f"\0{number}:{spec}\0"


def check(condition: bool, error: str | type[Exception], message: str, *values: Any) -> None:
    """Raise the error (a built-in one by its name) unless the condition holds; marks in the message stand for the values."""
    if condition:
        return
    kind = getattr(builtins, error) if isinstance(error, str) else error
    raise kind(_PLACE.sub(lambda m: format(values[int(m[1])], m[2]), message))


def assume(condition: bool, text: str, where: str) -> None:
    """Raise `AssumptionError` unless the condition holds, which compiled code takes for granted."""
    if not condition:
        error = AssumptionError(f"`{text}` does not hold", kind="assumption", where=where)
        error.assumed = text
        raise error
