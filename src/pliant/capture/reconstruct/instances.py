"""How instances of the program's classes are made again: an empty one of the builtin base, then its contents.

In:     an instance and the `Statements` it is for.
Out:    its expression. No `__new__`, `__init__`, `__setitem__` or `__setattr__` of the program's classes runs.
"""

from __future__ import annotations

import contextlib
import functools
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

from pliant.capture.outside import set_orders
from pliant.capture.reconstruct.exceptions import fill_exception, new_exception
from pliant.capture.reconstruct.statements import CannotReconstruct, Recipe, Statements
from pliant.capture.value_kinds import is_exception
from pliant.guards.standard import can_change
from pliant.unpatched import COLLECTIONS as collections

# Builtin base -> (statement that makes an instance without user code, then statements that fill it)
_BASES: dict[type, tuple[Recipe, Callable[[Statements, Any, str], None]]] = {}


def _new(b: Statements, obj: Any) -> str:
    base = _builtin_base(type(obj))
    return f"{b.hold(base)}.__new__({b.value(type(obj))})"


def _new_from(plain: Callable[[Any], Any]) -> Recipe:
    """For immutable bases: `base.__new__(cls, contents)`."""

    def make(b: Statements, obj: Any) -> str:
        base = _builtin_base(type(obj))
        return f"{b.hold(base)}.__new__({b.value(type(obj))}, {b.value(plain(obj))})"

    return make


def _no_contents(b: Statements, obj: Any, name: str) -> None:
    pass


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
    text = "set()" if found is None else b.value(found)  # dead at once
    return text if callback is None else f"{text}, {b.value(callback)}"


def frozen_items(b: Statements, obj: frozenset[Any]) -> str:
    """What a frozenset is made of to have this one's order."""
    groups = [_added(b, *step) for step in steps_of_set(b, obj)] or ["[]"]
    return groups[0] if len(groups) == 1 else f"{{{', '.join('*' + one for one in groups)}}}"


_BASES |= {
    object: (_new, _no_contents),
    types.SimpleNamespace: (_new, _no_contents),
    weakref.ref: (
        lambda b, obj: f"{b.hold(weakref.ref)}.__new__({b.value(type(obj))}, {referent_text(b, obj)})",
        _no_contents,
    ),
    list: (
        _new,
        lambda b, obj, name: (
            b.fill(lambda: f"list.extend({name}, [{b.items(list.__iter__(obj))}])") if list.__len__(obj) else None
        ),
    ),
    dict: (_new, _fill_mapping),
    collections.OrderedDict: (_new, _fill_ordered),
    collections.defaultdict: (_new, _fill_defaultdict),
    set: (_new, fill_set),
    collections.deque: (_new, _fill_deque),
    tuple: (_new_from(lambda o: tuple(tuple.__iter__(o))), _no_contents),
    frozenset: (
        lambda b, obj: f"frozenset.__new__({b.value(type(obj))}, {frozen_items(b, obj)})",
        _no_contents,
    ),
    int: (_new_from(lambda o: int.__int__(o)), _no_contents),
    float: (_new_from(lambda o: float.__float__(o)), _no_contents),
    str: (_new_from(lambda o: str.__str__(o)), _no_contents),
    bytes: (_new_from(lambda o: bytes.__getitem__(o, slice(None))), _no_contents),
}


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
    base = _builtin_base(type(obj))
    if is_exception(obj):
        make: Recipe = functools.partial(new_exception, base=base)
        fill: Callable[[Statements, Any, str], None] = fill_exception
    elif base in _BASES:
        make, fill = _BASES[base]
    else:
        raise CannotReconstruct("builtin-instance", obj)
    if base is object and not _is_plain(type(obj)):
        raise CannotReconstruct("builtin-instance", obj)
    name = b.bind(obj, make(b, obj))
    fill(b, obj, name)
    fill_dict(b, obj, name)
    b.fill_each(_slots(obj), lambda k, v: f"object.__setattr__({name}, {k!r}, {b.value(v)})")
    return name


def fill_dict(b: Statements, obj: Any, name: str) -> str:
    """Give the object that has the name its attributes."""
    table: dict[str, Any] = {}
    with contextlib.suppress(AttributeError):
        table = object.__getattribute__(obj, "__dict__")
    b.fill_each(table.items(), lambda k, v: f"{name}.__dict__[{k!r}] = {b.value(v)}")
    return name


def _slots(obj: Any) -> Iterable[tuple[str, Any]]:
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
