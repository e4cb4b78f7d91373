"""Functions and classes that are made while the program runs, perhaps anew for each call: known by what they are made of.

In:     a function that the call was given and another one defined, or that such a class holds; an object that the call was
        given, whose class no name leads to (parametrized modules) and was another one at an earlier capture.
Out:    guards under which another function of the same code does the same, or another class: its one base, its names, and what
        each of them is.
Holds:  once a class is known so, `World.type_lookup` finds what it holds there, or asks its base; where the program
        gets hold of the class itself, the object's class is that one (`World.fix_class`).
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.signatures import World
from pliant.capture.value_kinds import ByKind, is_constant, is_function, module_of
from pliant.dispatch import markers
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.parts import dict_of, root_of
from pliant.guards.sources import AttributeSource, DictAttributeSource, Source, TypeSource
from pliant.guards.standard import can_change
from pliant.regular import pattern

if TYPE_CHECKING:
    from pliant.capture.outside.fields import Fields

# ---- functions
_LOCAL = pattern("<locals>|<lambda>")


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
    """Whether a function was defined inside another one and came as an argument, or is registered as a hook."""
    return (root_of(source).is_given or source.is_registered) and is_defined_inside(function) and not _is_known(function)


def _is_known(function: types.FunctionType) -> bool:
    """Whether calls of it are not interpreted."""
    from pliant.capture.handlers.table import find_special  # which needs what brings functions
    from pliant.capture.recording.torch_calls import is_torch_leaf

    ours = module_of(function).partition(".")[0] == "pliant"
    return ours or is_torch_leaf(function) or find_special(function) is not None


def is_defined_inside(function: types.FunctionType) -> bool:
    """Whether a function was defined inside another one, and nothing is said about it besides."""
    return bool(_LOCAL.search(function.__qualname__)) and not function.__dict__ and not markers.is_marked(function)


# ---- classes
_MANY = 32  # names in a class that was made for an object
_ACCESSORS: dict[type, tuple[str, ...]] = {
    property: ("fget", "fset", "fdel"),
    **dict.fromkeys((staticmethod, classmethod), ("__func__",)),
}


def know_by_parts(world: World, cls: type, source: Source) -> bool:
    """Guard the class of the value of a source by what it holds; False if it has to be this one."""
    place, known = TypeSource(source), world.class_sources.get(cls)
    if known is not None:
        world.guard(place, Kind.SAME_AS, known)
        return True
    if not root_of(source).is_given or not _is_made_at_run_time(cls):
        return False
    if not world.inputs.policy.class_varies(source, cls):
        return False
    world.class_sources[cls] = place
    world.guard(TypeSource(place), Kind.IDENTITY, type)
    for name, expected in (
        ("__bases__", cls.__bases__),
        ("__name__", cls.__name__),
        ("__qualname__", cls.__qualname__),
    ):
        world.guard(AttributeSource(place, name), Kind.EQUALS, expected)
    world.guard(dict_of(place), Kind.KEYS, tuple(cls.__dict__))
    for name, value in cls.__dict__.items():
        if not is_constant(value):
            _MEMBERS.of(value)(world, value, DictAttributeSource(place, name))
    world.type_lookup(cls, "__class__")  # any name: the bases of its base stay as they are
    return True


def lookup(world: Fields, cls: type, name: str) -> Any:
    """The first value along the bases of such a class."""
    found = cls.__dict__.get(name, MISSING)
    if found is MISSING:
        return world.type_lookup(cls.__bases__[0], name)
    if is_constant(found):
        world.guard(DictAttributeSource(world.class_sources[cls], name), Kind.EQUALS, found)
    return found


def _is_made_at_run_time(cls: Any) -> bool:
    """Whether it is a plain class of one base, all of Python, that its module does not have under its name."""
    if type(cls) is not type or len(cls.__bases__) != 1 or len(cls.__dict__) > _MANY:
        return False
    if not all(base is object or can_change(base) for base in cls.__mro__):
        return False
    found: Any = sys.modules.get(cls.__dict__.get("__module__"))  # type: ignore[arg-type]
    for name in cls.__qualname__.split("."):
        found = getattr(found, "__dict__", {}).get(name)
    return found is not cls


def _guard_accessor(world: World, value: Any, place: Source) -> None:
    """By its class and what it calls."""
    world.guard(place, Kind.TYPE, type(value))
    world.set_origin(value, place)
    for name in _ACCESSORS[type(value)]:
        _guard_function(world, getattr(value, name), AttributeSource(place, name))


def _guard_function(world: World, value: Any, place: Source) -> None:
    """By its code and what it closes over, if it was defined for the class."""
    if is_function(value) and is_defined_inside(value):
        bring_function(world, value, place)
    else:
        world.guard(place, Kind.IDENTITY, value)


_MEMBERS: ByKind[Callable[[World, Any, Source], None]] = ByKind(
    _guard_function,
    {
        **dict.fromkeys(_ACCESSORS, _guard_accessor),
        # Of instances' `__dict__` and `__weakref__`.
        types.GetSetDescriptorType: lambda world, value, place: world.guard(place, Kind.TYPE, types.GetSetDescriptorType),
    },
)
