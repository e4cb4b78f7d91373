"""What a value from outside becomes in a trace, and under which guards.

In:     a raw value and the source it was read through.
Out:    its traced form: tensors become fake, numbers may become symbolic, tuples are brought item by item, the rest stays itself.
Holds:  nothing of the program runs; what a guard does not fix is guarded when it is read.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import torch

from pliant.capture.iterators.carried import Carried
from pliant.capture.numbers.arrays import can_be_traced, real_tensor, wrap
from pliant.capture.numbers.numpy_scalars import bring_scalar
from pliant.capture.numbers.varying_text import text_given
from pliant.capture.outside.constant_items import bring_items
from pliant.capture.outside.made_again import MADE_AGAIN
from pliant.capture.outside.nested_functions import bring_function, is_made_per_call
from pliant.capture.outside.structural_classes import know_by_parts
from pliant.capture.signatures import World
from pliant.capture.value_kinds import CONSTANT_TYPES, LOCKS, MUTABLE_CONTAINERS, concrete, is_numpy_scalar, tuple_of
from pliant.guards.kinds import Kind
from pliant.guards.sources import (
    ArrayTensorSource,
    AttributeSource,
    ItemSource,
    Source,
)
from pliant.guards.standard import IDENTITY_TYPES

# Methods bound to an object: what they do depends on it, so it is read like any other object from outside.
_BOUND_IN_C = (types.BuiltinFunctionType, types.MethodWrapperType)
_BOUND_TO = (*MUTABLE_CONTAINERS, types.GeneratorType, *LOCKS, torch.Tensor, torch.nn.Parameter, str, bytes, int, float)
# Of what derives from a number or from text no guard reads which it is.
_IDENTITY = frozenset(map(id, (*IDENTITY_TYPES, int, float, complex, str, bytes)))


def traced_form(world: World, value: Any, source: Source) -> Any:
    """What the program sees of `value`; `World.bring` remembers it."""
    cls = type(value)
    if cls is str and world.inputs.policy.text_varies(source):
        return _bring_text(world, value, source)
    if cls in CONSTANT_TYPES:
        world.guard(source, Kind.EQUALS, value)
        return value
    if cls is int or cls is float:
        return world.inputs.scalar(value, source)
    if issubclass(cls, torch.Tensor):
        return world.inputs.tensor(value, source)
    if issubclass(cls, tuple):
        return _bring_tuple(world, value, source)
    if cls in MADE_AGAIN:
        world.guard(source, Kind.TYPE, cls)
        return MADE_AGAIN[cls](world, value, source)
    if cls in _BOUND_IN_C and type(value.__self__) in _BOUND_TO:
        world.guard(source, Kind.TYPE, cls)
        receiver = concrete(world.bring(value.__self__, AttributeSource(source, "__self__")))
        return getattr(receiver, world.bring(value.__name__, AttributeSource(source, "__name__")))
    if cls is range:
        world.guard(source, Kind.RANGE, (value.start, value.stop, value.step))
        return value
    if cls is types.FunctionType and is_made_per_call(value, source):
        return bring_function(world, value, source)
    if cls is functools.partial:  # may be made anew for each call: a call of it reads what it holds
        world.known_by_parts[id(value)] = value
        return _bring_object(world, value, source)
    if cls.__module__ == "numpy" and is_numpy_scalar(value):  # float64 derives from float
        return bring_scalar(world, value, source)
    if not _IDENTITY.isdisjoint(map(id, cls.__mro__)) or cls.__name__ == "ufunc":  # runs nothing of the program, as `isinstance` may
        world.guard(source, Kind.IDENTITY, value)
        world.set_origin(value, source)
        return value
    return _bring_object(world, value, source)


def _bring_object(world: World, value: Any, source: Source) -> Any:
    """An object that has a type to guard, and is read further when the program reads it."""
    cls = type(value)
    known = world.source_of(value)
    if known is not None and known != source:
        found = world.second_way(value, source, known)
        if found is value:
            return world.resolve(value)
        value = found
    else:
        world.twins.note_own(source)
    if not know_by_parts(world, cls, source):
        world.guard(source, Kind.TYPE, cls)
    if cls.__name__ == "ndarray" and can_be_traced(value):
        return _bring_array(world, value, source)
    if cls is Carried:
        world.guard(AttributeSource(source, "turns"), Kind.EQUALS, value.turns)
        return world.bring_carried(value, AttributeSource(source, "real"))
    world.set_origin(value, source)
    return world.resolve(value)


def _bring_array(world: World, value: Any, source: Source) -> Any:
    """An array of NumPy's: an array on a tensor that the graph gets."""
    place = ArrayTensorSource(source)
    array = wrap(world.inputs.tensor(real_tensor(value), place))
    for one in (value, array):
        world.set_origin(one, source)
        world.stand_for(one, value, array)
    return array


def _bring_text(world: World, value: str, source: Source) -> Any:
    """A text that varies: what it says is guarded only where the program asks for it."""
    world.guard(source, Kind.NUMBER_TYPE, str)
    text, unread = text_given(value, lambda: world.guard(source, Kind.EQUALS, value))
    world.set_origin(unread, source)
    return text


def _bring_tuple(world: World, value: tuple[Any, ...], source: Source) -> Any:
    world.guard(source, Kind.TYPE, type(value))
    world.guard(source, Kind.LENGTH, len(value))
    via = None if type(value) is tuple else "tuple"
    items = bring_items(world, tuple(tuple.__iter__(value)), source, lambda i: ItemSource(source, i, via))
    if all(a is b for a, b in zip(items, tuple.__iter__(value), strict=True)):
        made = value
    else:
        made = tuple_of(type(value), items)
    world.set_origin(made, source)
    return made
