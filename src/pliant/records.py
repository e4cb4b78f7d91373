"""Dataclasses that cost next to nothing until they are used.

The standard library generates five methods a class as text, where the class is defined: for the classes that a call needs
which finds its compiled code on disk, that is more than half of the time in which they are imported. Here a
method's text is made when the method is first looked up.

In:     a class with annotated fields, `dataclasses.field` among their values.
Out:    `dataclass`, used as the standard one: `dataclasses.fields`, `replace` and `is_dataclass` take these classes as well.
Holds:  what two threads make of one class at a time is the same, and each sets it whole.
"""

from __future__ import annotations

import dataclasses
import reprlib
import types
from collections.abc import Callable
from dataclasses import MISSING, Field
from typing import TYPE_CHECKING, Any

_Fields = dict[str, "Field[Any]"]


class _Factory:
    """The default of what a factory makes, as signatures show it."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _dataclass(
    cls: Any = None, *, frozen: bool = False, slots: bool = False, eq: bool = True, kw_only: bool = False, weakref_slot: bool = False
) -> Any:
    """The class, with what the standard decorator gives it. Without `cls`, a decorator."""
    if cls is None:
        return lambda given: _dataclass(given, frozen=frozen, slots=slots, eq=eq, kw_only=kw_only, weakref_slot=weakref_slot)
    own = _own_values(cls)
    made = _with_slots(cls, own, weakref_slot) if slots else _without_fields(cls, own)
    there, put = made.__dict__, type.__setattr__
    for name, value in _members(made, own, kw_only, eq, frozen, slots).items():
        if name not in there:
            put(made, name, value)
    return made


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass


# ---- fields
@dataclasses.dataclass(init=False, repr=False, eq=False)
class _Example:
    field: int


_FIELD = dataclasses.fields(_Example)[0]._field_type  # type: ignore[attr-defined]  # by which `fields` knows them from others


def _own_values(cls: Any) -> dict[str, Any]:
    """Of each field that the class annotates what it is given there: a default, a `Field`, nothing (`MISSING`)."""
    space, found = cls.__dict__, {}
    for name, annotation in space.get("__annotations__", {}).items():
        if (text := _text(annotation)).startswith(_OF_CLASSES):
            continue
        if text.startswith(_STANDARD):
            raise TypeError(f"{cls.__name__}.{name}: {annotation} is for the standard decorator")
        found[name] = value = space.get(name, MISSING)
        default = type(value.default if isinstance(value, Field) else value)
        if default not in _HASHED and _has_no_hash(default):
            raise ValueError(f"{cls.__name__}.{name}: all objects would share this default; use default_factory")
    return found


def _fields(cls: Any, own: dict[str, Any], kw_only: bool) -> _Fields:
    """Those of the bases, and its own."""
    found: _Fields = {}
    for base in cls.__mro__[:0:-1]:
        if "__dataclass_fields__" in base.__dict__:
            found |= base.__dataclass_fields__
    annotations = cls.__dict__.get("__annotations__", {})  # noqa: RUF063  # of the class itself alone
    for name, value in own.items():
        one: Any = value if isinstance(value, Field) else dataclasses.field(default=value)
        one.name, one.type, one._field_type = name, annotations[name], _FIELD
        if one.kw_only is MISSING:
            one.kw_only = kw_only
        found[name] = one
    return found


_OF_CLASSES = ("ClassVar", "typing.ClassVar")
_STANDARD = ("InitVar", "dataclasses.InitVar", "KW_ONLY", "dataclasses.KW_ONLY")
_HASHED = frozenset({bool, int, float, str, tuple, type(None), type(MISSING)})


def _text(annotation: Any) -> str:
    """As it is written; that of a type with arguments, whose text takes long, says only what it is a form of."""
    if isinstance(annotation, str):
        return annotation
    return str(getattr(annotation, "__origin__", annotation))


def _has_no_hash(cls: Any) -> bool:
    """Whether `cls.__hash__` is None; where it is still to be made it is not made for that."""
    return next(base.__dict__["__hash__"] for base in cls.__mro__ if "__hash__" in base.__dict__) is None


def _without_fields(cls: Any, own: dict[str, Any]) -> Any:
    """The class; what a `Field` says of a default is its attribute, the `Field` none."""
    for name, value in own.items():
        if isinstance(value, Field):
            if value.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, value.default)
    return cls


def _with_slots(cls: Any, own: dict[str, Any], weakref_slot: bool) -> Any:
    """The class again, with a slot for each field that no base has one for: slots cannot be added to a class."""
    taken = {name for base in cls.__mro__[1:-1] for name in base.__dict__.get("__slots__", ())}
    space = {name: value for name, value in cls.__dict__.items() if name not in own and name not in ("__dict__", "__weakref__")}
    space["__slots__"] = tuple(name for name in own if name not in taken) + ("__weakref__",) * weakref_slot
    made = type(cls)(cls.__name__, cls.__bases__, space)
    made.__qualname__ = cls.__qualname__
    return made


# ---- members
def _members(cls: Any, own: dict[str, Any], kw_only: bool, eq: bool, frozen: bool, slots: bool) -> dict[str, Any]:
    return {
        "__dataclass_fields__": _Unmade(cls, "__dataclass_fields__", lambda cls: _fields(cls, own, kw_only)),
        "__dataclass_params__": _FROZEN if frozen else _NOT_FROZEN,
        "__match_args__": _Unmade(cls, "__match_args__", _matched),
        "__init__": _UnmadeInit(cls, "__init__", _init),
        "__repr__": _Unmade(cls, "__repr__", _repr),
        **(_compared(cls, frozen) if eq else {}),
        **(_frozen(cls, slots) if frozen else {}),
    }


_FROZEN, _NOT_FROZEN = types.SimpleNamespace(frozen=True), types.SimpleNamespace(frozen=False)


def _matched(cls: Any) -> tuple[str, ...]:
    return tuple(name for name, one in cls.__dataclass_fields__.items() if one.init and not one.kw_only)


class _Unmade:
    """In place of a method, or of what the class says of itself, until it is first looked up."""

    __slots__ = ("cls", "make", "name")

    def __init__(self, cls: Any, name: str, make: Callable[[Any], Any]) -> None:
        self.cls, self.name, self.make = cls, name, make

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        made = self.make(self.cls)
        type.__setattr__(self.cls, self.name, made)
        return made.__get__(obj, owner) if obj is not None and type(made) is types.FunctionType else made


class _UnmadeInit(_Unmade):
    """In place of `__init__` until a few objects are made: text costs as much as some twenty of them, and of most classes a call
    that finds its code on disk makes one or two."""

    __slots__ = ("few",)

    def __init__(self, cls: Any, name: str, make: Callable[[Any], types.FunctionType]) -> None:
        super().__init__(cls, name, make)
        self.few = 8

    def __get__(self, obj: Any, owner: Any = None) -> Any:
        self.few -= 1
        return super().__get__(obj, owner) if obj is None or self.few < 0 else types.MethodType(self._fill, obj)

    def _fill(self, obj: Any, /, *args: Any, **kwargs: Any) -> None:
        values = _values_of(self.cls, args, kwargs)
        if values is None:  # the method itself says what is wrong
            self.make(self.cls)(obj, *args, **kwargs)
            return
        put = object.__setattr__ if self.cls.__dataclass_params__.frozen else setattr
        for name, value in values.items():
            put(obj, name, value)
        if hasattr(self.cls, "__post_init__"):
            obj.__post_init__()


def _values_of(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | None:
    """What `__init__` sets, by field; None where it does not take these arguments."""
    fields: _Fields = cls.__dataclass_fields__
    places = [one.name for one in fields.values() if one.init and not one.kw_only]
    given = dict(zip(places, args))
    taken = len(given) + len(kwargs)
    given |= kwargs
    if len(args) > len(places) or len(given) < taken:
        return None
    values: dict[str, Any] = {}
    for name, one in fields.items():
        if one.init and name in given:
            values[name] = given.pop(name)
        elif one.default_factory is not MISSING:
            values[name] = one.default_factory()
        elif one.default is not MISSING:
            if one.init or _has_slot(cls, name):
                values[name] = one.default
        elif one.init:
            return None
    return None if given else values


def _from_text(cls: Any, name: str, parameters: list[str], lines: list[str], names: dict[str, Any]) -> types.FunctionType:
    exec(f"def {name}({', '.join(parameters)}):\n  " + "\n  ".join(lines), names | {"__name__": cls.__module__}, names)
    made: types.FunctionType = names[name]
    made.__qualname__ = f"{cls.__qualname__}.{name}"
    return made


def _init(cls: Any) -> types.FunctionType:
    """`__init__` as the standard decorator writes it."""
    fields: _Fields = cls.__dataclass_fields__
    frozen = cls.__dataclass_params__.frozen
    names: dict[str, Any] = {"_FACTORY": _FACTORY, "_set": object.__setattr__}
    lines = [text for one in fields.values() if (text := _assigned(cls, one, frozen, names))]
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    given = [one for one in fields.values() if one.init]
    plain, by_name = ([_parameter(one) for one in given if one.kw_only is which] for which in (False, True))
    parameters = ["self", *plain, *(["*", *by_name] if by_name else [])]
    made = _from_text(cls, "__init__", parameters, lines or ["pass"], names)
    made.__annotations__ = {one.name: one.type for one in given} | {"return": None}
    return made


def _parameter(one: Field[Any]) -> str:
    if one.default is not MISSING:
        return f"{one.name}=_default_{one.name}"
    return one.name if one.default_factory is MISSING else f"{one.name}=_FACTORY"


def _assigned(cls: Any, one: Field[Any], frozen: bool, names: dict[str, Any]) -> str:
    """The statement that sets the field; "" where the class has its value."""
    name = value = one.name
    if one.default is not MISSING:
        names[f"_default_{name}"] = one.default
        value = name if one.init else f"_default_{name}"
    elif one.default_factory is not MISSING:
        names[f"_make_{name}"] = one.default_factory
        value = f"_make_{name}() if {name} is _FACTORY else {name}" if one.init else f"_make_{name}()"
    if not one.init and (one.default_factory is MISSING and (one.default is MISSING or not _has_slot(cls, name))):
        return ""
    if not frozen:
        return f"self.{name} = {value}"
    if _has_slot(cls, name):
        names[f"_set_{name}"] = getattr(cls, name).__set__
        return f"_set_{name}(self, {value})"
    return f"_set(self, {name!r}, {value})"


def _has_slot(cls: Any, name: str) -> bool:
    return isinstance(getattr(cls, name, None), types.MemberDescriptorType)


def _repr(cls: Any) -> Callable[[Any], str]:
    names = [name for name, one in cls.__dataclass_fields__.items() if one.repr]

    @reprlib.recursive_repr()
    def __repr__(self: Any) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return __repr__


def _compared(cls: Any, frozen: bool) -> dict[str, Any]:
    """Comparison and hash by the fields; a class whose objects change and compare has no hash."""
    hashed = _Unmade(cls, "__hash__", _hash) if frozen else None
    if "__eq__" in cls.__dict__ and cls.__dict__.get("__hash__") is None:
        type.__setattr__(cls, "__hash__", hashed)  # Python had set None for the class's own `__eq__`
    return {"__eq__": _Unmade(cls, "__eq__", _eq), "__hash__": hashed}


def _eq(cls: Any) -> types.FunctionType:
    names = [name for name, one in cls.__dataclass_fields__.items() if one.compare]
    same = f"return {_values('self', names)} == {_values('other', names)}"
    return _from_text(cls, "__eq__", ["self", "other"], [f"if other.__class__ is self.__class__: {same}", "return NotImplemented"], {})


def _hash(cls: Any) -> types.FunctionType:
    fields: _Fields = cls.__dataclass_fields__
    names = [name for name, one in fields.items() if (one.compare if one.hash is None else one.hash)]
    return _from_text(cls, "__hash__", ["self"], [f"return hash({_values('self', names)})"], {})


def _values(of: str, names: list[str]) -> str:
    return f"({''.join(f'{of}.{name}, ' for name in names)})"


def _frozen(cls: Any, slots: bool) -> dict[str, Any]:
    """No field is set again; copies and pickles of what has slots are made past that."""

    def __setattr__(self: Any, name: str, value: object) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: Any, name: str) -> None:
        if type(self) is cls or name in cls.__dataclass_fields__:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    def __getstate__(self: Any) -> list[Any]:
        return [getattr(self, name) for name in cls.__dataclass_fields__]

    def __setstate__(self: Any, state: list[Any]) -> None:
        for name, value in zip(cls.__dataclass_fields__, state, strict=True):
            object.__setattr__(self, name, value)

    state = {"__getstate__": __getstate__, "__setstate__": __setstate__} if slots else {}
    return {"__setattr__": __setattr__, "__delattr__": __delattr__, **state}
