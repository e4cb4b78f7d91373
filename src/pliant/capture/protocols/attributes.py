"""Reading attributes of any value, by Python's own rules, with guards on what was outside.

In:     a traced value and a name.
Out:    the traced attribute; `Raised(AttributeError)` where eager raises it.
Holds:  user code (properties, descriptors, `__getattr__`) runs in the interpreter; nothing outside is changed.
Source: Python's data model, "Invoking Descriptors".
"""

from __future__ import annotations

import enum
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.graph_breaks import CannotCapture, GraphBreak, NoAttribute, Raised
from pliant.capture.iterators.generators import NAMES, UNSTARTED, TracedGenerator, traced_iterator
from pliant.capture.numbers.array_memory import is_array
from pliant.capture.numbers.arrays import array_attribute
from pliant.capture.numbers.number_domains import KINDS, LIKE_OTHERS, PARTS
from pliant.capture.numbers.progressions import is_progression
from pliant.capture.outside.identity import TracedId
from pliant.capture.program_stack import traced_attribute
from pliant.capture.protocols import polyfills
from pliant.capture.protocols.descriptors import (
    IN_C,
    bind,
    c_descriptor,
    has_getter,
    is_data_descriptor,
    is_in_c,
    lacks,
    not_found,
    plain_class_value,
    refuse_attributes,
)
from pliant.capture.protocols.module_attributes import asked_attribute, is_asked, name_of, namespace_of
from pliant.capture.protocols.tail_calls import TailCall, ended, ending, is_tail_call, steps_of
from pliant.capture.protocols.tensor_members import OF_AUTOGRAD, grad_of_input, of_autograd, own_attribute, own_member
from pliant.capture.recording.stand_ins import is_detached
from pliant.capture.signatures import Tracer
from pliant.capture.trace import DELETED, BreakReason
from pliant.capture.value_kinds import (
    CONSTANTS,
    MUTABLE_CONTAINERS,
    SYMBOLIC_TYPES,
    ByKind,
    class_in_numpy,
    concrete,
    derives,
    is_function,
    is_plain_dict,
    is_symbolic,
    is_tensor,
    own_dict,
    varying,
)
from pliant.capture.varying_values import UNSETTLED, Text
from pliant.dispatch.running_frames import frame_above
from pliant.dispatch.tracebacks import LOST
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.unbacked import is_unbacked
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.parts import dict_of
from pliant.guards.sources import AttributeSource, FailureSource, TypeSource, held
from pliant.guards.standard import can_change
from pliant.torch_adapter import member_of_module

_OFFSET_QUESTIONS = frozenset(("storage_offset", "as_strided", "as_strided_", "set_", "untyped_storage", "storage"))
_OF_METHODS = frozenset(dir(types.MethodType)) - {"__doc__"}  # which reads the function's
_NATIVE_TYPES = (
    *CONSTANTS, tuple, frozenset, slice, range, torch.Size, torch.finfo, torch.iinfo,
    types.CodeType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.GetSetDescriptorType, TracedGenerator,
)  # fmt: skip


def get_attr(t: Tracer, obj: Any, name: str, linked: bool = False) -> Any:
    """The value of `obj.name`."""
    found = find_attribute(t, obj, name)
    try:
        return ended(t, found, linked and not is_fake(obj))
    except NoAttribute as raised:
        _tell_what_was_asked(t, raised.error, obj, name)
        raise


# Where code lies, in which entries of two processes may differ though the code is the same.
_PLACES = frozenset(
    ("co_filename", "co_firstlineno", "co_lines", "co_linetable", "co_positions", "f_lineno", "tb_lineno")
)


def find_attribute(t: Tracer, obj: Any, name: str) -> Any:
    """The value of `obj.name`, or the call that makes it."""
    if name in _PLACES:
        t.process_bound = f"{name} says where code lies"
    try:
        return _ATTRIBUTES.of(obj)(t, obj, name)
    except NoAttribute as raised:
        _tell_what_was_asked(t, raised.error, obj, name)
        raise


def _tell_what_was_asked(t: Tracer, error: Any, obj: Any, name: str) -> None:
    """An error that does not say which attribute was asked of which object is told."""
    if error.name is None and error.obj is None and not t.world.is_foreign(error):
        error.name, error.obj = name, obj


def _number_attribute(t: Tracer, obj: Any, name: str) -> Any:
    """Of what varies: torch's classes lack much of what Python's have."""
    if name == "__class__" and (type(obj) not in UNSETTLED or is_progression(obj)):
        return bring_class(t, obj)
    if name in LIKE_OTHERS and is_symbolic(obj) and not is_unbacked(obj):
        return _native(t, LIKE_OTHERS[name](obj), name)
    kind = varying(obj)
    if (kind, name) in PARTS:
        return PARTS[kind, name](obj)
    if kind in KINDS and not hasattr(kind, name):
        raise lacks(obj, name)
    return find_attribute(t, concrete(obj), name)


def _generator_attribute(t: Tracer, obj: Any, name: str) -> Any:
    known = traced_iterator(t, obj) if name in ("send", "throw", "close", "__next__", "__iter__") else obj
    return _object_attribute(t, obj, name) if known is obj else _native(t, known, name)


def _traced_generator_attribute(t: Tracer, obj: TracedGenerator, name: str) -> Any:
    if not hasattr(UNSTARTED, name):
        raise lacks(obj, name)
    if name == "__doc__":
        return None
    return _native(t, obj, name) if name.startswith("gi_") or name in NAMES else _object_attribute(t, obj, name)


def _frame_attribute(t: Tracer, obj: Any, name: str) -> Any:
    if (place := t.frame_values.place_of(obj)) is not None:
        return traced_attribute(t, place, name)
    if name == "f_back" and t.world.is_foreign(obj):
        return TailCall(polyfills.looked, (frame_above, obj))
    if name in LOST and not t.world.is_foreign(obj):
        raise CannotCapture(BreakReason("cannot-rebuild", f"`{name}` of the frame of a traceback", t.location()))
    return _object_attribute(t, obj, name)


def _native(t: Tracer, obj: Any, name: str) -> Any:
    """Of a class in C."""
    return t.native(getattr, t.world.resolve(obj), name)


def _container_attribute(t: Tracer, obj: Any, name: str) -> Any:
    if (name == "__dict__" or not hasattr(type(obj), name)) and t.world.has_dict(obj):
        return _object_attribute(t, obj, name)
    obj = t.world.resolve(obj)
    if t.world.needs_guards(obj) and is_in_c(found := getattr(type(obj), name, None)):
        return c_descriptor(t, found, obj, name)
    return _native(t, obj, name)


def _cell_attribute(t: Tracer, cell: types.CellType, name: str) -> Any:
    value = t.world.cell_get(cell) if name == "cell_contents" and t.world.needs_guards(cell) else MISSING
    return _native(t, cell, name) if value is MISSING or value is DELETED else t.world.resolve(value)


# ---- objects
def _object_attribute(t: Tracer, obj: Any, name: str) -> Any:
    return array_attribute(t, obj, name) if is_array(obj) else _looked_up(t, obj, name, _attribute_by_rule)


def _attribute_by_rule(t: Tracer, obj: Any, name: str) -> Any:
    cls = type(obj)
    if name == "__dict__":
        return t.world.instance_dict(obj) if t.world.is_foreign(obj) and hasattr(obj, name) else _native(t, obj, name)
    if name == "__class__" and not claims_class(t, cls):
        return bring_class(t, obj)
    hook = t.world.type_lookup(cls, "__getattribute__")
    if hook is not object.__getattribute__ and not _IN_C_BY_RULE.of(hook):
        refuse_attributes(t, obj, name)
    return _generic_attribute(t, obj, name)


_IN_C_BY_RULE: ByKind[bool] = ByKind(False, {types.WrapperDescriptorType: True})


def _local_attribute(t: Tracer, obj: threading.local, name: str) -> Any:
    """Of this thread's part of the object; the guard asks whichever thread calls."""
    if name == "__dict__":
        refuse_attributes(t, obj, name)
    if name == "__class__":
        return bring_class(t, obj)
    stored = t.world.slot_get(obj, name)
    if stored is not MISSING and stored is not DELETED:
        return stored
    place = t.world.place_of(obj)
    if stored is MISSING and hasattr(obj, name):
        return t.world.resolve(t.world.bring(getattr(obj, name), AttributeSource(place, name)))
    t.world.guard(FailureSource(place, name), Kind.IDENTITY, AttributeError if stored is MISSING else None)
    raise Raised(AttributeError(f"'_thread._local' object has no attribute '{name}'"))


def _looked_up(t: Tracer, obj: Any, name: str, by_rule: Callable[[Tracer, Any, str], Any]) -> Any:
    """What the class' own `__getattribute__` finds, or the rule for its kind; on AttributeError, or where nothing is found, what
    its `__getattr__` says."""
    cls, hook, own = type(obj), "__getattribute__", None
    if t.world.type_lookup(cls, hook) is not object.__getattribute__:
        own = t.world.python_function(cls, hook)
    try:
        found: Any = by_rule(t, obj, name) if own is None else TailCall(own, (obj, name))
    except NoAttribute:
        if t.world.type_lookup(type(obj), "__getattr__") is MISSING:
            raise
        found = MISSING
    if found is not MISSING and not is_tail_call(found):
        return found
    fallback = t.world.type_lookup(type(obj), "__getattr__")
    if is_tail_call(found):
        return found if fallback is MISSING else TailCall(polyfills.attribute, (found.function, found.args, fallback, obj, name))
    if fallback is MISSING:
        raise not_found(t, obj, name)
    return _module_member(t, obj, name) if fallback is member_of_module else TailCall(fallback, (obj, name))


def generic_get_attr(t: Tracer, obj: Any, name: str) -> Any:
    """object.__getattribute__."""
    if name == "__class__" and not claims_class(t, type(obj)):
        return bring_class(t, obj)
    found = _generic_attribute(t, obj, name)
    if found is MISSING:
        raise lacks(obj, name)
    return found


def _generic_attribute(t: Tracer, obj: Any, name: str, namespace: dict[str, Any] | None = None) -> Any:
    """Data descriptor, instance dict (or namespace of a module), other class attribute; MISSING: no such attribute."""
    world, cls = t.world, type(obj)
    found = world.type_lookup(cls, name)
    if found is not MISSING and is_data_descriptor(t, found) and has_getter(t, found):
        return bind(t, found, obj, cls, name)
    if namespace is None:
        value = _instance_attribute(t, obj, name)
    else:
        value = world.dict_get(namespace, name)
    if value is not MISSING:
        return world.resolve(value)
    if found is not MISSING:
        return bind(t, found, obj, cls, name)
    if namespace is None:
        return MISSING
    hook = world.dict_get(namespace, "__getattr__")
    if hook is MISSING:
        raise Raised(AttributeError(f"module '{namespace.get('__name__')}' has no attribute '{name}'"))
    return TailCall(world.resolve(hook), (name,))


def _instance_attribute(t: Tracer, obj: Any, name: str) -> Any:
    world = t.world
    if not world.is_foreign(obj):
        table: Any = own_dict(obj)
        return table.get(name, MISSING) if is_plain_dict(table) else MISSING
    table = world.instance_dict(obj)
    if name in table or world.has_changes(table):
        return world.dict_get(table, name)
    if world.is_asked and (table or world.has_dict(obj)):
        world.guard(world.source_of(table) or dict_of(world.place_of(obj)), Kind.NO_KEY, name)
    return MISSING


_STANDS_FOR: dict[type, type] = {TracedId: int, TracedGenerator: types.GeneratorType}


def stands_for(value: Any) -> type | None:
    """The class of what the program sees in place of a value of ours, be it a number that varies or a generator."""
    return varying(value) or _STANDS_FOR.get(type(value))


def bring_class(t: Tracer, obj: Any) -> type:
    """type(obj); tensors answer for what they stand for."""
    if is_array(obj):
        return class_in_numpy(obj)  # type: ignore[no-any-return]
    cls = obj.__class__ if is_fake(obj) else stands_for(obj) or type(obj)
    t.world.fix_class(cls)
    return t.world.hold(cls, cls.__qualname__)  # type: ignore[no-any-return]


def claims_class(t: Tracer, cls: type) -> bool:
    """Whether instances say themselves what their `__class__` is, as stand-ins for other objects do."""
    return t.world.type_lookup(cls, "__class__") is not object.__dict__["__class__"]


# ---- nn.Module
def _module_member(t: Tracer, module: Any, name: str) -> Any:
    """nn.Module.__getattr__: parameters, buffers, submodules, in this order."""
    world = t.world
    foreign = world.is_foreign(module)
    table = world.instance_dict(module) if foreign else module.__dict__
    for member in ("_parameters", "_buffers", "_modules"):
        if (members := table.get(member)) is None:
            continue
        outside = world.is_foreign_dict(module, member, members) if foreign else world.needs_guards(members)
        value = world.dict_get(members, name) if outside else world.resolve(members).get(name, MISSING)
        if value is not MISSING:
            return world.resolve(value)
    world.note_asked(module, False)
    raise lacks(module, name)


# ---- tensors
def _tensor_attribute(t: Tracer, fake: FakeTensor, name: str) -> Any:
    example = t.inputs.example_of(fake)
    if name == "grad" and example is not None:
        return grad_of_input(t, fake, example)
    stored = t.world.slot_get(fake, name)
    if stored is not MISSING and stored is not DELETED:
        return stored
    if name == "requires_grad" and fake.viewed is not None and not is_detached(fake):
        return t.get_attr(fake.viewed, name)  # in inference mode fakes are what only new tensors are
    if fake.subclass_ is not None and (found := own_member(t, fake.subclass_, name)) is not MISSING:
        return bind(t, found, fake, fake.subclass_, name)
    if name in OF_AUTOGRAD and (told := of_autograd(t, fake, example, name)) is not MISSING:
        return told
    cls: Any = torch.nn.Parameter if fake.is_parameter_ else torch.Tensor
    in_class = t.world.type_lookup(cls, name)
    if name in _OFFSET_QUESTIONS:
        t.inputs.guard_offsets()
    if name == "grad":
        return None  # made by the trace, and no gradient was stored
    if in_class is MISSING or not has_getter(t, in_class):
        value = MISSING if example is None or stored is DELETED else own_attribute(t, fake, example, name)
        if value is not MISSING:
            return value
        if in_class is not MISSING:
            return plain_class_value(t, cls, in_class, name)
        if not hasattr(torch.Tensor, name):
            raise lacks(fake, name)
    if name in ("__class__",):
        return bring_class(t, fake)
    if name == "nbytes":
        return t.native(torch.Tensor.numel, fake) * fake.dtype_.itemsize
    return t.native(getattr, fake, name)


# ---- modules, functions, methods, classes
def _module_attribute(t: Tracer, module: types.ModuleType, name: str) -> Any:
    place = held(module, name_of(module))
    t.world.set_origin(module, place)
    t.world.guard(TypeSource(place), Kind.IDENTITY, type(module))
    if is_asked(module, name):
        return asked_attribute(t, module, name)
    return _looked_up(t, module, name, _generic_module_attribute)


def _generic_module_attribute(t: Tracer, module: types.ModuleType, name: str) -> Any:
    """ModuleType.__getattribute__: as of any object, then the namespace's own `__getattr__` (PEP 562)."""
    namespace = namespace_of(t.world, module)
    return namespace if name == "__dict__" else _generic_attribute(t, module, name, namespace)


def _function_attribute(t: Tracer, function: types.FunctionType, name: str) -> Any:
    world = t.world
    if not world.is_foreign(function) or name in ("__get__", "__call__"):
        return t.native(getattr, function, name)
    source, table = world.place_of(function), function.__dict__
    if not hasattr(types.FunctionType, name) and (name in table or world.has_changes(table)):
        found = world.dict_get(world.instance_dict(function), name)
        if found is MISSING:
            raise lacks(function, name)
        return world.resolve(found)
    if not hasattr(function, name):
        world.guard(dict_of(source), Kind.NO_KEY, name)
    value = t.native(getattr, function, name)
    return world.bring(value, AttributeSource(source, name))


def _method_attribute(t: Tracer, method: types.MethodType, name: str) -> Any:
    if name == "__class__":
        return bring_class(t, method)
    if name in _OF_METHODS:  # else the function's
        return getattr(method, name)
    return find_attribute(t, method.__func__, name)


def generic_class_attribute(t: Tracer, cls: type, name: str) -> Any:
    """type.__getattribute__: metaclass data descriptors, the class' MRO, the metaclass' rest."""
    world = t.world
    if issubclass(cls, enum.Enum) and name in cls.__members__:
        return world.hold(cls.__members__[name], f"{cls.__name__}.{name}")
    if name == "__dict__":
        return _class_dict(t, cls)
    found = world.type_lookup(cls, name)
    meta = MISSING if type(cls) is type else world.type_lookup(type(cls), name)
    in_c = is_in_c(meta)
    if meta is not MISSING and not in_c and is_data_descriptor(t, meta) and has_getter(t, meta):
        return bind(t, meta, cls, type(cls), name)
    if found is MISSING or is_in_c(found):
        return _metaclass_attribute(t, cls, name, meta)
    return bind(t, found, None, cls, name)


def _class_dict(t: Tracer, cls: type) -> Any:
    """The namespace of a class; every name in it counts, and so does what is read of its values."""
    if t.world.is_made(cls):
        return t.native(getattr, cls, "__dict__")
    if t.world.has_changed_slots(cls):
        raise GraphBreak("unknown-object", f"all of {cls.__qualname__}, in which something was stored, is used")
    guard_names(t, cls)
    return types.MappingProxyType({name: _member(t, cls, name) for name in cls.__dict__})


def guard_names(t: Tracer, cls: type) -> None:
    """A class keeps the names that it has."""
    t.world.guard(AttributeSource(held(cls, cls.__qualname__), "__dict__"), Kind.KEYS, tuple(cls.__dict__))


def _member(t: Tracer, cls: type, name: str) -> Any:
    """What the class itself has under the name. Functions and constants are what they are; of others more may be read."""
    t.world.type_lookup(cls, name)
    value = cls.__dict__[name]
    if type(value) in (int, float, tuple) or is_tensor(value):
        return plain_class_value(t, cls, value, name, cls)
    return value if isinstance(value, _WHOLE) else t.world.hold(value, f"{cls.__qualname__}.{name}")


_WHOLE = (
    *IN_C, types.FunctionType, types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.ClassMethodDescriptorType, property, classmethod, staticmethod, type, str, bytes, bool, complex, type(None),
)  # fmt: skip


def _metaclass_attribute(t: Tracer, cls: type, name: str, meta: Any) -> Any:
    if is_function(meta):
        return types.MethodType(meta, cls)
    if meta is MISSING and t.world.python_function(type(cls), "__getattr__") is not None:  # which C code would call
        raise Raised(AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'", name=name, obj=cls))
    if meta is MISSING or isinstance(meta, (*IN_C, types.MethodDescriptorType, types.WrapperDescriptorType)):
        value = t.native(type.__getattribute__, cls, name)  # without the `__getattr__` of a metaclass
        if isinstance(value, (type, str, tuple, int, type(None))):
            if can_change(cls) and not t.world.is_made(cls):
                t.world.guard(AttributeSource(held(cls, cls.__qualname__), name), Kind.EQUALS, value)
            return value
        return t.world.hold(value, f"{cls.__qualname__}.{name}")
    return bind(t, meta, cls, type(cls), name)


@ending
def super_attr(t: Tracer, cls: type, receiver: Any, name: str) -> Any:
    """super(cls, receiver).name"""
    real = receiver if derives(receiver, cls) else type(receiver)
    if is_fake(receiver):
        real = receiver.__class__
    mro = real.__mro__
    if cls not in mro:
        t.native(super, cls, receiver)  # complains
    t.world.type_lookup(real, name)  # also that the bases stay as they are
    for base in mro[mro.index(cls) + 1 :]:
        t.world.type_lookup(base, name)
        stored = t.world.slot_get(base, name)
        if stored is DELETED or stored is MISSING and name not in base.__dict__:
            continue
        found = base.__dict__[name] if stored is MISSING else stored
        if stored is MISSING and not t.world.is_made(base):
            t.world.hold(found, f"{base.__qualname__}.{name}")
        return bind(t, found, None if receiver is real else receiver, real, name, base)
    raise Raised(AttributeError(f"'super' object has no attribute '{name}'"))


def _super_attribute(t: Tracer, obj: Any, name: str) -> Any:
    if obj.__self_class__ is None or name in ("__class__", "__get__", "__thisclass__", "__self__", "__self_class__"):
        return _native(t, obj, name)
    return steps_of(super_attr)(t, obj.__thisclass__, obj.__self__, name)


_ATTRIBUTES: ByKind[Callable[[Tracer, Any, str], Any]] = ByKind(
    _object_attribute,
    {
        **dict.fromkeys(_NATIVE_TYPES, _native),
        **dict.fromkeys(MUTABLE_CONTAINERS, _container_attribute),
        types.CellType: _cell_attribute,
        **dict.fromkeys((*SYMBOLIC_TYPES, Text, *UNSETTLED), _number_attribute),
        FakeTensor: _tensor_attribute,
        types.GeneratorType: _generator_attribute,
        TracedGenerator: _traced_generator_attribute,
        types.FunctionType: _function_attribute,
        types.MethodType: _method_attribute,
        types.FrameType: _frame_attribute,
        threading.local: _local_attribute,
        **dict.fromkeys((weakref.ProxyType, weakref.CallableProxyType), refuse_attributes),
        super: _super_attribute,
    },
    {
        types.ModuleType: _module_attribute,
        type: lambda t, cls, name: _looked_up(t, cls, name, generic_class_attribute),
        **dict.fromkeys((threading.local, super), refuse_attributes),
    },
)
