"""Callables that can be made again elsewhere: each knows by which function, of what values, it was made.

In:     `@remade` on a function that makes a callable of values without state (and of such callables).
Out:    `call_that_made(run)`: the function's name and the arguments; None of any other callable.
Holds:  nothing here is written or read; `entries/` writes the calls down and looks names up in a table of its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

from pliant.records import dataclass

Maker = TypeVar("Maker", bound=Callable[..., Any])

_CALL = "__pliant_made_by__"  # in the `__dict__` of the callable


@dataclass(frozen=True, slots=True, eq=False)
class MakingCall:
    """`maker(*args)`; makers are known by their names."""

    maker: str
    args: tuple[Any, ...]


def remade(maker: Maker) -> Maker:
    """The maker, whose callables know how they were made."""

    @functools.wraps(maker)
    def make(*args: Any) -> Any:
        run = maker(*args)
        noted(run, maker, *args)
        return run

    return cast(Maker, make)


def noted(run: Callable[..., Any], maker: Callable[..., Any], *args: Any) -> None:
    """Note that `maker(*args)` makes such a callable."""
    run.__dict__[_CALL] = MakingCall(maker.__name__, args)


def call_that_made(run: Any) -> MakingCall | None:
    """How the callable was made; None if that is not known."""
    found: MakingCall | None = getattr(run, "__dict__", {}).get(_CALL)
    return found
