"""Contents of containers as they were at one moment, to tell later whether the trace changed them."""

from __future__ import annotations

import collections
from typing import Any

from pliant.capture.set_orders import lost_items
from pliant.cpython import state_of


class _ById:
    """Compares values by identity (fake tensors must not be compared by value)."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ById) and (self.value is other.value or _same_constant(self.value, other.value))

    __hash__ = None  # type: ignore[assignment]  # never a key


def _same_constant(a: Any, b: Any) -> bool:
    return type(a) is type(b) and type(a) in (int, float, str, bool, bytes) and bool(a == b)


def frozen(container: Any) -> Any:
    """A snapshot to compare with later: keys and elements by identity, in order."""
    if isinstance(container, dict):
        return [(_ById(k), _ById(v)) for k, v in container.items()]
    if isinstance(container, set):
        return set(container), state_of(container) if lost_items(container) else None
    return [_ById(v) for v in container]


def unowned_copy(container: Any) -> Any:
    """A set is itself: its copy would have another table."""
    if isinstance(container, set):
        return container
    if isinstance(container, collections.deque):
        return collections.deque(container)
    return dict(container) if isinstance(container, dict) else type(container)(container)
