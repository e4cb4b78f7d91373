"""copy.copy and copy.deepcopy.

In:     any traced value.
Out:    its copy, made of traced values; parts are read, and guarded, as the copy module would read them.
Holds:  what occurs twice is copied once, cycles included; special methods of the program run in the interpreter.
"""

from __future__ import annotations

import collections
import copy
import copyreg
import enum
import functools
import itertools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak, NoAttribute, Raised
from pliant.capture.handlers.parameters import copied
from pliant.capture.handlers.standard_library import VALUES
from pliant.capture.handlers.table import Rows
from pliant.capture.iterators.generators import TracedGenerator
from pliant.capture.iterators.standing_iterators import PLAIN_ITERATORS
from pliant.capture.protocols import operators, tensor_members
from pliant.capture.protocols.patched_methods import refuse_patched
from pliant.capture.recording.regions import without_effects
from pliant.capture.recording.stand_ins import memory_of
from pliant.capture.signatures import Tracer
from pliant.capture.value_kinds import CONSTANTS, DICT_TYPES, SYMBOLIC_TYPES, ByKind, exactly
from pliant.capture.varying_values import Text
from pliant.graph.fake_tensor import FakeTensor
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import DictAttributeSource, held
from pliant.guards.standard import can_change, identity_types
from pliant.torch_adapter import copy_of_tensor
from pliant.unpatched import BUILTINS

ROWS = Rows()

_KEEP = object()  # the key of a memo under which the originals are kept alive


@ROWS.takes(copy.copy)
def _copy(t: Tracer, x: Any) -> Any:
    value = t.world.adopt(t.world.resolve(x))
    return _with_attributes(t, x, _SHALLOW.of(value)(t, value), lambda part: part)


@ROWS.takes(copy.deepcopy, copy_of_tensor)
def _deepcopy(t: Tracer, x: Any, memo: Any = None) -> Any:
    known = {} if memo is None else t.mapping(memo)
    if memo is not None and _KEEP not in known:  # what it holds afterwards is objects of the trace
        raise GraphBreak("unknown-call", "a deep copy with a memo of the program's")
    return _deep(t, x, known)


def _deep(t: Tracer, value: Any, memo: dict[Any, Any]) -> Any:
    make = _DEEP.of(value)
    if make is _itself:
        return value
    given, value = value, t.world.adopt(t.world.resolve(value))
    if id(value) in memo:
        return memo[id(value)]
    memo.setdefault(_KEEP, []).append(value)
    memo[id(value)] = made = make(t, value, memo)
    return _with_attributes(t, given, made, lambda part: _deep(t, part, memo))


# ---- by kind of value
def _itself(t: Tracer, value: Any, *memo: Any) -> Any:
    return value


def _deep_items(make: Callable[[Any], Any], add: Any, t: Tracer, value: Any, memo: dict[Any, Any]) -> Any:
    memo[id(value)] = made = make(value)
    for item in value:
        add(made, _deep(t, item, memo))
    return made


def _deep_mapping(t: Tracer, value: Any, memo: dict[Any, Any]) -> Any:
    cls: Any = type(value)
    memo[id(value)] = made = cls(value.default_factory) if cls is collections.defaultdict else cls()
    for key, item in value.items():
        made[_deep(t, key, memo)] = _deep(t, item, memo)
    return made


def _with_attributes(t: Tracer, value: Any, made: Any, part: Callable[[Any], Any]) -> Any:
    """The copy of the value, which may have attributes beside its items."""
    if _has_attributes(made):
        made.__dict__.update({name: part(one) for name, one in t.mapping(t.get_attr(value, "__dict__")).items()})
    return made


_has_attributes = exactly(collections.OrderedDict)


def _deep_fixed(keeps: bool, t: Tracer, value: Any, memo: dict[Any, Any]) -> Any:
    """A tuple, which is kept where nothing in it is new, or a frozenset."""
    items = [_deep(t, item, memo) for item in value]
    if id(value) in memo:  # it holds itself, through something mutable
        return memo[id(value)]
    same = keeps and all(a is b for a, b in zip(items, value, strict=True))
    return value if same else type(value)(items)


def _object(t: Tracer, value: Any) -> Any:
    method = operators.python_method(t, value, "__copy__")
    return _instance(t, value, lambda part: part) if method is None else t.call(method, (value,), {})


def _deep_object(t: Tracer, value: Any, memo: dict[Any, Any]) -> Any:
    own = t.call(BUILTINS.getattr, (value, "__deepcopy__", None), {})  # of the object, whose `__getattr__` is asked
    if own is not None:
        return t.call(own, (memo,), {})
    return _instance(t, value, lambda part: _deep(t, part, memo), memo)


def _deep_tensor(t: Tracer, value: FakeTensor, memo: dict[Any, Any]) -> Any:
    """The whole memory is copied, once for all its tensors, and these lie in the copy as they did. So is the gradient."""
    if value.is_parameter_:  # which is a clone, and no more
        return copied(t, value, shares_memory=False)
    refuse_patched(t, "__deepcopy__")
    memory = memory_of(value)
    if t.get_attr(value, "grad") is not None:
        raise GraphBreak("unknown-call", "a deep copy of a tensor with a gradient")
    _refuse_attributes(t, value)
    t.inputs.guard_whole(memory)
    if any(type(one) is FakeTensor and one is not value and memory_of(one) is memory for one in memo.get(_KEEP, ())):
        raise GraphBreak("unknown-call", "a deep copy of tensors that share memory")
    made = copied(t, value, shares_memory=False)
    if made.stride() != value.stride() or memory is not value and memory.numel() != value.numel():
        raise GraphBreak("unknown-call", "a deep copy of a part of memory, or of an expanded tensor")
    return made


def _shallow_tensor(t: Tracer, value: FakeTensor) -> Any:
    _refuse_attributes(t, value)
    return copied(t, value, shares_memory=True)


def _refuse_attributes(t: Tracer, value: FakeTensor) -> None:
    """Those that the program stored in a tensor, which are copied with it."""
    if tensor_members.has_attributes(t, value):
        raise GraphBreak("unknown-call", "a copy of a tensor with attributes")


def _partial(t: Tracer, value: Any, memo: dict[Any, Any] | None = None) -> Any:
    parts = [t.get_attr(value, name) for name in ("func", "args", "keywords")]
    if t.get_attr(value, "__dict__"):
        raise GraphBreak("unknown-call", "a copy of a partial with attributes")
    function, args, keywords = parts if memo is None else [_deep(t, part, memo) for part in parts]
    return t.call(functools.partial, (function, *args), dict(keywords))


def _immutable(t: Tracer, value: Any, *memo: Any) -> Any:
    """Itself, an equal one, or the error that it cannot be copied, as the module `copy` does with what is not the program's."""
    if isinstance(value, (type, enum.Enum)):
        return value
    if can_change(type(value)):
        raise GraphBreak("unknown-call", f"a copy of a {type(value).__name__}")
    return t.native(copy.deepcopy if memo else copy.copy, value)


def _generator(t: Tracer, value: Any, *memo: Any) -> Any:
    raise Raised(TypeError("cannot pickle 'generator' object"))


_GENERATORS = dict.fromkeys((TracedGenerator, types.GeneratorType), _generator)
_ITERATORS = (*PLAIN_ITERATORS, itertools.count, itertools.repeat)
_ATOMIC = (*CONSTANTS, *SYMBOLIC_TYPES, range, Text)
_IMMUTABLE: dict[type, Any] = dict.fromkeys((*identity_types(), *VALUES, torch.finfo, torch.iinfo), _immutable)
_SHALLOW: ByKind[Callable[..., Any]] = ByKind(
    _object,
    {
        **dict.fromkeys((*_ATOMIC, tuple, frozenset, slice), _itself),
        **dict.fromkeys((list, set, collections.deque, *DICT_TYPES), lambda t, value: value.copy()),
        **dict.fromkeys(_ITERATORS, lambda t, value: _object(t, value) if t.world.is_foreign(value) else copy.copy(value)),
        functools.partial: _partial,
        **_GENERATORS,
        FakeTensor: _shallow_tensor,
    },
    _IMMUTABLE,
)
_DEEP: ByKind[Callable[..., Any]] = ByKind(
    _deep_object,
    {
        **dict.fromkeys(_ATOMIC, _itself),
        list: functools.partial(_deep_items, lambda value: [], list.append),
        set: functools.partial(_deep_items, lambda value: set(), set.add),
        collections.deque: functools.partial(
            _deep_items, lambda value: collections.deque(maxlen=value.maxlen), collections.deque.append
        ),
        **dict.fromkeys(DICT_TYPES, _deep_mapping),
        tuple: functools.partial(_deep_fixed, True),
        frozenset: functools.partial(_deep_fixed, False),
        functools.partial: _partial,
        **_GENERATORS,
        types.MethodType: lambda t, value, memo: types.MethodType(value.__func__, _deep(t, value.__self__, memo)),
        FakeTensor: _deep_tensor,
    },
    _IMMUTABLE,
)


# ---- objects
_REGISTERED = DictAttributeSource(held(sys.modules["copyreg"], "copyreg"), "dispatch_table")
_OWN_WAYS = ("__reduce_ex__", "__reduce__", "__getnewargs__", "__getnewargs_ex__")
_ASKED = ("__reduce_ex__", "__reduce__", "__getnewargs_ex__", "__getnewargs__", "__getstate__")  # in this order


def _shows_object_s(t: Tracer, value: Any) -> bool:
    """Whether an own `__getattribute__` gives the methods of `object` that describe an instance."""
    if t.world.type_lookup(type(value), "__getattribute__") is object.__getattribute__:
        return True
    with without_effects(t, f"a look at how a {type(value).__name__} is copied"):
        return all(_shows(t, value, name) for name in _ASKED)


def _shows(t: Tracer, value: Any, name: str) -> bool:
    method = getattr(object, name, None)
    try:
        found = t.get_attr(value, name)
    except NoAttribute:
        return method is None
    except Raised:
        return False
    return method is not None and _is_builtin(found) and found == method.__get__(value)


_is_builtin = exactly(types.BuiltinMethodType)


def _instance(t: Tracer, value: Any, part: Any, memo: dict[Any, Any] | None = None) -> Any:
    """A new object of the same class with copied state, as `object.__reduce_ex__` describes it."""
    cls = type(value)
    own = any(t.world.type_lookup(cls, name) is not getattr(object, name, MISSING) for name in _OWN_WAYS)
    own = own or operators.python_method(t, cls, "__getattr__") is not None  # asked for what the class lacks: `__slots__`
    if own or not _is_plain(cls) or not _shows_object_s(t, value):
        raise GraphBreak("unknown-call", f"a copy of a {cls.__name__}")
    if cls in copyreg.dispatch_table:
        raise GraphBreak("unknown-call", f"a copy of a {cls.__name__}, for which `copyreg` has a function")
    if not t.world.is_made(cls):
        t.world.guard(_REGISTERED, Kind.NO_KEY, cls)
    getter = operators.python_method(t, value, "__getstate__")
    state = t.get_attr(value, "__dict__") if getter is None else t.call(getter, (value,), {})
    made = object.__new__(cls)
    if memo is not None:
        memo[id(value)] = made
    state = t.world.adopt(state)
    if state is None or getter is None and not state:  # without attributes `object` says that there is none
        return made
    state = part(state)
    if t.call(BUILTINS.hasattr, (made, "__setstate__"), {}):
        t.call(t.get_attr(made, "__setstate__"), (state,), {})
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
