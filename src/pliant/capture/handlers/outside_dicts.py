"""Methods in C of dicts from outside of classes of the program's.

In:     the dict, the name of a method of `dict`, `OrderedDict` or `defaultdict`, traced arguments.
Out:    what the method gives; NotImplemented for a method that is not known here.
Holds:  the dict is read and written one key at a time, as `World` keeps it. OrderedDict's methods ask the class for its own
        methods, dict's do not.
Source: CPython, `Objects/dictobject.c` and `Objects/odictobject.c`.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.handlers.classes import pairs_or_mapping
from pliant.capture.handlers.table import Args, Kwargs
from pliant.capture.subscripts import stored_key
from pliant.capture.trace import DELETED
from pliant.capture.value_kinds import MADE_ANEW
from pliant.guards.kinds import MISSING

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer

_ASKED = ("__contains__", "__getitem__", "__setitem__", "__delitem__", "__iter__", "__missing__")  # by OrderedDict's methods


def call_dict_method(t: Tracer, receiver: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """The method, or NotImplemented."""
    ordered = issubclass(type(receiver), collections.OrderedDict)
    method = _METHODS.get(name) or (_OF_ORDERED.get(name) if ordered else None)
    if method is None or name in _OF_OWN_CLASS and issubclass(type(receiver), MADE_ANEW):
        return NotImplemented
    if ordered and any(t.world.python_function(type(receiver), asked) is not None for asked in _ASKED):
        return NotImplemented
    return method(t, receiver, *args, **kwargs)


def _get(t: Tracer, receiver: Any, key: Any, *default: Any) -> Any:
    """The value, the default, or `KeyError`."""
    found = t.world.dict_get(receiver, t.hashable(key))
    if found is not MISSING:
        return t.world.resolve(found)
    if default:
        return default[0]
    raise Raised(KeyError(key))


def _put(t: Tracer, receiver: Any, key: Any, value: Any) -> None:
    key = t.hashable(key)
    t.world.contains(receiver, key)  # a guard: where it stands in the order depends on it
    t.world.dict_set(receiver, stored_key(t, key), value)


def _update(t: Tracer, receiver: Any, *given: Any, **named: Any) -> None:
    if len(given) > 1:
        raise GraphBreak("bad-call", f"update of a {type(receiver).__name__} takes one argument")
    for value in given:
        made = pairs_or_mapping(t, value, issubclass(type(receiver), collections.OrderedDict))
        pairs = list(dict.items(made)) if isinstance(made, dict) else made
        if not isinstance(pairs, list) or any(len(pair) != 2 for pair in pairs):
            raise GraphBreak("unknown-object", f"update of a {type(receiver).__name__} by a {type(value).__name__}")
        for key, item in pairs:
            _put(t, receiver, key, item)
    for name, item in named.items():
        _put(t, receiver, name, item)


def _join(t: Tracer, receiver: Any, other: Any) -> Any:
    _update(t, receiver, other)
    return receiver


def _setdefault(t: Tracer, receiver: Any, key: Any, default: Any = None) -> Any:
    if t.world.contains(receiver, t.hashable(key)):
        return _get(t, receiver, key)
    _put(t, receiver, key, default)
    return default


def _pop(t: Tracer, receiver: Any, key: Any, *default: Any) -> Any:
    key = t.hashable(key)
    found = _get(t, receiver, key, *default)
    if t.world.contains(receiver, key):
        t.world.dict_set(receiver, stored_key(t, key), DELETED)
    return found


def _delete(t: Tracer, receiver: Any, key: Any) -> None:
    _pop(t, receiver, key)


def _popitem(t: Tracer, receiver: Any, last: Any = True) -> Any:
    keys = t.world.keys_of(receiver)
    if not keys:
        name = "dictionary" if issubclass(type(receiver), collections.OrderedDict) else "popitem(): dictionary"
        raise Raised(KeyError(f"{name} is empty"))
    if type(last) is not bool:
        raise GraphBreak("unknown-object", "popitem of a dict from outside, from an end that is no bool")
    key = keys[-1 if last else 0]
    return key, _pop(t, receiver, key)


def _clear(t: Tracer, receiver: Any) -> None:
    for key in t.world.keys_of(receiver):
        t.world.dict_set(receiver, stored_key(t, key), DELETED)


def _copy(t: Tracer, receiver: Any) -> dict[Any, Any]:
    return dict(t.world.mirror(receiver))


def _joined(t: Tracer, receiver: Any, other: Any) -> Any:
    if not isinstance(other, dict):
        return NotImplemented
    return _copy(t, receiver) | dict(dict.items(t.mapping(other)))


def _move_to_end(t: Tracer, receiver: Any, key: Any, last: Any = True) -> None:
    if last is not True:
        raise GraphBreak("unknown-object", f"an entry of a {type(receiver).__name__} from outside is moved to the front")
    _put(t, receiver, key, _pop(t, receiver, key))


# Methods that make an object of the class, unless that is a dict's.
_OF_OWN_CLASS = ("copy", "__or__")
_METHODS: dict[str, Callable[..., Any]] = {
    "update": _update,
    "__ior__": _join,
    "setdefault": _setdefault,
    "pop": _pop,
    "popitem": _popitem,
    "__delitem__": _delete,
    "clear": _clear,
    "copy": _copy,
    "__or__": _joined,
}
_OF_ORDERED = {"move_to_end": _move_to_end}
