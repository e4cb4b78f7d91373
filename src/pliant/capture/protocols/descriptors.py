"""Descriptors: what a class attribute gives where it is looked up on an instance, on the class, or by `super()`.

In:     what a class has under a name, raw; the object (None: the class itself is asked).
Out:    the traced attribute, or the call that makes it.
Holds:  getters written in Python run in the interpreter; slots and getters in C are read under guards.
Source: Python's data model, "Invoking Descriptors".
"""

from __future__ import annotations

import enum
import functools
import sys
import types
from collections.abc import Callable
from typing import Any, NoReturn

from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.protocols import polyfills
from pliant.capture.protocols.tail_calls import TailCall
from pliant.capture.signatures import Tracer
from pliant.capture.trace import DELETED
from pliant.capture.value_kinds import (
    HOLDS_FUNCTIONS,
    ByKind,
    exactly,
    is_function,
    is_symbolic,
    name_of_class,
    own_field,
)
from pliant.graph.fake_tensor import is_fake
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import AttributeSource, DictAttributeSource, held
from pliant.guards.standard import LRU_CACHE, can_change

IN_C = (types.GetSetDescriptorType, types.MemberDescriptorType)


is_in_c = exactly(*IN_C)  # whether it reads a field of objects that are laid out in C

def lacks(obj: Any, name: str) -> Raised:
    """The error of an object without the attribute."""
    return Raised(AttributeError(f"'{name_of_class(obj)}' object has no attribute '{name}'", name=name, obj=obj))


def not_found(t: Tracer, obj: Any, name: str) -> Raised:
    """The error where Python's own rule finds nothing. Classes in C may have the lookup of the first Pythons, too, which no
    method shows."""
    if own_field(obj, name) is None and hasattr(obj, name):
        refuse_attributes(t, obj, name)
    t.world.note_asked(obj, False)
    return lacks(obj, name)


def refuse_attributes(t: Tracer, obj: Any, name: str) -> NoReturn:
    """Of classes in C that look attributes up by rules of their own: another object, or another thread, has others."""
    raise GraphBreak("unknown-object", f"the attributes of a {type(obj).__name__}")


def is_data_descriptor(t: Tracer, found: Any) -> bool:
    cls = type(found)
    if not can_change(cls):
        return _sets(cls)  # type: ignore[arg-type]  # mypy takes classes for unhashable
    return any(t.world.type_lookup(cls, name) is not MISSING for name in _SETTERS)


_SETTERS = ("__set__", "__delete__")


@functools.cache
def _sets(cls: type) -> bool:
    """Of a class that does not change."""
    return any(name in base.__dict__ for base in cls.__mro__ for name in _SETTERS)


def has_getter(t: Tracer, found: Any) -> bool:
    """Whether it is a descriptor."""
    return t.world.type_lookup(type(found), "__get__") is not MISSING


def inside(t: Tracer, found: Any, part: str, name: str, cls: type) -> Any:
    """What a descriptor that was found on the class holds: a function, which the entry reaches as itself, or an object, which
    is read where the descriptor has it."""
    value = getattr(found, part)
    if is_function(value):
        return t.world.hold(value, name)
    if t.world.is_made(cls) or _is_of_trace(t, cls, name, None):
        return value
    if type(value) is LRU_CACHE:
        return t.world.hold(value, name)
    return t.world.resolve(t.world.bring(value, AttributeSource(held(found, name), part)))


def bind(t: Tracer, found: Any, obj: Any, cls: type, name: str, owner: type | None = None) -> Any:
    """What `found`, which the class or one of its bases has under the name, gives for the object. `owner`: which of them."""
    if obj is None and _IS_ITSELF_OF_CLASS.of(found):
        return itself(t, found, obj, cls, name, owner)
    return _BOUND.of(found)(t, found, obj, cls, name, owner)


def itself(t: Tracer, found: Any, obj: Any, cls: type, name: str, owner: type | None) -> Any:
    """The member, which the entry reaches as itself unless the trace gave it to the class."""
    return found if _is_of_trace(t, cls, name, owner) else t.world.hold(found, f"{cls.__qualname__}.{name}")


def _function_in_c(t: Tracer, found: Any, obj: Any, cls: type, name: str, owner: type | None) -> Any:
    """One that is a method of an object has a state, which is the object's."""
    if HOLDS_FUNCTIONS.of(found.__self__):
        return itself(t, found, obj, cls, name, owner)
    return plain_class_value(t, cls, found, name, owner)


def _held_method(t: Tracer, found: Any, obj: Any, cls: type, name: str, owner: type | None) -> Any:
    return types.MethodType(itself(t, found, obj, cls, name, owner), obj)


def _read_in_c(t: Tracer, found: Any, obj: Any, cls: type, name: str, owner: type | None) -> Any:
    return t.native(found.__get__, None, cls) if obj is None else c_descriptor(t, found, obj, name)


def _of_class(t: Tracer, found: classmethod[Any, Any, Any], obj: Any, cls: type, name: str, owner: type | None) -> Any:
    function = inside(t, found, "__func__", name, cls)
    if sys.version_info < (3, 13) and hasattr(type(function), "__get__"):
        return bind(t, function, cls, cls, name)  # then it binds what it wraps
    if not callable(function):  # whoever calls it hears of that
        return found.__get__(None, cls)
    return types.MethodType(function, cls)


def _property_value(t: Tracer, found: property, obj: Any, cls: type, name: str, owner: type | None) -> Any:
    if found.fget is None:
        if cls is type(obj):
            t.native(property.__get__, found, obj, cls)  # which complains: it may have no name, or another
        raise Raised(AttributeError(f"property '{name}' of '{cls.__qualname__}' object has no getter"))
    return TailCall(inside(t, found, "fget", name, cls), (obj,))


def _compute_once(t: Tracer, found: Any, obj: Any, cls: type, name: str, owner: type | None) -> Any:
    """A cached property that is not in the instance's dict yet."""
    return TailCall(t.world.hold(polyfills.computed_once, "computed_once"), (inside(t, found, "func", name, cls), obj, str(found.attrname)))


def _got(t: Tracer, found: Any, obj: Any, cls: type, name: str, owner: type | None) -> Any:
    """What the `__get__` of the class attribute gives, if it has one."""
    if (binds := _IN_EXTENSIONS.get(type(found).__name__)) is not None:
        return binds(t, found, obj, cls, name, owner)
    if (getter := t.world.python_function(type(found), "__get__")) is not None:
        return TailCall(getter, (itself(t, found, obj, cls, name, owner), obj, cls))
    if not has_getter(t, found):
        return plain_class_value(t, cls, found, name, owner)
    if obj is not None and t.world.is_foreign(obj) and not isinstance(obj, (enum.Enum, tuple)):
        raise GraphBreak("unknown-object", f"the descriptor {type(found).__name__} behind attribute '{name}'")
    value = t.native(found.__get__, obj, cls)
    return plain_class_value(t, cls, found, name, owner) if value is found else value  # a partial, from Python 3.13 on


def _function_of_cython(t: Tracer, found: Any, obj: Any, cls: type, name: str, owner: type | None) -> Any:
    return (itself if obj is None else _held_method)(t, found, obj, cls, name, owner)


def _method_of_pybind(t: Tracer, found: Any, obj: Any, cls: type, name: str, owner: type | None) -> Any:
    function = inside(t, found, "__func__", name, cls)
    return function if obj is None else types.MethodType(function, obj)


# Descriptors of native extensions by their types' names: no module shows the types themselves.
_IN_EXTENSIONS = {"cython_function_or_method": _function_of_cython, "instancemethod": _method_of_pybind}


def plain_class_value(t: Tracer, cls: type, found: Any, name: str, owner: type | None = None) -> Any:
    """What is no descriptor, under a guard of its own."""
    if _is_of_trace(t, cls, name, owner):
        return found
    owner = owner or _owner(t, cls, name)
    assert owner is not None
    return t.world.resolve(t.world.bring(found, DictAttributeSource(t.world.class_source(owner), name)))


def _owner(t: Tracer, cls: type, name: str) -> type | None:
    """The class that has the name, or in which the trace stored it; None: a descriptor has what is bound."""
    stored = {base: t.world.slot_get(base, name) for base in cls.__mro__}
    bases = (b for b in cls.__mro__ if stored[b] is not DELETED and (name in b.__dict__ or stored[b] is not MISSING))
    return next(bases, None)


def _is_of_trace(t: Tracer, cls: type, name: str, owner: type | None) -> bool:
    """Whether the trace gave the class what it has under the name."""
    owner = owner or _owner(t, cls, name)
    return owner is not None and (t.world.is_made(owner) or t.world.slot_get(owner, name) is not MISSING)


_IN_C = (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType)
# What a class gives as it is, and binds to its instances alone.
_IS_ITSELF_OF_CLASS: ByKind[bool] = ByKind(
    False,
    dict.fromkeys((types.FunctionType, LRU_CACHE, *_IN_C[:2]), True),
    dict.fromkeys((property, functools.cached_property), True),
)
_BOUND: ByKind[Callable[..., Any]] = ByKind(
    _got,
    exact={
        types.FunctionType: lambda t, found, obj, cls, name, owner: types.MethodType(found, obj),
        types.BuiltinFunctionType: _function_in_c,
        LRU_CACHE: _held_method,
        **dict.fromkeys(_IN_C, lambda t, found, obj, cls, name, owner: t.native(found.__get__, obj, cls)),
        **dict.fromkeys(IN_C, _read_in_c),
    },
    families={
        property: _property_value,
        functools.cached_property: _compute_once,
        classmethod: _of_class,
        staticmethod: lambda t, found, obj, cls, name, owner: inside(t, found, "__func__", name, cls),
    },
)


def c_descriptor(t: Tracer, found: Any, obj: Any, name: str) -> Any:
    """A slot or a getter written in C: read it now, under the value's own guards."""
    world = t.world
    stored = world.slot_get(obj, name)
    if stored is DELETED:
        raise lacks(obj, name)
    if stored is not MISSING:
        return stored
    if name == "__traceback__" and id(obj) in t.passed:
        raise GraphBreak("unknown-object", "the traceback of an exception from outside that is raised here")
    try:
        value = t.native(found.__get__, obj)
    except Raised:
        if world.is_foreign(obj):
            world.guard(world.place_of(obj), Kind.UNSET, found)
        raise
    if not world.is_foreign(obj) or is_symbolic(value) or is_fake(value):  # traced already
        return value
    return world.resolve(world.bring(value, world.field_source(obj, name)))
