"""Statements that do anew what a trace did to the world: stores, calls, new contents of containers that existed before.

In:     an effect, and the `Statements` for its values.
Out:    the statements; no code of a subclass runs.
"""

from __future__ import annotations

import collections
import contextlib
from typing import Any, assert_never

from pliant.capture.outside import set_orders
from pliant.capture.reconstruct.instances import fills_of_set
from pliant.capture.reconstruct.statements import CannotReconstruct, Statements
from pliant.capture.trace import DELETED, CallEffect, Effect, Extend, ReplaceContents, SetAttribute, SetItem
from pliant.capture.value_kinds import LITERALS, ByKind


def effect_lines(b: Statements, effect: Effect) -> list[str]:
    """The statements of one effect."""
    match effect:
        case SetAttribute():
            return [_attribute_store(b, effect)]
        case SetItem(obj, key, value):
            return [_item_store(b, obj, key, value)]
        case ReplaceContents(obj, contents):
            return _replaced(b, obj, contents)
        case Extend(obj, values):
            method = "update" if _BASES.of(obj) is set else "extend"
            return [f"{_methods(b, obj)}.{method}({b.value(obj)}, [{b.items(values)}])"]
        case CallEffect(function=function, args=args, kwargs=kwargs):
            parts = [b.value(a) for a in args] + ([f"**{{{b.pairs(kwargs.items())}}}"] if kwargs else [])
            return [f"{b.value(function)}({', '.join(parts)})"]
        case never:
            assert_never(never)


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
    return f"{target}[{k}] = {v}" if type(obj) is dict else f"{_methods(b, obj)}.__setitem__({target}, {k}, {v})"


def _replaced(b: Statements, obj: Any, contents: Any) -> list[str]:
    target, methods = b.value(obj), _methods(b, obj)
    match contents:
        case bytearray():
            return [f"{target}[:] = {bytes(contents)!r}"]
        case list():
            return [f"{methods}.__setitem__({target}, slice(None), [{b.items(list.__iter__(contents))}])"]
        case dict() if isinstance(obj, collections.OrderedDict):  # it keeps an order of its own beside the dict's
            keys = _keys_of(contents)
            stores = [_item_store(b, obj, key, dict.__getitem__(contents, key)) for key in keys]
            return [*([] if _stay(_keys_of(obj), keys) else [f"{methods}.clear({target})"]), *stores]
        case dict():
            clear = [] if _stay(_keys_of(obj), _keys_of(contents)) else [f"dict.clear({target})"]
            return [*clear, f"dict.update({target}, {{{b.pairs(dict.items(contents))}}})"]
        case set():
            return _replaced_set(b, obj, contents)
        case collections.deque() if len(contents) == len(obj):  # a store ends no iteration
            pairs = enumerate(zip(collections.deque.__iter__(obj), collections.deque.__iter__(contents), strict=True))
            changed = ((i, new) for i, (old, new) in pairs if new is not old)
            return [f"{methods}.__setitem__({target}, {i}, {b.value(new)})" for i, new in changed]
        case collections.deque():
            items = b.items(collections.deque.__iter__(contents))
            return [f"{methods}.clear({target})", f"{methods}.extend({target}, [{items}])"]
        case _:
            raise CannotReconstruct("container", contents)


def _keys_of(mapping: dict[Any, Any]) -> list[Any]:
    ordered = collections.OrderedDict if isinstance(mapping, collections.OrderedDict) else dict
    return list(ordered.__iter__(mapping))


def _stay(before: list[Any], after: list[Any]) -> bool:
    """Whether keys are only added. No more is changed than the program does: iterators over the rest stay good."""
    return len(before) <= len(after) and all(a is b for a, b in zip(before, after, strict=False))


def _replaced_set(b: Statements, obj: set[Any], contents: set[Any]) -> list[str]:
    target = b.value(obj)
    if not (LITERALS - {float}).issuperset(map(type, (*set.__iter__(obj), *set.__iter__(contents)))):
        return [f"set.clear({target})", f"set.update({target}, [{b.items(set.__iter__(contents))}])"]
    gone = list(set.difference(obj, contents))
    new = [key for key in set.__iter__(contents) if not set.__contains__(obj, key)]  # the rest keeps its order
    before = set_orders.copied(obj)
    if before is not None:
        before.difference_update(gone)
        before.update(new)
    if before is not None and not set_orders.is_same(before, contents):
        return [f"set.clear({target})", *fills_of_set(b, contents, target)]
    drop = [f"set.difference_update({target}, [{b.items(gone)}])"] if gone else []
    return [*drop, f"set.update({target}, [{b.items(new)}])"]
