"""`in`: whether a container holds a value.

In:     traced values.
Out:    a truth, or the Python that asks the items one by one.
Holds:  of a dict or a set from outside the one key alone is asked for, under a guard. A number that varies is compared with
        each number among few keys.
Source: Python's reference, "Membership test operations".
"""

from __future__ import annotations

import functools
import operator
import types
from collections.abc import Callable
from typing import Any, NoReturn

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.numbers import progressions
from pliant.capture.numbers.array_memory import is_array
from pliant.capture.numbers.given_numbers import asked_key, refuse_many_keys
from pliant.capture.numbers.number_domains import in_range
from pliant.capture.protocols import polyfills
from pliant.capture.protocols.iteration import watched
from pliant.capture.protocols.operators import compare, python_method, refuse_none, truth
from pliant.capture.protocols.tail_calls import TailCall, ending
from pliant.capture.signatures import Tracer
from pliant.capture.structures import is_list_or_tuple
from pliant.capture.value_kinds import (
    COMPARED_IN_C,
    DICT_TYPES,
    ByKind,
    concrete,
    has_method,
    is_dict,
    is_iterable,
    is_nan,
    is_number,
    is_symbolic,
    misused,
    plain_class,
)
from pliant.graph.fake_tensor import FakeTensor


@ending
def contains(t: Tracer, container: Any, item: Any, wanted: bool = True) -> Any:
    """`item in container`, or `not in`"""
    if progressions.is_progression(container) and (found := progressions.contains(container, item)) is not None:
        return found is wanted
    container = concrete(t.world.resolve(container))
    method = python_method(t, container, "__contains__")
    if method is not None:
        if is_array(container):
            return concrete(truth(t, t.call(method, (container, item), {}))) is wanted
        return TailCall(polyfills.contained, (method, container, item, wanted))
    found = _contains(t, container, item)
    return found is wanted if type(found) is bool else TailCall(polyfills.contained_by_iteration, (found, item, wanted))


def _contains(t: Tracer, container: Any, item: Any) -> Any:
    """Whether the item is in the container; or the items to compare it with, one by one."""
    if not is_iterable(container) and not has_method(plain_class(container), "__contains__"):
        raise misused(container, "argument of type '{}' is not iterable")
    return _CONTAINING.of(container)(t, container, item)


def _among_items(t: Tracer, container: Any, item: Any) -> Any:
    items = t.taken(container)
    if not is_list_or_tuple(items) or not COMPARED_IN_C.issuperset(map(type, (item, *items))):
        return watched(t, container, items)
    for one in (item, *items) if is_nan(item) else ():
        t.world.note_nan(one)
    return bool(t.native(operator.contains, items, item))


_FEW_KEYS = 32


def _among_contents(t: Tracer, container: Any, item: Any) -> Any:
    """Of an object that may be a container of a class of the program's."""
    refuse_none(t, container, "__contains__", "'{}' object is not a container")
    held_here = t.world.contents(container)
    return _among_items(t, container, item) if held_here is None else _contains(t, held_here, item)


def _among_keys(by_key: Callable[..., bool], t: Tracer, keys: Any, item: Any) -> bool:
    """Of a dict or a set; `by_key`: whether one from outside is asked for the one key."""
    refuse_many_keys(t, keys, item)
    if is_symbolic(item) and len(keys) <= _FEW_KEYS:
        return _has_number(t, keys, item)
    if by_key(t.world, keys):
        return t.world.contains(keys, t.hashable(item))
    return bool(t.native(operator.contains, t.world.adopt(keys), t.hashable(item)))


def _among_keys_of_subclass(t: Tracer, mapping: Any, item: Any) -> Any:
    outside = t.world.needs_guards(mapping)
    return t.world.contains(mapping, asked_key(t, mapping, item)) if outside else _among_items(t, mapping, item)


def _in_tensor(t: Tracer, container: Any, item: Any) -> NoReturn:
    raise GraphBreak("data-dependent", "membership in a tensor")


_CONTAINING: ByKind[Callable[..., Any]] = ByKind(
    _among_contents,
    {
        FakeTensor: _in_tensor,
        **dict.fromkeys(DICT_TYPES, functools.partial(_among_keys, lambda world, keys: world.needs_guards(keys))),
        set: functools.partial(
            _among_keys, lambda world, keys: world.needs_guards(keys) and not world.has_changes(keys)
        ),
        frozenset: functools.partial(_among_keys, lambda world, keys: False),
        **dict.fromkeys(
            (str, bytes, types.MappingProxyType),
            lambda t, container, item: bool(t.native(operator.contains, container, concrete(item))),
        ),
        bytearray: lambda t, container, item: bool(t.native(operator.contains, t.world.adopt(container), t.plain(item))),
        range: in_range,
    },
    {dict: _among_keys_of_subclass, list: _among_items},
)


def _has_number(t: Tracer, container: Any, item: Any) -> bool:
    """Whether a number that varies is in a dict or a set: it differs from each of the numbers there, or is one of them."""
    outside = is_dict(container) and t.world.needs_guards(container)
    keys = t.world.keys_of(container) if outside else t.sequence(container)
    return any(bool(concrete(truth(t, compare(t, "==", key, item)))) for key in filter(is_number, keys))


def lacks_number(t: Tracer, mapping: Any, key: Any) -> bool:
    """Whether the key is a number that varies, and differs from each key of the dict."""
    if not is_symbolic(key) or len(mapping) > _FEW_KEYS:
        return False
    refuse_many_keys(t, mapping, key)
    return not _has_number(t, mapping, key)
