"""Small immutable values from outside that a trace makes again of their parts: what is inside them may be traced.

In:     the world, a value whose class is guarded, its source.
Out:    `MADE_AGAIN[class](world, value, source)`: the traced form.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from pliant.capture.signatures import World
from pliant.guards.kinds import Kind
from pliant.guards.sources import AttributeSource, MethodSource, Source


def _method(world: World, value: types.MethodType, source: Source) -> types.MethodType:
    function = world.bring(value.__func__, AttributeSource(source, "__func__"))
    return types.MethodType(function, world.bring(value.__self__, AttributeSource(source, "__self__")))


def _proxy(world: World, value: Any, source: Source) -> types.MappingProxyType[Any, Any]:
    """Of a copy: only C sees the dict behind it."""
    copied = value.copy()
    world.set_origin(copied, MethodSource(source, "copy"))
    return types.MappingProxyType(world.adopt(copied))


def _frozenset(world: World, value: frozenset[Any], source: Source) -> frozenset[Any]:
    world.guard(source, Kind.KEYS, tuple(value))
    return value


MADE_AGAIN: dict[type, Callable[[World, Any, Source], Any]] = {
    types.MethodType: _method,
    types.MappingProxyType: _proxy,
    slice: lambda world, value, source: slice(
        *(world.bring(getattr(value, n), AttributeSource(source, n)) for n in ("start", "stop", "step"))
    ),
    frozenset: _frozenset,
}
