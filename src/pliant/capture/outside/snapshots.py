"""Contents of containers as they were at one moment, to tell later whether the trace changed them."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from pliant.capture.outside.set_orders import lost_items
from pliant.capture.value_kinds import ByKind, is_same_constant
from pliant.cpython import state_of


class _ById:
    """Compares values by identity (fake tensors must not be compared by value)."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and (self.value is other.value or is_same_constant(self.value, other.value))

    __hash__ = None  # type: ignore[assignment]  # never a key


def frozen(container: Any) -> Any:
    """A snapshot to compare with later: keys and elements by identity, in order."""
    return _FROZEN.of(container)(container)


_FROZEN: ByKind[Callable[[Any], Any]] = ByKind(
    lambda value: [*map(_ById, value)],
    families={
        dict: lambda value: [(_ById(k), _ById(v)) for k, v in value.items()],
        set: lambda value: ({one: _ById(one) for one in value}, state_of(value) if lost_items(value) else None),
    },
)


def unowned_copy(container: Any) -> Any:
    """A set is itself: its copy would have another table."""
    return _COPIES.of(container)(container)


_COPIES: ByKind[Callable[[Any], Any]] = ByKind(
    lambda value: type(value)(value), families={set: lambda value: value, collections.deque: collections.deque, dict: dict}
)
