"""How instances of the program's classes are made again, and these classes: an empty instance of the builtin base, then its contents.

In:     an instance or a class, and the `Statements` it is for.
Out:    its expression: a class itself if nothing of it depends on the call, else one made anew in each call.
Holds:  no `__new__`, `__init__`, `__setitem__` or `__setattr__` of the program's classes runs.
"""

from __future__ import annotations

import _collections  # type: ignore[import-not-found]
import collections
import contextlib
import enum
import functools
import gc
import inspect
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pliant import set_orders
from pliant.bytecode.resume import stores_to
from pliant.capture.iterators.generators import TracedCallback
from pliant.capture.reconstruct.statements import CannotReconstruct, Recipe, Statements
from pliant.capture.value_kinds import (
    CONSTANT_TYPES,
    ByKind,
    derives,
    deriving,
    exactly,
    is_class,
    is_exception,
    is_function,
)
from pliant.guards.kinds import Guard, Kind
from pliant.guards.parts import root_of
from pliant.guards.sources import held
from pliant.guards.standard import SENTINEL_TYPES, can_change
from pliant.regular import pattern


def _fill_list(b: Statements, obj: Any, name: str) -> None:
    if list.__len__(obj):
        b.fill(lambda: f"list.extend({name}, [{b.items(list.__iter__(obj))}])")


def _fill_mapping(b: Statements, obj: Any, name: str) -> None:
    if dict.__len__(obj):
        b.fill(lambda: f"dict.update({name}, {{{b.pairs(dict.items(obj))}}})")


def _fill_ordered(b: Statements, obj: Any, name: str) -> None:
    base = b.hold(collections.OrderedDict)
    pairs = [(key, dict.__getitem__(obj, key)) for key in collections.OrderedDict.__iter__(obj)]
    b.fill_each(pairs, lambda k, v: f"{base}.__setitem__({name}, {b.value(k)}, {b.value(v)})")


def _fill_defaultdict(b: Statements, obj: Any, name: str) -> None:
    base = b.hold(collections.defaultdict)
    b.emit(f"{base}.__init__({name}, {b.value(obj.default_factory)})")
    _fill_mapping(b, obj, name)


def fill_set(b: Statements, obj: Any, name: str) -> None:
    """Give an empty set this one's items, in its order."""
    for step in steps_of_set(b, obj):
        b.fill(functools.partial(step_of_set, b, step, name))


def steps_of_set(b: Statements, obj: Any) -> list[set_orders.Step]:
    """What an empty set goes through to have this one's items and, if it lost some, its table: what `pop` takes next depends
    on that."""
    has_lost = set_orders.lost_items(obj)
    steps = set_orders.steps_to(obj) if has_lost else set_orders.additions(obj)
    if steps is None:
        raise CannotReconstruct("order-of-a-set", obj)
    if has_lost and not set_orders.HASH_ALIKE.issuperset(map(type, set.__iter__(obj))):
        b.trace.process_bound = "the table of a set that lost items, which are no numbers"
    return [(what, items) for what, items in steps if items or what == "pop"]


def step_of_set(b: Statements, step: set_orders.Step, name: str) -> str:
    what, items = step
    if what == "discard":
        return "; ".join([f"set.discard({name}, {item!r})" for item in items])
    return f"set.pop({name})" if what == "pop" else f"set.update({name}, {_added(b, what, items)})"


def _added(b: Statements, what: str, items: list[Any]) -> str:
    return f"[{b.items(items)}]" if what == "add" else f"dict.fromkeys([{b.items(items)}])"


def _fill_deque(b: Statements, obj: Any, name: str) -> None:
    base = b.hold(collections.deque)
    b.fill(lambda: f"{base}.__init__({name}, [{b.items(list(collections.deque.__iter__(obj)))}], {obj.maxlen!r})")


def referent_text(b: Statements, obj: weakref.ref[Any]) -> str:
    """The arguments that make a weak reference."""
    found, callback = weakref.ref.__call__(obj), obj.__callback__
    if found is None:
        with contextlib.suppress(TypeError):  # it has no hash; one asked while the object lived is kept
            hash(obj)
            raise CannotReconstruct("builtin-instance", obj)
    for older in () if found is None or callback is None else reversed(weakref.getweakrefs(found)):
        if older is obj:
            break
        if _is_of_same_trace(older.__callback__, callback) and not b.is_open(older):  # the newest is called first
            b.value(older)
    text = "set()" if found is None else b.value(found)  # dead at once
    return text if callback is None else f"{text}, {b.value(callback)}"


def _is_of_same_trace(one: Any, other: Any) -> bool:
    """Of two callbacks; what earlier traces made lives until garbage is collected."""
    return _is_callback(one) and _is_callback(other) and one.tracer is other.tracer


_is_callback = exactly(TracedCallback)


def frozen_items(b: Statements, obj: frozenset[Any]) -> str:
    """What a frozenset is made of to have this one's order; what its table lost by an operator shows nowhere else."""
    steps = set_orders.additions(obj)
    if steps is None:
        raise CannotReconstruct("order-of-a-set", obj)
    groups = [_added(b, what, items) for what, items in steps if items] or ["[]"]
    return groups[0] if len(groups) == 1 else f"{{{', '.join('*' + one for one in groups)}}}"


# What `__new__` of a builtin base takes beside the class.
_GIVEN: dict[type, Recipe] = {
    weakref.ref: referent_text,
    frozenset: frozen_items,
    tuple: lambda b, obj: b.value(tuple(tuple.__iter__(obj))),
    int: lambda b, obj: b.value(int.__int__(obj)),
    float: lambda b, obj: b.value(float.__float__(obj)),
    str: lambda b, obj: b.value(str.__str__(obj)),
    bytes: lambda b, obj: b.value(bytes.__getitem__(obj, slice(None))),
}
# How an empty instance of a builtin base is filled.
_FILLED: dict[type, Callable[[Statements, Any, str], None]] = {
    list: _fill_list,
    dict: _fill_mapping,
    collections.OrderedDict: _fill_ordered,
    collections.defaultdict: _fill_defaultdict,
    set: fill_set,
    collections.deque: _fill_deque,
}
_BASES = {object, types.SimpleNamespace, *_GIVEN, *_FILLED}


def _builtin_base(cls: type) -> type:
    """The class implemented in C whose memory layout instances of the class have."""
    base: type = cls
    while base not in _BASES and can_change(base) and base.__base__ is not None:
        base = base.__base__
    return base


def _is_plain(cls: type) -> bool:
    """Whether `object.__new__` can make an instance; extension classes on the heap refuse it."""
    try:
        object.__new__(cls)
    except TypeError:
        return False
    return True


def instance(b: Statements, obj: Any) -> str:
    base, given = _builtin_base(type(obj)), []
    if base is object and not _is_plain(type(obj)) or base not in _BASES and not is_exception(obj):
        raise CannotReconstruct("builtin-instance", obj)
    if base in _GIVEN:
        given = [_GIVEN[base](b, obj)]
    elif _is_group(obj):  # nothing changes later what it holds
        given = [b.value(_read(BaseExceptionGroup, obj, "message")), f"[{b.items(_read(BaseExceptionGroup, obj, 'exceptions'))}]"]
    name = b.bind(obj, f"{b.hold(base)}.__new__({', '.join([b.value(type(obj)), *given])})")
    if is_exception(obj):
        _fill_exception(b, obj, name)
    elif base in _FILLED:
        _FILLED[base](b, obj, name)
    fill_dict(b, obj, name)
    b.fill_each(slots_of(obj), lambda k, v: f"object.__setattr__({name}, {k!r}, {b.value(v)})")
    return name


_OF_DICTS = (types.GetSetDescriptorType, types.MemberDescriptorType, type(None))


def _found_in_class(cls: type, name: str) -> Any:
    return next((vars(base)[name] for base in cls.__mro__ if name in vars(base)), None)


def fill_dict(b: Statements, obj: Any, name: str) -> str:
    """Give the object that has the name its attributes."""
    table: dict[str, Any] = {}
    with contextlib.suppress(AttributeError):
        table = object.__getattribute__(obj, "__dict__")
    if not isinstance(_found_in_class(type(obj), "__dict__"), _OF_DICTS):  # the class' own hides the real one
        raise CannotReconstruct("builtin-instance", obj)
    plain = not is_function(type(obj).__getattribute__)  # the program's is not run
    place = f"{name}.__dict__" if plain or not table else f"{b.hold(object.__getattribute__)}({name}, '__dict__')"
    b.fill_each(table.items(), lambda k, v: f"{place}[{k!r}] = {b.value(v)}")
    return name


def slots_of(obj: Any) -> Iterable[tuple[str, Any]]:
    """Names and values of the filled `__slots__` of all classes."""
    for cls in type(obj).__mro__:
        if not can_change(cls):
            continue
        for name, descriptor in cls.__dict__.items():
            if isinstance(descriptor, types.MemberDescriptorType):
                try:
                    yield name, descriptor.__get__(obj)
                except AttributeError:
                    continue  # unset


# ---- exceptions: their arguments, the fields that classes in C keep beside these, and what they are chained to
_CHAIN = ("__traceback__", "__cause__", "__context__", "__suppress_context__")
_is_group = deriving(BaseExceptionGroup)
_is_field = exactly(types.MemberDescriptorType, types.GetSetDescriptorType)


def _fill_exception(b: Statements, obj: BaseException, name: str) -> None:
    for base, field in _fields(type(obj)):
        value = _read(base, obj, field)
        if value is not None:
            b.fill(functools.partial(_store, b, obj, name, base, field, value))
    if obj.__suppress_context__ and obj.__cause__ is None:
        b.lines.append(f"{name}.__suppress_context__ = True")


def _fields(cls: type) -> Iterator[tuple[type, str]]:
    """What instances of the classes in C keep, in the order in which it is stored."""
    for base in cls.__mro__:
        if base in (BaseExceptionGroup, BaseException) or can_change(base):
            continue
        for field, descriptor in vars(base).items():
            if _is_field(descriptor) and not field.startswith("__"):
                yield base, field
    yield from ((BaseException, field) for field in ("args", *_CHAIN[:-1]))


def _read(base: type, obj: BaseException, field: str) -> Any:
    try:
        return vars(base)[field].__get__(obj)
    except AttributeError:
        return None  # unset


def _store(b: Statements, obj: BaseException, name: str, base: type, field: str, value: Any) -> str:
    """As a statement of Python's, unless a class of the program's says what that does."""
    own = type(obj).__setattr__ is not BaseException.__setattr__
    if own or inspect.getattr_static(type(obj), field) is not vars(base)[field]:
        return f"{b.hold(base)}.{field}.__set__({name}, {b.value(value)})"
    return f"{name}.{field} = {b.value(value)}"


# ---- classes that the traced program defined
# What class statements, `dataclass`, `namedtuple` and `Enum` note, which programs do not change.
_NOTED = frozenset(
    """__module__ __qualname__ __doc__ __annotations__ __dict__ __weakref__ __slots__ __static_attributes__ __firstlineno__
    __orig_bases__ __parameters__ __type_params__ __dataclass_fields__ __dataclass_params__ __match_args__
    __abstractmethods__ _abc_impl _field_defaults""".split()
)
_NOTED_BY_ENUM = pattern(r"_\w+_")


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
        own = [v for k, v in vars(cls).items() if is_function(v) or not _is_noted(cls, k, v)]
        return [*own, *cls.__bases__, type(cls)]


def _is_noted(cls: type, name: str, value: Any) -> bool:
    if name in _NOTED:
        return True
    return derives(cls, enum.Enum) and not isinstance(value, enum.Enum) and _NOTED_BY_ENUM.fullmatch(name) is not None


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
