"""Iteration over any value, by Python's own protocols.

In:     traced values.
Out:    iterators over traced values; exhaustion is `Raised(StopIteration)`.
Holds:  `__iter__` and `__next__` written in Python run in the interpreter; containers from outside are read under guards.
Source: Python's data model, "Emulating container types" and "Generator-iterator methods".
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.iterators.carried import DequeItems, LooseItems, own_items
from pliant.capture.iterators.generators import OURS, is_traced_generator, traced_iterator
from pliant.capture.numbers import progressions
from pliant.capture.numbers.array_memory import is_array
from pliant.capture.outside.set_orders import HASH_ALIKE
from pliant.capture.outside.whole_containers import loosely_ordered
from pliant.capture.protocols import polyfills
from pliant.capture.protocols.operators import python_method
from pliant.capture.protocols.subscripts import subscript
from pliant.capture.protocols.tail_calls import TailCall, ending
from pliant.capture.signatures import Tracer
from pliant.capture.structures import is_list_or_tuple
from pliant.capture.value_kinds import DICT_TYPES, MUTABLE_CONTAINERS, ByKind, concrete, exactly, is_dict, misused
from pliant.cpython import table_of
from pliant.graph.fake_tensor import FakeTensor
from pliant.unpatched import BUILTINS
from pliant.unpatched import COLLECTIONS as collections


@ending
def iterate(t: Tracer, value: Any) -> Any:
    """iter(value): a real iterator over traced values, or an object whose `__next__` is interpreted."""
    return _ITERATORS.of(value)(t, value)


def _items_of_tensor(t: Tracer, value: Any) -> Any:
    if value.dim() == 0:
        raise Raised(TypeError("iteration over a 0-d tensor"))
    return t.native(BUILTINS.iter, value)


def _items_of_set(t: Tracer, value: Any) -> Any:
    note_order(t, value)
    value = t.world.resolve(value)
    items = loosely_ordered(t.world, value)
    return iter(t.world.adopt(value)) if items is None else LooseItems(t.world, value, items)


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
    if not hasattr(type(value), "__iter__") and python_method(t, value, "__getitem__") is not None:
        return t.call(polyfills.items_by_index, (value,), {})
    return t.native(BUILTINS.iter, value)


def _items_of_contents(t: Tracer, value: Any) -> Any:
    if (held_here := t.world.contents(value)) is None:
        raise GraphBreak("unknown-object", f"iteration over a {type(value).__name__} from outside")
    return iterate(t, held_here)


_ITERATORS: ByKind[Callable[..., Any]] = ByKind(
    _object_items,
    {
        FakeTensor: _items_of_tensor,
        **dict.fromkeys(OURS, lambda t, value: value),
        **dict.fromkeys((tuple, str, bytes, range, torch.Size), lambda t, value: iter(value)),
        **dict.fromkeys(MUTABLE_CONTAINERS, lambda t, value: iter(t.world.adopt(t.world.resolve(value)))),
        **dict.fromkeys((set, frozenset), _items_of_set),
        collections.deque: lambda t, value: DequeItems(t.world.adopt(t.world.resolve(value))),
    },
)
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
    return items if is_driven(t, items) or hasattr(type(items), "__next__") else t.sequence(items)


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
    iterator = iterate(t, value)
    if python_method(t, iterator, "__next__") is not None:
        return t.call(polyfills.each_item, (iterator,), {})
    return iterator


def hashables(t: Tracer, value: Any) -> Any:
    """Something C code can make a set of. Sets and dicts stay what they are: their slots, too, decide on the new order."""
    if _is_hashed(value):
        value = t.world.adopt(t.world.resolve(value))
    items = iterable(t, value)
    return items if _is_hashed(items) else map(t.hashable, items)


_is_hashed = exactly(dict, set, frozenset)  # which keep the hashes of what they hold


def note_order(t: Tracer, value: Any) -> None:
    """Of a set that the trace made: what is not a number hashes otherwise in another process, and so the order is another."""
    if isinstance(value, (set, frozenset)) and len(value) > 1 and not t.world.needs_guards(value):
        kinds = {*map(type, value)}
        if kinds <= HASH_ALIKE:
            return
        size = table_of(value)
        if kinds <= _HASHED_BY_CONTENT and size is not None:
            t.orders.append((size, tuple(value)))
        else:
            t.process_bound = "the order of a set that is no set of numbers"


_HASHED_BY_CONTENT = HASH_ALIKE | {str, bytes}


def sequence(t: Tracer, value: Any, most: int | None = None) -> Any:
    """All values of an iterable, as a tuple or list; of an iterator no more are taken than `most`."""
    value = t.world.adopt(t.world.resolve(progressions.items(value)))
    if is_list_or_tuple(value):
        return value
    items = iterable(t, value)
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
