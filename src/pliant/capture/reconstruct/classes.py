"""How classes that the traced program defined are made again.

In:     a class and the `Statements` it is for.
Out:    its expression: the class itself if nothing of it depends on the call, else one made anew in each call.
"""

from __future__ import annotations

import _collections  # type: ignore[import-not-found]
import enum
import functools
import gc
import re
import types
from collections.abc import Callable
from typing import Any

from pliant.capture.bytecode.resume import stores_to
from pliant.capture.reconstruct.statements import CannotReconstruct, Statements
from pliant.capture.value_kinds import CONSTANT_TYPES, ByKind, is_class
from pliant.guards.kinds import Guard, Kind
from pliant.guards.parts import root_of
from pliant.guards.sources import held
from pliant.guards.standard import SENTINEL_TYPES

# What class statements, `dataclass`, `namedtuple` and `Enum` note, which programs do not change.
_NOTED = re.compile(r"__\w+__|_\w+_|_field_defaults|_abc_impl")


def class_(b: Statements, obj: type) -> str:
    """The class itself, or one made anew: with the variables of this call, and contents of its own."""
    if id(obj) not in b.trace.made:
        return b.hold(obj)
    if _Sharing(b).allows(obj):
        _guard_contents(b, obj)
        return b.hold(obj)
    space = {k: v for k, v in vars(obj).items() if k not in ("__dict__", "__weakref__")}
    plain_bases = not any("__init_subclass__" in vars(base) for base in obj.__mro__[1:] if base is not object)
    if type(obj) is not type or "__slots__" in space or not plain_bases:
        raise CannotReconstruct("class-with-closure", obj)
    start = {"__module__": space.pop("__module__"), "__qualname__": obj.__qualname__}
    name = b.bind(obj, f"type({obj.__name__!r}, ({b.items(obj.__bases__)},), {start!r})", hint=obj.__name__)
    b.fill_each(space.items(), lambda k, v: f"type.__setattr__({name}, {k!r}, {b.value(v)})")
    return name


def owner_of(b: Statements, function: types.FunctionType) -> type | None:
    """The class that serves all calls and has the function, which is then no other for who holds it alone."""
    classes = (one for one in b.trace.made.values() if is_class(one) and any(v is function for v in vars(one).values()))
    return next(filter(_Sharing(b).allows, classes), None)


def _guard_contents(b: Statements, cls: type) -> None:
    """A class that was changed since it was made serves no other call."""
    source = held(cls, cls.__qualname__)
    contents = {name: value for name, value in vars(cls).items() if name not in _MADE_LATER}
    b.writer.add_each(Guard(source, Kind.TYPE_LOOKUP, (name, value)) for name, value in contents.items())
    b.writer.require(f"not {b.hold(cls)}.__dict__.keys() <= {b.hold({*vars(cls), *_MADE_LATER})}", None)


_MADE_LATER = ("__annotations__", "__doc__", "__weakref__", "__dict__")  # by CPython, perhaps not before it is asked


class _Sharing:
    """Whether one class can serve all calls: nothing in it can differ from call to call or be changed by one."""

    def __init__(self, b: Statements) -> None:
        self.trace = b.trace
        self.seen: set[int] = set()
        frames = self.trace.end.frames
        self.variables = {id(cell) for frame in frames for cell in frame.cells}  # which frames may still store to

    def allows(self, value: Any) -> bool:
        if id(value) in self.seen or type(value) in _PLAIN:
            return True
        self.seen.add(id(value))
        known = self.trace.origins.get(id(value))
        if known is not None:
            return root_of(known[1]).is_held
        parts = _PARTS.of(value)(self, value)
        return parts is not None and all(map(self.allows, parts))

    def _of_function(self, function: types.FunctionType) -> list[Any] | None:
        if self._has_variables(function):
            return None
        cells = [contents for cell in function.__closure__ or () for contents in gc.get_referents(cell)]
        return [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values(), *vars(function).values()]

    def _has_variables(self, function: types.FunctionType) -> bool:
        """Whether what its cells hold may change: a frame that goes on behind a break has them, or its code stores."""
        code = function.__code__
        cells = [pair for pair in zip(code.co_freevars, function.__closure__ or ()) if pair[0] != "__class__"]
        return any(id(cell) in self.variables or stores_to(code, name) for name, cell in cells)

    def _of_class(self, cls: type) -> list[Any]:
        if id(cls) not in self.trace.made:
            return []
        noted = (types.FunctionType, enum.Enum)
        own = [v for k, v in vars(cls).items() if isinstance(v, noted) or not _NOTED.fullmatch(k)]
        return [*own, *cls.__bases__, type(cls)]


_PLAIN = {
    *CONSTANT_TYPES,
    *SENTINEL_TYPES,
    int,
    float,
    types.BuiltinFunctionType,
    types.MemberDescriptorType,
    types.GetSetDescriptorType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ModuleType,
    _collections._tuplegetter,  # a field of a named tuple
}


# What else must be the same in each call; None if the value itself is made or changed by calls.
_PARTS: ByKind[Callable[[_Sharing, Any], list[Any] | None]] = ByKind(
    lambda sharing, value: None,
    families={
        types.FunctionType: _Sharing._of_function,
        type: _Sharing._of_class,
        **dict.fromkeys((staticmethod, classmethod), lambda sharing, v: [v.__func__]),
        property: lambda sharing, v: [v.fget, v.fset, v.fdel],
        functools.cached_property: lambda sharing, v: [v.func],
        enum.Enum: lambda sharing, v: [v._value_],
        **dict.fromkeys((tuple, frozenset), lambda sharing, v: list(v)),
    },
)
