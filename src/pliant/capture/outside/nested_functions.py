"""Functions that were defined by another one, and may be defined anew for each call: known by what they are made of.

In:     a function that the call was given, or that a class made at run time holds, and its source.
Out:    guards under which another function of the same code does the same.
"""

from __future__ import annotations

import re
import types
from typing import Any

from pliant.capture.signatures import World
from pliant.capture.value_kinds import module_of
from pliant.dispatch import markers
from pliant.guards.kinds import Kind
from pliant.guards.parts import root_of
from pliant.guards.sources import AttributeSource, Source

_LOCAL = re.compile("<locals>|<lambda>")


def bring_function(world: World, value: types.FunctionType, source: Source) -> Any:
    """Guard a function by its code and the sizes of its defaults; what it closes over is read when it is called."""
    known = world.source_of(value)
    if known is not None and known != source:
        world.guard(source, Kind.SAME_AS, known)
        return value
    world.guard(source, Kind.TYPE, types.FunctionType)
    for name in ("__code__", "__globals__"):
        world.guard(AttributeSource(source, name), Kind.IDENTITY, getattr(value, name))
    for name in ("__defaults__", "__kwdefaults__"):
        part = getattr(value, name)
        place = AttributeSource(source, name)
        if part is None:
            world.guard(place, Kind.IDENTITY, None)
        else:
            world.guard(place, Kind.LENGTH, len(part))
    world.guard(AttributeSource(source, "__dict__"), Kind.EMPTY)
    world.known_by_parts[id(value)] = value
    world.set_origin(value, source)
    return value


def is_made_per_call(function: types.FunctionType, source: Source) -> bool:
    """Whether a function was defined inside another one and came as an argument."""
    return root_of(source).is_given and is_defined_inside(function) and not _is_known(function)


def _is_known(function: types.FunctionType) -> bool:
    """Whether calls of it are not interpreted."""
    from pliant.capture.handlers.table import find_special  # which needs what brings functions
    from pliant.capture.recording.torch_calls import is_torch_leaf

    ours = module_of(function).partition(".")[0] == "pliant"
    return ours or is_torch_leaf(function) or find_special(function) is not None


def is_defined_inside(function: types.FunctionType) -> bool:
    """Whether a function was defined inside another one, and nothing is said about it besides."""
    return bool(_LOCAL.search(function.__qualname__)) and not function.__dict__ and not markers.is_marked(function)
