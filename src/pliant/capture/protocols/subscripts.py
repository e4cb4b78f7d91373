"""Subscripts of any value, by Python's own protocols: read, stored, deleted.

In:     a traced container, its key, the value to store.
Out:    the traced item, `Raised` where eager raises.
Holds:  special methods written in Python run in the interpreter; containers from outside are read under guards.
Source: Python's data model, "Emulating container types".
"""

from __future__ import annotations

import collections
import operator
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from pliant.capture.graph_breaks import GraphBreak, Raised, WrongKind
from pliant.capture.numbers.array_memory import is_array, is_index, key_of, refuse_elements
from pliant.capture.numbers.given_numbers import asked_key, made_key, refuse_many_keys
from pliant.capture.numbers.number_domains import are_few_floats, float_at
from pliant.capture.numbers.progressions import item, tensor_of
from pliant.capture.outside.whole_containers import base_in_c
from pliant.capture.protocols import polyfills
from pliant.capture.protocols.asked_by_c import ASKED_BY_TORCH, refuse_own, within
from pliant.capture.protocols.operators import python_method
from pliant.capture.protocols.patched_methods import refuse_patched
from pliant.capture.protocols.tail_calls import TailCall, ending
from pliant.capture.signatures import Tracer
from pliant.capture.structures import mapped
from pliant.capture.trace import DELETED
from pliant.capture.value_kinds import (
    DICT_TYPES,
    MUTABLE_CONTAINERS,
    ByKind,
    by_kind,
    concrete,
    function_of,
    has_method,
    is_iterable,
    is_list,
    is_slice,
    is_symbolic,
)
from pliant.capture.varying_values import PROGRESSIONS, UNSETTLED, TensorOrNumber, plain_text
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.tensor_index import NOTHING_LEFT, is_place, select_by_tensors, select_symbolic
from pliant.graph.tensor_spec import certain, product
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import ItemSource


@ending
def subscript(t: Tracer, container: Any, key: Any) -> Any:
    """container[key]"""
    return _ITEMS.of(container)(t, t.world.resolve(container), key)


def _tensor_item(t: Tracer, tensor: Any, key: Any) -> Any:
    view, rest = _with_mask(t, tensor, t.internalize(_tensor_key(t, key)))
    if t.recorder.region is not None:
        view, rest = t.native(select_by_tensors, view, rest)
    if rest is not NOTHING_LEFT:
        view, rest = t.native(select_symbolic, view, rest)
    return view if rest is NOTHING_LEFT else t.native(operator.getitem, view, rest)


def _with_mask(t: Tracer, tensor: Any, key: Any) -> tuple[Any, Any]:
    """The tensor and its index, where that is a mask without dimensions, which eager asks for its value: it selects all of the
    tensor or nothing, along a new dimension."""
    is_mask = is_fake(key) and key.dtype_ is torch.bool and not key.size_ and key.subclass_ is None and not t.overrides.modes
    if not is_mask or t.recorder.region is not None or not t.mode.allow_unbacked or t.recorder.elements.is_known(key):
        return tensor, key
    return t.native(torch.Tensor.unsqueeze, tensor, 0), t.native(torch.Tensor.reshape, key, (1,))


def _item_at(t: Tracer, sequence: Any, key: Any) -> Any:
    found = float_at(sequence, key) if is_symbolic(key) else None
    return t.native(operator.getitem, sequence, _index(t, key)) if found is None else found


def _object_item(t: Tracer, container: Any, key: Any) -> Any:
    """Of an object whose class may have a `__getitem__` of its own."""
    if type(container).__module__ == "typing":  # a type: ClassVar[int]
        return t.native(operator.getitem, container, key)
    method = python_method(t, container, "__getitem__")
    return _INHERITED.of(container)(t, container, key) if method is None else TailCall(method, (container, key))


def _item_in_c(t: Tracer, container: Any, key: Any) -> Any:
    container = t.world.whole(container)
    t.refuse_opaque(container)
    return t.native(operator.getitem, container, t.internalize(key))


def _is_a_number(t: Tracer, key: FakeTensor) -> bool:
    """Whether C code would read the one integer in the tensor, and nobody else is to hear of it."""
    if key.dtype_.is_floating_point or key.dtype_.is_complex or not certain(product(key.size_) == 1):
        return False
    heard = t.overrides.modes or key.subclass_ is not None or t.recorder.region is not None
    if not heard:
        refuse_patched(t, "__index__")
    return not heard


def _part_of_key(t: Tracer, key: Any) -> Any:
    if is_array(key) and not is_index(key):
        raise GraphBreak("unknown-call", "a tensor at an array of numbers that eager takes for a sequence")
    refuse_own(t, operator.getitem, within((key,)), ASKED_BY_TORCH)
    key = mapped(key_of(key), plain_text)
    refuse_elements(t, key)
    refuse_own_items(t, key)
    key = known_items(t, key)
    if is_place(key) and t.mode.allow_unbacked and t.recorder.region is None:
        return t.native(torch.Tensor.item, key)
    return key


def _parts_of_key(t: Tracer, key: tuple[Any, ...]) -> tuple[Any, ...]:
    refuse_own(t, operator.getitem, (key,), ASKED_BY_TORCH)
    return tuple([_tensor_key(t, part) for part in key])


def _progression_item(t: Tracer, numbers: Any, key: Any) -> Any:
    key = as_index(t, key)
    found = item(t, numbers, key)
    return subscript(t, concrete(numbers), key) if found is NotImplemented else found


def _progression_as_key(t: Tracer, numbers: Any) -> Any:
    """Eager makes a tensor of integers of a sequence; a tuple is an index a dimension."""
    is_index = numbers.cls is not tuple and numbers.kind is int
    return tensor_of(t, numbers) if is_index else _tensor_key(t, concrete(numbers))


# An index of a tensor; integers in tensors without dimensions are numbers, as they are in eager.
_tensor_key: Callable[[Tracer, Any], Any] = by_kind(
    _part_of_key,
    {
        slice: lambda t, key: slice(*[_tensor_key(t, as_index(t, part)) for part in (key.start, key.stop, key.step)]),
        **dict.fromkeys(PROGRESSIONS, _progression_as_key),
    },
    {tuple: _parts_of_key},
    place=1,
)


def sequence_item(t: Tracer, container: Any, key: Any) -> Any:
    """list.__getitem__, or tuple's, of an instance of a subclass."""
    base: Any = base_in_c(container) or tuple
    source = t.world.source_of(container)
    if source is None:
        return t.native(base.__getitem__, container, _index(t, key))
    takes_slice = is_slice(key)
    held_here = t.world.contents(container) if takes_slice else t.world.changed_contents(container)
    if held_here is not None:
        return t.native(base.__getitem__, held_here, _index(t, key))
    if takes_slice:
        raise GraphBreak("unknown-object", f"a slice of a {type(container).__name__} from outside")
    index, length = _place(t, key), known_length(t, container)
    item = t.native(base.__getitem__, container, index)
    return t.world.bring(item, ItemSource(source, index % length, base.__name__))


def known_length(t: Tracer, container: Any) -> int:
    """The length, under a guard, of an instance of a subclass of list or tuple from outside."""
    if python_method(t, container, "__len__") is not None:
        raise GraphBreak("unknown-object", f"a {type(container).__name__} from outside has a length of its own")
    if (held_here := t.world.changed_contents(container)) is not None:
        return len(held_here)
    t.world.guard(t.world.source_of(container), Kind.LENGTH, len(container))
    return len(container)


def refuse_own_items(t: Tracer, value: Any) -> None:
    """Break if C code that takes any sequence for a list would ask the program's class for the items of one."""
    own = any(python_method(t, value, name) is not None for name in _ASKED_BY_C.of(value))
    if own or base_in_c(value) is collections.deque and t.world.is_opaque(value):
        raise GraphBreak("unknown-object", f"C code would read the items of a {type(value).__name__}")


_ASKED_BY_C: ByKind[tuple[str, ...]] = ByKind(
    ("__getitem__",),
    families={**dict.fromkeys((list, tuple), ("__iter__", "__len__")), **dict.fromkeys((FakeTensor, dict), ())},
)


def known_items(t: Tracer, value: Any) -> Any:
    """A list of a subclass as C code reads it: what comes from outside is a list of its items, under guards."""
    if is_list(value) or base_in_c(value) is not list:
        return value
    outside = t.world.is_opaque(value)
    places = range(known_length(t, value) if outside else list.__len__(value))
    before = [sequence_item(t, value, i) for i in places]
    items = [known_items(t, t.internalize(one)) for one in before]
    return items if outside or any(map(operator.is_not, items, before)) else value


def _plain_dict_item(t: Tracer, container: Any, key: Any) -> Any:
    if t.world.needs_guards(container):
        return dict_item(t, container, key)
    return t.native(operator.getitem, container, made_key(t, key))


def _class_item(t: Tracer, cls: type, key: Any) -> Any:
    if hasattr(cls, "__members__"):  # an enum's member by name
        member = t.native(operator.getitem, cls, key)
        return t.world.hold(member, str(member))
    own_item = function_of(t.world.type_lookup(cls, "__class_getitem__"))
    if own_item is not None and own_item.__module__ != "typing":
        return TailCall(own_item, (cls, key))
    return t.native(operator.getitem, cls, key)  # list[int]


def dict_item(t: Tracer, container: Any, key: Any) -> Any:
    """dict.__getitem__, where a class may say what takes the place of a missing item."""
    key = asked_key(t, container, key)
    if t.world.is_foreign(container):
        value = t.world.dict_get(container, key)
        if value is MISSING:
            t.world.note_asked(container, False)
    else:
        value = dict.get(container, key, MISSING)
    if value is not MISSING:
        return t.world.resolve(value)
    return _missing_item(t, container, key)


def _missing_item(t: Tracer, container: Any, key: Any) -> Any:
    missing = python_method(t, container, "__missing__")
    return _MISSING_ITEMS.of(container)(t, container, key) if missing is None else TailCall(missing, (container, key))


def _lacks_key(t: Tracer, container: Any, key: Any) -> NoReturn:
    raise Raised(KeyError(key))


def _made_item(t: Tracer, container: Any, key: Any) -> Any:
    factory = t.get_attr(container, "default_factory")
    made = _lacks_key(t, container, key) if factory is None else t.call(factory, (), {})
    store_subscript(t, container, key, made)
    return made


_MISSING_ITEMS: ByKind[Callable[..., Any]] = ByKind(
    _lacks_key,
    {collections.Counter: lambda t, container, key: t.native(operator.getitem, t.world.adopt(container), key)},
    {collections.defaultdict: _made_item},
)


def _plain_list_item(t: Tracer, container: Any, key: Any) -> Any:
    world = t.world
    if not world.needs_guards(container):
        return _item_at(t, container, key)
    if is_fake(key) or is_slice(key) or world.has_changes(container) or is_symbolic(key) and are_few_floats(container):
        return subscript(t, world.adopt(container), key)
    refuse_many_keys(t, container, key)
    index = _place(t, key)
    source = world.place_of(container)
    try:
        raw = t.native(operator.getitem, container, index)
    except Raised:
        world.guard(source, Kind.LENGTH, len(container))
        raise
    if index < 0 and not (world.varies(container) or world.length_varies(container, is_long=True)):
        world.guard(source, Kind.LENGTH, len(container))
        index += len(container)
    return world.resolve(world.bring(raw, ItemSource(source, index)))


# list.__getitem__, of an instance of a subclass too
list_item = by_kind(sequence_item, {list: _plain_list_item}, place=1)


def _index(t: Tracer, key: Any) -> Any:
    if is_slice(key):
        return slice(*(concrete(as_index(t, part)) for part in (key.start, key.stop, key.step)))
    return concrete(as_index(t, key))


def _place(t: Tracer, key: Any) -> Any:
    """The key as an int; what is none is left to the container to refuse."""
    index = _index(t, key)
    return operator.index(index) if has_method(type(index), "__index__") else index


_ITEMS: ByKind[Callable[..., Any]] = ByKind(
    _object_item,
    {
        FakeTensor: _tensor_item,
        **dict.fromkeys((tuple, torch.Size, str, bytes, range), _item_at),
        **dict.fromkeys(MUTABLE_CONTAINERS - DICT_TYPES, _plain_list_item),
        **dict.fromkeys(DICT_TYPES, _plain_dict_item),
        collections.defaultdict: dict_item,
        **dict.fromkeys(PROGRESSIONS, _progression_item),
        TensorOrNumber: lambda t, value, key: concrete(value),
    },
)
_INHERITED: ByKind[Callable[..., Any]] = ByKind(
    _item_in_c, families={type: _class_item, dict: dict_item, **dict.fromkeys((list, tuple), sequence_item)}
)


def as_index(t: Tracer, key: Any) -> Any:
    """The number that C code takes the key for, where it can be taken for one: what `__index__` says."""
    if is_fake(key):
        return t.native(torch.Tensor.item, key) if _is_a_number(t, key) else key
    method = None if issubclass(type(key), int) else python_method(t, key, "__index__")  # an int is its own, whatever its class says
    return key if method is None else t.call(polyfills.checked, (int, "__index__ returned non-int (type {})", method, key), {})


@ending
def store_subscript(t: Tracer, container: Any, key: Any, value: Any) -> Any:
    """container[key] = value"""
    if is_fake(container):
        view, key = _with_mask(t, container, t.internalize(_tensor_key(t, key)))
        if t.recorder.region is not None and is_place(key):
            key = t.native(torch.reshape, key, (1,))
        view, rest = t.native(select_symbolic, view, key)
        t.native(operator.setitem, view, ... if rest is NOTHING_LEFT else rest, value)
        return None
    return _change_item(t, container, key, value)


def stored_key(t: Tracer, key: Any) -> Any:
    """The key of a store that the entry replays: a tensor is found there as what stands for it in the trace."""
    return key if is_fake(key) else t.world.real_key(key)


@ending
def delete_subscript(t: Tracer, container: Any, key: Any) -> Any:
    """del container[key]"""
    return _change_item(t, container, key, DELETED)


def _change_item(t: Tracer, container: Any, key: Any, value: Any) -> Any:
    """A store, or of `DELETED` a deletion."""
    container, deletes = t.world.resolve(container), value is DELETED
    rest = () if deletes else (value,)
    method = python_method(t, container, "__delitem__" if deletes else "__setitem__")
    if method is not None:
        return TailCall(method, (container, key, *rest))
    _CHANGES.of(container)(t, container, key, *rest)
    return None


def _change_dict(t: Tracer, container: Any, key: Any, value: Any = DELETED) -> None:
    key = asked_key(t, container, key)
    if not t.world.needs_guards(container):
        _change_in_c(t, container, key, *(() if value is DELETED else (value,)))
        return
    if value is DELETED and not t.world.contains(container, key):
        if type(container) is collections.Counter:  # to which all keys belong
            return
        raise Raised(KeyError(key))
    t.world.dict_set(container, stored_key(t, key), value)


def _change_sequence(t: Tracer, container: Any, key: Any, *value: Any) -> None:
    index = _index(t, key)
    if is_slice(key):  # what cannot be iterated is left to the container to refuse
        value = tuple(_items_put(t, container, index, one) if is_iterable(one) else one for one in value)
    _change_in_c(t, container, index, *value)


def _items_put(t: Tracer, container: Any, index: slice, value: Any) -> Any:
    """What takes a slice's place. A list tells of a TypeError of `iter(value)` in words of its own, whoever raised it."""
    try:
        return t.as_sequence(value) if is_list(container) else t.iterable(value)
    except WrongKind:
        if is_list(container):
            raise Raised(_no_items(index)) from None
        raise


def _no_items(index: slice) -> TypeError:
    """What this version of Python says of it."""
    try:
        list[Any]()[index] = None  # type: ignore[call-overload]
    except TypeError as error:
        return TypeError(str(error))
    raise AssertionError("None took a slice's place")


def _change_in_c(t: Tracer, container: Any, key: Any, *value: Any) -> None:
    container = t.world.whole(container)
    if t.world.is_opaque(container):
        what = "assignment to" if value else "deletion from"
        raise GraphBreak("unknown-object", f"item {what} a {type(container).__name__} from outside")
    t.native(operator.setitem if value else operator.delitem, container, key, *value)


_CHANGES: ByKind[Callable[..., None]] = ByKind(
    _change_sequence,
    dict.fromkeys(UNSETTLED, lambda t, numbers, *rest: _change_sequence(t, concrete(numbers), *rest)),
    {dict: _change_dict},
)
