"""copy.copy and copy.deepcopy.

In:     any traced value.
Out:    its copy, made of traced values; parts are read, and guarded, as the copy module would read them.
Holds:  what occurs twice is copied once, cycles included; special methods of the program run in the interpreter.
"""

from __future__ import annotations

import collections
import copy
import itertools
import types
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.parameters import copied
from pliant.capture.handlers.standard_library import VALUES
from pliant.capture.handlers.table import Rows
from pliant.capture.iterators.standing_iterators import PLAIN_ITERATORS
from pliant.capture.protocols import operators
from pliant.capture.signatures import Tracer
from pliant.capture.value_kinds import CONSTANT_TYPES, SYMBOLIC_TYPES
from pliant.graph.fake_tensor import FakeTensor
from pliant.guards.kinds import MISSING
from pliant.guards.standard import IDENTITY_TYPES, can_change
from pliant.torch_adapter import copy_of_tensor

ROWS = Rows()

_ATOMIC: frozenset[type] = frozenset(
    (*CONSTANT_TYPES, *SYMBOLIC_TYPES, int, float, range, types.ModuleType, torch.finfo, torch.iinfo)
)
_LISTS: frozenset[type] = frozenset((list, set, collections.deque))
_DICTS: frozenset[type] = frozenset((dict, collections.OrderedDict, collections.defaultdict, collections.Counter))
_ITERATORS = (*PLAIN_ITERATORS, itertools.count, itertools.repeat)
_KEEP = object()  # the key of a memo under which the originals are kept alive


@ROWS.takes(copy.deepcopy, copy_of_tensor)
def _deepcopy(t: Tracer, x: Any, memo: Any = None) -> Any:
    return _deep(t, x, {} if memo is None else t.mapping(memo))


@ROWS.takes(copy.copy)
def _copy(t: Tracer, x: Any) -> Any:
    value = t.world.adopt(t.world.resolve(x))
    cls = type(value)
    if _is_atomic(value) or cls in (tuple, frozenset, slice):
        return value
    if cls in _LISTS or cls in _DICTS:
        return value.copy()
    if cls is FakeTensor:
        return copied(t, value, shares_memory=True)
    method = operators.python_method(t, value, "__copy__")
    if method is not None:
        return t.call(method, (value,), {})
    if cls in _ITERATORS and not t.world.is_foreign(value):
        return copy.copy(value)
    return _instance(t, value, lambda part: part)


def _is_atomic(value: Any) -> bool:
    return type(value) in _ATOMIC or isinstance(value, (*IDENTITY_TYPES, *VALUES))


def _deep(t: Tracer, value: Any, memo: dict[Any, Any]) -> Any:
    if _is_atomic(value):
        return value
    value = t.world.adopt(t.world.resolve(value))
    if id(value) in memo:
        return memo[id(value)]
    memo.setdefault(_KEEP, []).append(value)
    made = _deep_new(t, value, memo)
    memo[id(value)] = made
    return made


def _deep_new(t: Tracer, value: Any, memo: dict[Any, Any]) -> Any:
    cls = type(value)
    if cls is FakeTensor:
        return copied(t, value, shares_memory=False)
    if cls in _LISTS:
        made: Any = collections.deque(maxlen=value.maxlen) if cls is collections.deque else cls()
        memo[id(value)] = made
        add = made.add if cls is set else made.append
        for item in value:
            add(_deep(t, item, memo))
        return made
    if cls in _DICTS:
        memo[id(value)] = made = cls(value.default_factory) if cls is collections.defaultdict else cls()
        for key, item in value.items():
            made[_deep(t, key, memo)] = _deep(t, item, memo)
        return made
    if cls is tuple or cls is frozenset:
        items = [_deep(t, item, memo) for item in value]
        if id(value) in memo:  # it holds itself, through something mutable
            return memo[id(value)]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else cls(items)
    if cls is types.MethodType:
        return types.MethodType(value.__func__, _deep(t, value.__self__, memo))
    method = operators.python_method(t, value, "__deepcopy__")
    if method is not None:
        return t.call(method, (value, memo), {})
    return _instance(t, value, lambda part: _deep(t, part, memo), memo)


_OWN_WAYS = ("__reduce_ex__", "__reduce__", "__getnewargs__", "__getnewargs_ex__")


def _instance(t: Tracer, value: Any, part: Any, memo: dict[Any, Any] | None = None) -> Any:
    """A new object of the same class with copied state, as `object.__reduce_ex__` describes it."""
    cls = type(value)
    if any(operators.python_method(t, value, name) for name in _OWN_WAYS) or not _is_plain(cls):
        raise GraphBreak("unknown-call", f"a copy of a {cls.__name__}")
    getter = operators.python_method(t, value, "__getstate__")
    state = t.get_attr(value, "__dict__") if getter is None else t.call(getter, (value,), {})
    made = object.__new__(cls)
    if memo is not None:
        memo[id(value)] = made
    state = part(t.world.adopt(state))
    setter = t.world.type_lookup(cls, "__setstate__")
    if setter is not MISSING:
        t.call(setter, (made, state), {})
    elif isinstance(state, dict):
        made.__dict__.update(state)
    else:
        raise GraphBreak("unknown-call", f"a copy of a {cls.__name__} with a state that is no dict")
    return made


def _is_plain(cls: type) -> bool:
    """Whether instances consist of their `__dict__`."""
    own = (base for base in cls.__mro__ if base is not object)
    return all(can_change(base) and not base.__dict__.get("__slots__") for base in own) and (
        getattr(cls, "__new__") is object.__new__ and cls.__dictoffset__ != 0  # noqa: B009
    )
