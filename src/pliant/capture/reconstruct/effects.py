"""Statements that do anew what a trace did to the world: stores, calls, new contents of containers that existed before.

In:     an effect, and the `Statements` for its values.
Out:    the statements; no code of a subclass runs.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable
from typing import Any

from pliant import set_orders
from pliant.capture.reconstruct.instances import step_of_set, steps_of_set
from pliant.capture.reconstruct.statements import CannotReconstruct, Statements
from pliant.capture.trace import DELETED, CallEffect, Effect, Extend, ReplaceContents, SetAttribute, SetItem
from pliant.capture.value_kinds import LITERALS, ByKind, is_plain_dict, is_same_constant
from pliant.guards.kinds import MISSING


def effect_lines(b: Statements, effect: Effect) -> list[str]:
    """The statements of one effect."""
    return _LINES[type(effect)](b, effect)


def _extended(b: Statements, effect: Extend) -> list[str]:
    method = "update" if _BASES.of(effect.obj) is set else "extend"
    return [f"{_methods(b, effect.obj)}.{method}({b.value(effect.obj)}, [{b.items(effect.values)}])"]


def _called(b: Statements, effect: CallEffect) -> list[str]:
    parts = [b.value(a) for a in effect.args] + ([f"**{{{b.pairs(effect.kwargs.items())}}}"] if effect.kwargs else [])
    return [f"{b.value(effect.function)}({', '.join(parts)})"]


def _attribute_store(b: Statements, effect: SetAttribute) -> str:
    obj, name = b.value(effect.obj), repr(effect.name)
    store, deletion = _STORES[effect.via]
    if effect.value is DELETED:
        return deletion.format(obj=obj, name=name, deleted=b.hold(_deleted))
    return store.format(obj=obj, name=name, value=b.value(effect.value))


# How an attribute is stored, and deleted, by `SetAttribute.via`.
_STORES = {
    "slot": ("object.__setattr__({obj}, {name}, {value})", "{deleted}(object, {obj}, {name})"),
    "type": ("type.__setattr__({obj}, {name}, {value})", "{deleted}(type, {obj}, {name})"),
    "context": ("{obj}.set({value})", ""),
    "cell": ("{obj}.cell_contents = {value}", "del {obj}.cell_contents"),
    "plain": ("setattr({obj}, {name}, {value})", "delattr({obj}, {name})"),
}


def _deleted(owner: Any, obj: Any, name: str) -> None:
    """An attribute that the program deleted, perhaps one that it had stored itself."""
    with contextlib.suppress(AttributeError):
        owner.__delattr__(obj, name)


def _methods(b: Statements, obj: Any) -> str:
    """The class whose methods change the container without running code of a subclass."""
    base = _BASES.of(obj)
    if base is None:
        raise CannotReconstruct("container", obj)
    return base.__name__ if base.__module__ == "builtins" else b.names(base)


_BASES: ByKind[type | None] = ByKind(
    None, families={cls: cls for cls in (collections.OrderedDict, dict, list, set, collections.deque, bytearray)}
)


def _item_store(b: Statements, obj: Any, key: Any, value: Any) -> str:
    target, k = b.value(obj), b.value(key)
    if value is DELETED:
        return f"{_methods(b, obj)}.pop({target}, {k}, None)"  # perhaps stored by the same trace
    v = b.value(value)
    return f"{target}[{k}] = {v}" if is_plain_dict(obj) else f"{_methods(b, obj)}.__setitem__({target}, {k}, {v})"


def _replaced(b: Statements, effect: ReplaceContents) -> list[str]:
    replace = _REPLACED.of(effect.obj)
    if replace is None:
        raise CannotReconstruct("container", effect.contents)
    return replace(b, effect.obj, effect.contents)


def _replaced_list(b: Statements, obj: Any, contents: list[Any]) -> list[str]:
    return [f"{_methods(b, obj)}.__setitem__({b.value(obj)}, slice(None), [{b.items(list.__iter__(contents))}])"]


def _replaced_dict(b: Statements, obj: Any, contents: dict[Any, Any]) -> list[str]:
    target = b.value(obj)
    clear = [] if _stay(_keys_of(obj), _keys_of(contents)) else [f"dict.clear({target})"]
    return [*clear, f"dict.update({target}, {{{b.pairs(dict.items(contents))}}})"]


def _replaced_ordered(b: Statements, obj: Any, contents: dict[Any, Any]) -> list[str]:
    """It keeps an order of its own beside the dict's."""
    keys = _keys_of(contents)
    stores = [_item_store(b, obj, key, dict.__getitem__(contents, key)) for key in keys]
    return [*([] if _stay(_keys_of(obj), keys) else [f"{_methods(b, obj)}.clear({b.value(obj)})"]), *stores]


def _replaced_deque(b: Statements, obj: Any, contents: collections.deque[Any]) -> list[str]:
    target, methods, items = b.value(obj), _methods(b, obj), list(collections.deque.__iter__(contents))
    if len(items) != len(obj):
        return [f"{methods}.clear({target})", f"{methods}.extend({target}, [{b.items(items)}])"]
    places = enumerate(zip(collections.deque.__iter__(obj), items, strict=True))  # a store ends no iteration
    return [f"{methods}.__setitem__({target}, {i}, {b.value(new)})" for i, (old, new) in places if new is not old]


def _keys_of(mapping: dict[Any, Any]) -> list[Any]:
    ordered: Any = _BASES.of(mapping)
    return list(ordered.__iter__(mapping))


def _stay(before: list[Any], after: list[Any]) -> bool:
    """Whether keys are only added. No more is changed than the program does: iterators over the rest stay good."""
    return len(before) <= len(after) and all(a is b for a, b in zip(before, after, strict=False))


def _is_among(key: Any, others: dict[Any, Any]) -> bool:
    """Not where one is that is equal, as 0 is to False."""
    return is_same_constant(others.get(key, MISSING), key)


def _replaced_set(b: Statements, obj: set[Any], contents: set[Any]) -> list[str]:
    target = b.value(obj)
    if not (LITERALS - {float}).issuperset(map(type, (*set.__iter__(obj), *set.__iter__(contents)))):
        return [f"set.clear({target})", f"set.update({target}, [{b.items(set.__iter__(contents))}])"]
    old, now = ({key: key for key in set.__iter__(one)} for one in (obj, contents))
    gone = [key for key in old if not _is_among(key, now)]
    new = [key for key in now if not _is_among(key, old)]  # the rest keeps its order
    before = set_orders.copied(obj)
    if before is not None:
        before.difference_update(gone)
        before.update(new)
    if before is not None and not set_orders.is_same(before, contents):
        return [f"set.clear({target})", *(step_of_set(b, step, target) for step in steps_of_set(b, contents))]
    drop = [f"set.difference_update({target}, [{b.items(gone)}])"] if gone else []
    return [*drop, f"set.update({target}, [{b.items(new)}])"]


_REPLACED: ByKind[Callable[[Statements, Any, Any], list[str]] | None] = ByKind(
    None,
    families={
        bytearray: lambda b, obj, contents: [f"{b.value(obj)}[:] = {bytes(contents)!r}"],
        list: _replaced_list,
        dict: _replaced_dict,
        collections.OrderedDict: _replaced_ordered,
        set: _replaced_set,
        collections.deque: _replaced_deque,
    },
)
_LINES: dict[type, Callable[[Statements, Any], list[str]]] = {
    SetAttribute: lambda b, effect: [_attribute_store(b, effect)],
    SetItem: lambda b, effect: [_item_store(b, effect.obj, effect.key, effect.value)],
    ReplaceContents: _replaced,
    Extend: _extended,
    CallEffect: _called,
}
