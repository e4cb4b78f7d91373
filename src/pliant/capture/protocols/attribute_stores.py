"""Stores to attributes of any value and their deletion, by Python's own rules.

In:     a traced value, a name, the traced value to store.
Out:    nothing; what was outside is changed when the trace is replayed, `Raised(AttributeError)` where eager raises it.
Holds:  user code (properties, descriptors, `__setattr__`) runs in the interpreter; nothing outside is changed.
Source: Python's data model, "Customizing attribute access" and "Invoking Descriptors".
"""

from __future__ import annotations

import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.iterators.generators import NAMES, TracedGenerator
from pliant.capture.protocols.descriptors import c_descriptor, inside, is_data_descriptor, is_in_c, itself
from pliant.capture.protocols.module_attributes import namespace_of
from pliant.capture.protocols.tail_calls import TailCall, ending
from pliant.capture.protocols.tensor_members import own_attribute
from pliant.capture.signatures import Tracer
from pliant.capture.trace import DELETED
from pliant.capture.value_kinds import (
    SYMBOLIC_TYPES,
    ByKind,
    by_kind,
    class_in_numpy,
    concrete,
    is_module,
    is_tensor,
    misused,
    plain_class,
)
from pliant.capture.varying_values import UNSETTLED, Text
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.graph.tensor_spec import same_sizes
from pliant.guards.kinds import MISSING
from pliant.guards.standard import is_immutable
from pliant.torch_adapter import store_in_module


@ending
def delete_attr(t: Tracer, obj: Any, name: str) -> Any:
    """del obj.name"""
    deleter = t.world.python_function(type(obj), "__delattr__")
    return _change(t, obj, name, DELETED) if deleter is None else TailCall(deleter, (obj, name))


# ---- by kind of object: a store, or of `DELETED` a deletion
def _change_in_c(t: Tracer, by: Any, obj: Any, name: str, value: Any) -> None:
    """Of what the trace made, at once, by the methods of a class."""
    if value is DELETED:
        t.native(by.__delattr__, obj, name)
    else:
        t.native(by.__setattr__, obj, name, value)


def _change_number(t: Tracer, obj: Any, name: str, value: Any) -> None:
    """Of what varies: its class has no place for attributes, and says so of any value."""
    cls: Any = plain_class(obj)
    _change_in_c(t, cls, cls(), name, value)


def _change_generator(t: Tracer, generator: TracedGenerator, name: str, value: Any) -> None:
    """A real one says what it thinks of it."""
    if name in NAMES and isinstance(value, str):
        generator.names[name] = value
        return
    _change_in_c(t, types.GeneratorType, (_ for _ in ()), name, value)


def _change_object(t: Tracer, obj: Any, name: str, value: Any) -> Any:
    setter: Any = None if value is DELETED else t.world.python_function(type(obj), "__setattr__")
    if setter is store_in_module and not (is_tensor(value) or is_module(value)):
        setter = _plain_module_store(t, obj, name)
    return find_store(t, obj, name, value) if setter is None else TailCall(setter, (obj, name, value))


def _plain_module_store(t: Tracer, module: Any, name: str) -> Any:
    """What modules do for a value that is no tensor or module is a plain store, unless the name is a member."""
    members = [module.__dict__.get(m) or () for m in ("_parameters", "_buffers", "_modules")]
    return store_in_module if any(name in m for m in members) else None


def find_store(t: Tracer, obj: Any, name: str, value: Any) -> Any:
    """object.__setattr__, or of `DELETED` object.__delattr__: data descriptor, else instance dict."""
    world, cls = t.world, type(obj)
    if type in cls.__mro__:
        t.native(object.__setattr__, obj, name, value)  # which complains
    if cls in weakref.ProxyTypes:  # what it stands for gets the value
        raise GraphBreak("unknown-object", f"the attributes of a {cls.__name__}")
    if (numpys := class_in_numpy(obj)) is not None:  # what stands for it has other members, and a `__dict__`
        if hasattr(numpys, name):
            raise GraphBreak("unknown-object", f"a store into `{name}` of an array")
        return _change_in_c(t, numpys, numpys(0), name, value)
    found = world.type_lookup(cls, name)
    if found is not MISSING and is_data_descriptor(t, found):
        return _THROUGH.of(found)(t, found, obj, name, value)
    if not world.is_foreign(obj):
        _change_in_c(t, object, obj, name, value)
        return None
    table = world.instance_dict(obj)
    if not table and not world.has_dict(obj):
        t.native(object.__setattr__, obj, name, None)  # which complains
    if value is DELETED and world.dict_get(table, name) is MISSING:
        raise misused(obj, "'{}' object has no attribute " + f"'{name}'", AttributeError)
    world.dict_set(table, name, value)
    return None


def _through_property(t: Tracer, found: property, obj: Any, name: str, value: Any) -> Any:
    part = "fdel" if value is DELETED else "fset"
    if getattr(found, part) is None:
        change: Any = property.__delete__ if value is DELETED else property.__set__
        t.native(change, found, obj, *(() if value is DELETED else (value,)))  # which complains
    return TailCall(inside(t, found, part, name, type(obj)), (obj,) if value is DELETED else (obj, value))


def _through_slot(t: Tracer, found: types.MemberDescriptorType, obj: Any, name: str, value: Any) -> None:
    if t.world.is_foreign(obj):
        try:
            if value is DELETED:
                c_descriptor(t, found, obj, name)
        except Raised:  # it is empty
            raise Raised(AttributeError(name)) from None
        t.world.slot_set(obj, name, value, "slot")
    elif value is DELETED:
        t.native(found.__delete__, obj)
    else:
        t.native(found.__set__, obj, value)


def _through_object(t: Tracer, found: Any, obj: Any, name: str, value: Any) -> Any:
    cls: Any = type(obj)
    setter = t.world.python_function(type(found), "__delete__" if value is DELETED else "__set__")
    if setter is not None:
        found = itself(t, found, obj, cls, name, None)
        return TailCall(setter, (found, obj) if value is DELETED else (found, obj, value))
    if t.world.is_foreign(obj):
        raise GraphBreak("unknown-object", f"assignment through the descriptor {type(found).__name__} of '{name}'")
    _change_in_c(t, object, obj, name, value)
    return None


_THROUGH: ByKind[Callable[..., Any]] = ByKind(
    _through_object, {types.MemberDescriptorType: _through_slot}, {property: _through_property}
)


def _change_tensor(t: Tracer, fake: FakeTensor, name: str, value: Any) -> None:
    if value is DELETED:
        _delete_of_tensor(t, fake, name)
        return
    if name in ("__dict__", "__class__"):
        raise GraphBreak("unknown-object", f"another {name} for a tensor")
    if name == "data":
        from pliant.capture.handlers.parameters import set_data

        set_data(t, fake, value)
    elif name != "grad" and hasattr(getattr(torch.Tensor, name, None), "__set__"):
        t.native(setattr, fake, name, value)  # the recorder decides
    else:
        if name == "grad" and value is not None and not _fits_as_gradient(fake, value):
            raise GraphBreak("tensor-error", "a gradient that its tensor refuses")  # which the store itself complains of
        t.world.slot_set(fake, name, value, "plain")


def _fits_as_gradient(fake: FakeTensor, value: Any) -> bool:
    if not is_fake(value) or value is fake:
        return False
    fits = fake.dtype_.is_floating_point or fake.dtype_.is_complex
    return fits and value.dtype_ is fake.dtype_ and value.device_ == fake.device_ and same_sizes(value.size_, fake.size_)


# Of tensors, parameters or not, that have had attributes, and that have had none: CPython words it otherwise.
_OF_OTHERS = {(flag, had): torch.nn.Parameter(torch.empty(0)) if flag else torch.empty(0) for flag in (True, False) for had in (True, False)}
for (_, _had), _other in _OF_OTHERS.items():
    assert not _had or vars(_other) == {}


def _delete_of_tensor(t: Tracer, fake: FakeTensor, name: str) -> None:
    """What the program had given a tensor; its gradient, deleted, is None."""
    if name == "grad":
        t.world.slot_set(fake, name, None, "plain")
        return
    if hasattr(torch.Tensor, name) or fake.subclass_ is not None:
        raise GraphBreak("unknown-object", "deleting an attribute that tensors have of themselves, or of a class of its own")
    example, stored = t.inputs.example_of(fake), t.world.slot_get(fake, name)
    before = MISSING if example is None else own_attribute(t, fake, example, name)
    if stored is DELETED or stored is MISSING and before is MISSING:
        has_had = stored is DELETED or example is not None and bool(vars(example))
        _change_in_c(t, object, _OF_OTHERS[fake.is_parameter_, has_had], name, DELETED)  # which complains
    t.world.slot_set(fake, name, MISSING if before is MISSING else DELETED, "plain")


def _refuse_form(obj: Any, name: str) -> None:
    """Another class, or another table: Python says whether the object may have it."""
    if name in ("__class__", "__dict__"):
        raise GraphBreak("mutated-global-state", f"another {name} for a {type(obj).__name__} from outside")


def _change_namespace(t: Tracer, obj: Any, name: str, value: Any) -> None:
    """Of a module or a function."""
    if not t.world.is_foreign(obj):
        _change_in_c(t, type(obj), obj, name, value)
        return
    _refuse_form(obj, name)
    table = namespace_of(t.world, obj)
    if value is DELETED and t.world.dict_get(table, name) is MISSING:
        raise misused(obj, "'{}' object has no attribute " + f"'{name}'", AttributeError)
    t.world.dict_set(table, name, value)


def _change_module(t: Tracer, module: types.ModuleType, name: str, value: Any) -> Any:
    """A class of modules may have properties, and a `__setattr__` of its own."""
    return (_change_namespace if type(module) is types.ModuleType else _change_object)(t, module, name, value)


_OF_FUNCTIONS = "code defaults kwdefaults name qualname doc module annotations dict"
_FUNCTION_FIELDS = frozenset(f"__{name}__" for name in _OF_FUNCTIONS.split())


def _change_function(t: Tracer, function: types.FunctionType, name: str, value: Any) -> None:
    if name in _FUNCTION_FIELDS and t.world.is_foreign(function):
        raise GraphBreak("mutated-global-state", f"a change of {name} of a function from outside")
    _change_namespace(t, function, name, value)


def _change_class(t: Tracer, cls: type, name: str, value: Any) -> None:
    if not t.world.is_foreign(cls):
        _change_in_c(t, type(cls), cls, name, value)
        t.world.forget_lookups()
        return
    if is_immutable(cls):
        t.native(type.__setattr__, cls, name, None)  # which complains
    _refuse_form(cls, name)
    if is_in_c(vars(type).get(name)):  # which C code reads, as `repr` does
        raise GraphBreak("mutated-global-state", f"a change of {name} of a class from outside")
    if value is DELETED:
        t.world.type_lookup(cls, name)  # that this does not change
        stored = t.world.slot_get(cls, name)
        if stored is DELETED or stored is MISSING and name not in vars(cls):
            raise Raised(AttributeError(f"type object '{cls.__name__}' has no attribute '{name}'"))
    elif t.world.python_function(type(cls), "__setattr__") is not None:
        raise GraphBreak("unknown-object", "assignment to a class whose metaclass has __setattr__")
    t.world.slot_set(cls, name, value, "type")


_change = by_kind(
    _change_object,
    {
        FakeTensor: _change_tensor,
        **dict.fromkeys((*SYMBOLIC_TYPES, Text), _change_number),
        **dict.fromkeys(UNSETTLED, lambda t, obj, name, value: _change_object(t, concrete(obj), name, value)),
        types.FunctionType: _change_function,
        TracedGenerator: _change_generator,
        threading.local: lambda t, obj, name, value: (
            find_store(t, obj, name, value) if value is DELETED else t.world.slot_set(obj, name, value, "plain")
        ),
    },
    {types.ModuleType: _change_module, type: _change_class},
    place=1,
)
set_attr = ending(_change)  # obj.name = value
