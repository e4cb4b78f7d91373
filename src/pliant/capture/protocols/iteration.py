"""Iteration over any value, and `in`, by Python's own protocols.

In:     traced values.
Out:    iterators over traced values; exhaustion is `Raised(StopIteration)`.
Holds:  `__iter__` and `__next__` written in Python run in the interpreter; containers from outside are read under guards.
        Whether a dict or a set from outside holds a key is asked for this key alone. A number that varies is compared with each
        number among few keys.
Source: Python's data model, "Emulating container types" and "Generator-iterator methods"; "Membership test operations".
"""

from __future__ import annotations

import collections
import functools
import itertools
import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.handlers.table import refusal
from pliant.capture.iterators.carried import DequeItems, own_items
from pliant.capture.iterators.generators import OURS, is_traced_generator, traced_iterator
from pliant.capture.numbers import progressions
from pliant.capture.numbers.array_memory import is_array
from pliant.capture.numbers.given_numbers import asked_key, refuse_many_keys
from pliant.capture.numbers.number_domains import in_range
from pliant.capture.protocols import polyfills
from pliant.capture.protocols.operators import compare, python_method, refuse_none, truth
from pliant.capture.protocols.subscripts import subscript
from pliant.capture.protocols.tail_calls import TailCall, ending
from pliant.capture.signatures import Tracer
from pliant.capture.structures import is_list_or_tuple, parts_of
from pliant.capture.value_kinds import (
    COMPARED_IN_C,
    DICT_TYPES,
    MUTABLE_CONTAINERS,
    ByKind,
    by_kind,
    concrete,
    exactly,
    has_method,
    is_dict,
    is_iterable,
    is_nan,
    is_number,
    is_set,
    is_symbolic,
    misused,
    plain_class,
)
from pliant.cpython import table_of
from pliant.graph.fake_tensor import FakeTensor
from pliant.set_orders import HASH_ALIKE
from pliant.unpatched import BUILTINS


def _items_of_tensor(t: Tracer, value: Any) -> Any:
    if value.dim() == 0:
        raise Raised(TypeError("iteration over a 0-d tensor"))
    return t.native(BUILTINS.iter, value)


def _items_of_container(t: Tracer, value: Any) -> Any:
    note_order(t, value)
    return iter(t.world.adopt(t.world.resolve(value)))


def _object_items(t: Tracer, value: Any) -> Any:
    """Of an object whose class may have an `__iter__` of its own."""
    if (revived := traced_iterator(t, value)) is not value:
        return revived
    note_order(t, value)
    value = concrete(t.world.adopt(t.world.resolve(value)))
    method = python_method(t, value, "__iter__")
    if method is not None:
        return TailCall(method, (value,)) if is_array(value) else TailCall(polyfills.iterator, (method, value))
    if t.world.is_opaque(value):
        return _ITERATORS_OUTSIDE.of(value)(t, value)
    if not has_method(type(value), "__iter__") and python_method(t, value, "__getitem__") is not None:
        return t.call(polyfills.items_by_index, (value,), {})
    return t.native(BUILTINS.iter, value)


def _items_of_contents(t: Tracer, value: Any) -> Any:
    if (held_here := t.world.contents(value)) is None:
        raise GraphBreak("unknown-object", f"iteration over a {type(value).__name__} from outside")
    return iterate(t, held_here)


_iterate = by_kind(
    _object_items,
    {
        FakeTensor: _items_of_tensor,
        **dict.fromkeys(OURS, lambda t, value: value),
        **dict.fromkeys((tuple, str, bytes, range, torch.Size), lambda t, value: iter(value)),
        **dict.fromkeys((*MUTABLE_CONTAINERS, frozenset), _items_of_container),
        collections.deque: lambda t, value: DequeItems(t.world.adopt(t.world.resolve(value))),
    },
    place=1,
)
iterate = ending(_iterate)  # iter(value): a real iterator over traced values, or an object whose `__next__` is interpreted
_ITERATORS_OUTSIDE: ByKind[Callable[[Tracer, Any], Any]] = ByKind(_items_of_contents, families={list: own_items})


@ending
def next_value(t: Tracer, iterator: Any) -> Any:
    """next(iterator); exhaustion is Raised(StopIteration)."""
    iterator = traced_iterator(t, iterator)
    if is_traced_generator(iterator):
        return TailCall(iterator.__next__, ())
    method = python_method(t, iterator, "__next__")
    if method is not None:
        return TailCall(method, (iterator,))
    if is_array(iterator):
        raise misused(iterator, "'{}' object is not an iterator")
    if t.world.is_opaque(iterator):
        raise GraphBreak("unknown-object", f"an iterator from outside ({type(iterator).__name__}) is advanced")
    return t.native(BUILTINS.next, iterator)


def send(t: Tracer, iterator: Any, value: Any) -> Any:
    """iterator.send(value), or next() for None."""
    iterator = traced_iterator(t, iterator)
    if value is None:
        return next_value(t, iterator)
    return t.call(t.get_attr(iterator, "send"), (value,), {})


def advance(t: Tracer, method: types.MethodType, args: tuple[Any, ...], linked: bool) -> Any:
    """A step of a generator, whose frame can be cut meanwhile if the step is linked."""
    if not linked:
        return t.native(method, *args)
    generator: Any = method.__self__
    frame = generator.frame
    frame.linked, frame.generator = True, generator  # and stays so at a break
    try:
        item = t.native(method, *args)
    except Raised:
        frame.linked, frame.generator = False, None
        raise
    frame.linked, frame.generator = False, None
    return item


def is_driven(t: Tracer, items: Any) -> bool:
    """Whether taking the items runs code of the program."""
    return is_traced_generator(traced_iterator(t, items)) or python_method(t, items, "__iter__") is not None


def taken(t: Tracer, items: Any) -> Any:
    """What a polyfill loops over: containers are read as a whole, the items of others one by one."""
    return items if is_driven(t, items) or has_method(type(items), "__next__") else t.sequence(items)


def watched(t: Tracer, items: Any, taken_as: Any) -> Any:
    """The same where code of the program's runs meanwhile: iterators in C tell whether a container was changed, but for lists."""
    return iterate(t, items) if _tells_of_changes(items) else taken_as


_tells_of_changes = exactly(set, collections.deque, *DICT_TYPES)


def iterable(t: Tracer, value: Any) -> Any:
    """Something C code can iterate over and get traced values."""
    cls = type(value)
    if cls in (list, tuple, dict, set, frozenset, str, range) and not t.world.needs_guards(value):
        note_order(t, value)
        return t.world.resolve(value)
    return advanced_by_c(t, iterate(t, value))


def advanced_by_c(t: Tracer, iterator: Any) -> Any:
    """The iterator as C code advances it."""
    return iterator if python_method(t, iterator, "__next__") is None else t.call(polyfills.each_item, (iterator,), {})


def asks_for_length(t: Tracer, value: Any) -> bool:
    """Whether C code that makes a list of the items runs code of the program to know beforehand how many they will be."""
    return any(python_method(t, value, name) is not None for name in ("__len__", "__length_hint__"))


def listed(t: Tracer, value: Any) -> Any:
    """`iterable`, for C code that makes a list or tuple of the items."""
    items = iterable(t, value)
    if asks_for_length(t, value):
        t.call(operator.length_hint, (value,), {})
    return items


def as_sequence(t: Tracer, value: Any) -> Any:
    """`iterable`, for C code that makes a list of the iterator of what is no list or tuple (`PySequence_Fast`)."""
    if not is_list_or_tuple(value) and python_method(t, value, "__iter__") is not None:
        value = t.call(BUILTINS.iter, (value,), {})
    return listed(t, value)


def hashables(t: Tracer, value: Any) -> Any:
    """Something C code can make a set of. Sets and dicts stay what they are: their slots, too, decide on the new order."""
    if _is_hashed(value):
        value = t.world.adopt(t.world.resolve(value))
    items = iterable(t, value)
    return items if _is_hashed(items) else map(t.hashable, items)


def hashables_of_table(t: Tracer, value: Any) -> Any:
    """The same for C code that copies the table of any set, whatever `__iter__` its class has."""
    own = is_set(value) and not t.world.needs_guards(value)
    return hashables(t, frozenset(value) if own and not _is_hashed(value) else value)


_is_hashed = exactly(dict, set, frozenset)  # which keep the hashes of what they hold


def note_order(t: Tracer, value: Any) -> None:
    """Of a set that the trace made: what is not a number hashes otherwise in another process, and so the order is another."""
    if is_set(value) and not t.world.needs_guards(value) and len(items := frozenset(value)) > 1:
        kinds = {*map(type, items)}
        if kinds <= HASH_ALIKE:
            return
        size = table_of(value)
        if kinds <= _HASHED_BY_CONTENT and size is not None:
            t.orders.append((size, tuple(parts_of(value))))
        else:
            t.process_bound = "the order of a set that is no set of numbers"


_HASHED_BY_CONTENT = HASH_ALIKE | {str, bytes}


def sequence(t: Tracer, value: Any, most: int | None = None, *, is_made: bool = False) -> Any:
    """All values of an iterable, as a tuple or list; of an iterator no more are taken than `most`. `is_made`: where Python makes
    a list of them, too."""
    value = t.world.adopt(t.world.resolve(progressions.items(value)))
    if is_list_or_tuple(value):
        return value
    items = listed(t, value) if is_made else iterable(t, value)
    return t.native(tuple, items if most is None else itertools.islice(items, most))


def mapping(t: Tracer, value: Any, by_keys: bool = False) -> dict[Any, Any]:
    """A dict of a mapping's items (for ** and update). `by_keys`: for an OrderedDict, which asks subclasses for each item."""
    value = t.world.adopt(t.world.resolve(value))
    if is_dict(value):
        return value  # type: ignore[no-any-return]
    if not by_keys and t.world.type_lookup(type(value), "__iter__") is dict.__iter__:  # dicts copy what it holds
        return dict(dict.items(t.world.whole(value)))
    keys = t.call(t.get_attr(value, "keys"), (), {})
    return {k: subscript(t, value, k) for k in sequence(t, keys)}


# ---- `in`: whether a container holds a value
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
    if held_here is None and not t.world.is_foreign(container) and python_method(t, container, "__iter__") is not None:
        held_here = _HELD_IN_C.of(container)(container)
    return _among_items(t, container, item) if held_here is None else _contains(t, held_here, item)


# What C code finds in a container that the trace made, of a class of the program's with an `__iter__` of its own.
_HELD_IN_C: ByKind[Callable[[Any], Any]] = ByKind(
    lambda value: None,
    families={
        tuple: lambda value: (*tuple.__iter__(value),),
        **dict.fromkeys((set, frozenset), frozenset),
    },
)


def _among_characters(t: Tracer, container: Any, item: Any) -> Any:
    """Of a text of a class of the program's, or of an enum's: a part of it is in it, not only a character."""
    held_here = t.world.contents(container)
    return _contains(t, _AS_TEXT.of(container)(container) if held_here is None else held_here, item)


_AS_TEXT: ByKind[Callable[[Any], Any]] = ByKind(
    str.__str__,
    families={
        bytes: lambda value: bytes.__getitem__(value, slice(None)),
        bytearray: lambda value: bytearray.__getitem__(value, slice(None)),
    },
)


def _among_keys(by_key: Callable[..., bool], t: Tracer, keys: Any, item: Any) -> bool:
    """Of a dict or a set; `by_key`: whether one from outside is asked for the one key."""
    refuse_many_keys(t, keys, item)
    if is_symbolic(item) and _are_told_from_numbers(keys):
        return _has_number(t, keys, item)
    if by_key(t.world, keys):
        return t.world.contains(keys, t.hashable(item))
    return bool(t.native(operator.contains, t.world.adopt(keys), t.hashable(item)))


def _among_keys_of_subclass(t: Tracer, mapping: Any, item: Any) -> Any:
    outside = t.world.needs_guards(mapping)
    return t.world.contains(mapping, asked_key(t, mapping, item)) if outside else _among_items(t, [*dict.keys(mapping)], item)


def _among_items_of_subclass(t: Tracer, container: Any, item: Any) -> Any:
    outside = t.world.needs_guards(container)
    return _among_items(t, container if outside else [*list.__iter__(container)], item)


_CONTAINING: ByKind[Callable[..., Any]] = ByKind(
    _among_contents,
    {
        FakeTensor: refusal("data-dependent", "membership in a tensor"),
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
    {
        dict: _among_keys_of_subclass,
        list: _among_items_of_subclass,
        **dict.fromkeys((str, bytes, bytearray), _among_characters),
    },
)


def _are_told_from_numbers(keys: Any) -> bool:
    """Whether these are few, and each is a number or equals none, as a fraction may."""
    plain: Any = object.__eq__
    return len(keys) <= _FEW_KEYS and all(
        _is_no_number(key) or is_number(key) or type(key).__eq__ is plain for key in keys
    )


_is_no_number = exactly(str, bytes, tuple, frozenset, type(None), type)


def _has_number(t: Tracer, container: Any, item: Any) -> bool:
    """Whether a number that varies is in a dict or a set: it differs from each of the numbers there, or is one of them."""
    outside = is_dict(container) and t.world.needs_guards(container)
    keys = t.world.keys_of(container) if outside else t.sequence(container)
    return any(bool(concrete(truth(t, compare(t, "==", key, item)))) for key in filter(is_number, keys))


def lacks_number(t: Tracer, mapping: Any, key: Any) -> bool:
    """Whether the key is a number that varies, and differs from each key of the dict."""
    if not is_symbolic(key) or not _are_told_from_numbers(mapping):
        return False
    refuse_many_keys(t, mapping, key)
    return not _has_number(t, mapping, key)
