"""What a value from outside becomes in a trace, and under which guards.

In:     a raw value and the source it was read through.
Out:    its traced form: tensors become fake, numbers may become symbolic, tuples are brought item by item, the rest stays itself.
Holds:  nothing of the program runs; what a guard does not fix is guarded when it is read.
"""

from __future__ import annotations

import decimal
import functools
import gc
import types
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.iterators.suspended import Carried
from pliant.capture.numbers.array_memory import can_be_traced, real_tensor, wrap
from pliant.capture.numbers.numpy_scalars import bring_scalar
from pliant.capture.numbers.varying_text import text_given
from pliant.capture.outside.made_at_run_time import bring_function, is_made_per_call, know_by_parts
from pliant.capture.outside.whole_containers import bring_items, know_items
from pliant.capture.signatures import World
from pliant.capture.value_kinds import (
    CONSTANT_TYPES,
    DICT_TYPES,
    ByKind,
    concrete,
    is_nan,
    is_numpy_scalar,
    reader,
    tuple_of,
)
from pliant.guards.kinds import Kind
from pliant.guards.sources import (
    ArrayTensorSource,
    AttributeSource,
    ItemSource,
    LengthSource,
    MethodSource,
    Source,
    question,
)
from pliant.guards.standard import identity_types, is_numpy_function
from pliant.guards.state import decimal_settings

# They are known by which one they are. Of what derives from a number or from text no guard reads which it is.
_ONES = (*identity_types(), int, float, complex, str, bytes)
_ONE_IDS = frozenset(map(id, _ONES))


def fixing_guard(value: Any) -> Kind | None:
    """The guard of what is told by its value, or is one object, and has nothing else to read; None for the rest."""
    if type(value) in (*CONSTANT_TYPES, str):
        return Kind.EQUALS
    return Kind.IDENTITY if _is_one(type(value)) and not is_numpy_scalar(value) else None


def _is_one(cls: type) -> bool:
    """Whether objects of the class are themselves alone. Runs nothing of the program, as `isinstance` may."""
    return not _ONE_IDS.isdisjoint(map(id, cls.__mro__)) or is_numpy_function(cls)


def traced_form(world: World, value: Any, source: Source) -> Any:
    """What the program sees of `value`; `World.bring` remembers it."""
    if type(value).__module__ == "numpy" and is_numpy_scalar(value):  # float64 derives from float
        return bring_scalar(world, value, source)
    return _TRACED.of(value)(world, value, source)


def _constant(world: World, value: Any, source: Source) -> Any:
    world.guard(source, Kind.EQUALS, value)
    return value


def _itself(world: World, value: Any, source: Source) -> Any:
    """What is known once it is known which one it is."""
    world.guard(source, Kind.IDENTITY, value)
    world.set_origin(value, source)
    return value


def _text(world: World, value: str, source: Source) -> Any:
    """One that varies is guarded only where the program asks what it says."""
    if not world.inputs.policy.text_varies(source, value):
        return _constant(world, value, source)
    world.guard(source, Kind.NUMBER_TYPE, str)
    text, unread = text_given(value, lambda: world.guard(source, Kind.EQUALS, value))
    world.set_origin(unread, source)
    return text


def _method_in_c(world: World, value: Any, source: Source) -> Any:
    """A function, or the method of an object, whose state is the object's."""
    owner = value.__self__
    if _IS_FUNCTION.of(owner) or is_numpy_scalar(owner) or type(owner).__name__.startswith("pybind11"):
        return _itself(world, value, source)
    world.guard(source, Kind.TYPE, type(value))
    receiver = concrete(world.bring(owner, AttributeSource(source, "__self__")))
    name = world.bring(value.__name__, AttributeSource(source, "__name__"))
    if receiver is not owner:
        if not hasattr(receiver, name):  # of an array, which is traced as a tensor
            raise GraphBreak("unknown-object", f"the method {name} of {type(owner).__name__}")
        return getattr(receiver, name)
    if type(value) is types.MethodWrapperType:  # of which class, which `super()` chooses
        world.bring(value.__objclass__, AttributeSource(source, "__objclass__"))
    world.set_origin(value, source)
    return value


# By whose `__self__`: functions of modules and classes, which have no state, as NumPy's scalars have none.
_IS_FUNCTION: ByKind[bool] = ByKind(
    False, {types.NoneType: True, types.GetSetDescriptorType: True}, {types.ModuleType: True, type: True}
)


def _range(world: World, value: range, source: Source) -> range:
    world.guard(source, Kind.RANGE, (value.start, value.stop, value.step))
    return value


def _limits(world: World, value: Any, source: Source) -> Any:
    """Of the numbers of a dtype, which says all of it."""
    world.guard(AttributeSource(source, "dtype"), Kind.EQUALS, value.dtype)
    world.set_origin(value, source)
    return value


def _partial(world: World, value: Any, source: Source) -> Any:
    """It may be made anew for each call: a call of it reads what it holds."""
    world.known_by_parts[id(value)] = value
    return _object(world, value, source)


def _carried(world: World, value: Carried, source: Source) -> Any:
    world.guard(source, Kind.TYPE, Carried)
    world.guard(AttributeSource(source, "turns"), Kind.EQUALS, value.turns)
    return world.bring_carried(value, AttributeSource(source, "real"))


def _object(world: World, value: Any, source: Source) -> Any:
    """An object that has a type to guard, and is read further when the program reads it."""
    cls = type(value)
    if is_numpy_function(cls):
        return _itself(world, value, source)
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
        return _array(world, value, source)
    world.set_origin(value, source)
    return world.resolve(value)


def _array(world: World, value: Any, source: Source) -> Any:
    """An array of NumPy's: an array on a tensor that the graph gets."""
    place = ArrayTensorSource(source)
    array = wrap(world.inputs.tensor(real_tensor(value), place))
    for one in (value, array):
        world.set_origin(one, source)
        world.stand_for(one, array)
    return array


def _tuple(world: World, value: tuple[Any, ...], source: Source) -> Any:
    world.guard(source, Kind.TYPE, type(value))
    if type(value).__len__ is tuple.__len__:
        world.guard(source, Kind.LENGTH, len(value))
    else:  # one of the program's, which may do anything
        world.guard(LengthSource(source, "tuple"), Kind.EQUALS, tuple.__len__(value))
    via = reader(value, tuple)
    items = bring_items(world, tuple(tuple.__iter__(value)), source, lambda i: ItemSource(source, i, via))
    if all(a is b for a, b in zip(items, tuple.__iter__(value), strict=True)):
        made = value
    else:
        made = tuple_of(type(value), items, value)
    world.set_origin(made, source)
    return made


# ---- small immutable values, made again of their parts: what is inside them may be traced
def _method(world: World, value: types.MethodType, source: Source) -> types.MethodType:
    function = world.bring(value.__func__, AttributeSource(source, "__func__"))
    receiver = concrete(world.bring(value.__self__, AttributeSource(source, "__self__")))  # C code asks which object it is
    return types.MethodType(function, receiver)


def _proxy(world: World, value: Any, source: Source) -> types.MappingProxyType[Any, Any]:
    """Of a copy: only C sees the dict behind it."""
    behind = gc.get_referents(value)
    if not DICT_TYPES.issuperset(map(type, behind)):
        raise GraphBreak("unknown-object", "a view of a mapping of the program's own")
    if any(map(world.has_changes, behind)):
        raise GraphBreak("unknown-object", "a view of a dict that was read as a whole, or in which something was stored")
    world.viewed.update(map(id, behind))
    copied = value.copy()
    world.set_origin(copied, MethodSource(source, "copy"))
    return types.MappingProxyType(world.adopt(copied))


def _frozenset(world: World, value: frozenset[Any], source: Source) -> frozenset[Any]:
    if any(map(is_nan, value)):
        raise GraphBreak("unknown-object", "a NaN is in a frozenset from outside")
    know_items(world, value, source)
    return value


def _decimal(world: World, value: decimal.Decimal, source: Source) -> decimal.Decimal:
    note_decimals(world)
    return _itself(world, value, source)  # type: ignore[no-any-return]


def note_decimals(world: World) -> None:
    """Decimal numbers are computed with as the thread's context says."""
    world.guard(question(decimal_settings), Kind.EQUALS, decimal_settings())


MADE_AGAIN: dict[type, Callable[[World, Any, Source], Any]] = {
    types.MethodType: _method,
    types.MappingProxyType: _proxy,
    slice: lambda world, value, source: slice(
        *(world.bring(getattr(value, n), AttributeSource(source, n)) for n in ("start", "stop", "step"))
    ),
    frozenset: _frozenset,
}


def _of_this_class(make: Callable[[World, Any, Source], Any]) -> Callable[[World, Any, Source], Any]:
    def traced(world: World, value: Any, source: Source) -> Any:
        world.guard(source, Kind.TYPE, type(value))
        return make(world, value, source)

    return traced


_TRACED: ByKind[Callable[[World, Any, Source], Any]] = ByKind(
    _object,
    {
        **dict.fromkeys(CONSTANT_TYPES, _constant),
        str: _text,
        **dict.fromkeys((int, float), lambda world, value, source: world.inputs.scalar(value, source)),
        **{cls: _of_this_class(make) for cls, make in MADE_AGAIN.items()},
        **dict.fromkeys((types.BuiltinFunctionType, types.MethodWrapperType), _method_in_c),
        range: _range,
        **dict.fromkeys((torch.finfo, torch.iinfo), _of_this_class(_limits)),
        types.FunctionType: lambda world, value, source: (
            (bring_function if is_made_per_call(value, source) else _itself)(world, value, source)
        ),
        functools.partial: _partial,
        Carried: _carried,
    },
    {
        **dict.fromkeys(_ONES, _itself),
        decimal.Decimal: _decimal,
        torch.Tensor: lambda world, value, source: world.inputs.tensor(value, source),
        tuple: _tuple,
    },
)
