"""Functions and methods written in C: which are pure, and how the others are called.

In:     `call_native(t, function, args, kwargs)`.
Holds:  every C function that runs during a trace is known as pure, by itself, by its type or by its module.
"""

from __future__ import annotations

import builtins
import contextvars
import decimal
import itertools
import os
import random
import re
import sys
import types
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import torch

from pliant.capture.graph_breaks import GraphBreak, Raised, WrongKind
from pliant.capture.handlers.containers import arguments_of, call_container_method
from pliant.capture.handlers.effects import initial_seed, is_output, seed_generator, write_output
from pliant.capture.handlers.formatting import by_percent, format_text
from pliant.capture.handlers.given import iterables
from pliant.capture.handlers.questions import ATTRIBUTE_METHODS
from pliant.capture.handlers.random_numbers import draw
from pliant.capture.handlers.standard_library import (
    OBJECTS,
    VALUES,
    computed_method,
    fold,
    note_time_zone,
    referent,
    replaced,
)
from pliant.capture.handlers.table import ALL, refusal, spread
from pliant.capture.handlers.text_and_numbers import text_by_name
from pliant.capture.handlers.threads import call_context_variable, call_lock_method, check_own
from pliant.capture.iterators.generators import OURS
from pliant.capture.iterators.looped import made_for
from pliant.capture.numbers.array_memory import to_array
from pliant.capture.numbers.arrays import call_numpy, call_ufunc_method
from pliant.capture.numbers.given_numbers import refuse_many
from pliant.capture.protocols import polyfills
from pliant.capture.protocols.iteration import as_sequence, sequence
from pliant.capture.protocols.operators import compare, identical, known_to_c, python_method
from pliant.capture.protocols.tail_calls import TailCall, steps_of
from pliant.capture.recording.overrides import enter_device
from pliant.capture.recording.torch_calls import call_torch
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import leaves
from pliant.capture.value_kinds import (
    COMPARED_IN_C,
    DICT_TYPES,
    LOCKS,
    MUTABLE_CONTAINERS,
    SYMBOLIC_TYPES,
    ByKind,
    by_kind,
    concrete,
    derives,
    deriving,
    is_bound,
    is_class,
    is_iterable,
    is_method,
    is_numpy_scalar,
    is_str,
    misused,
    varying,
)
from pliant.capture.varying_values import Text, join
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.torch_functions import all_functions
from pliant.guards.sources import question
from pliant.guards.standard import LRU_CACHE, can_change
from pliant.torch_adapter import TensorBase
from pliant.unpatched import BUILTINS

Method = Callable[..., Any]  # of a receiver: rule(tracer, receiver, name, bound, args, kwargs)

# ---- C functions and methods
_PURE_MODULES = frozenset(
    (
        "math", "cmath", "_operator", "operator", "itertools", "_bisect", "_heapq", "_collections", "_functools",
        "_struct", "_string", "_json", "unicodedata", "_statistics", "binascii", "_sre", "zlib", "_abc", "_typing",
    )
)
_POSIX = sys.modules.get("posix")
# On paths as text; which of them are written in C differs by version.
_ON_PATHS = {getattr(_POSIX, name, os.fspath) for name in ("_path_splitroot_ex", "_path_normpath")}
_PURE_BUILTINS = _ON_PATHS | frozenset(map(vars(BUILTINS).get, "bin hex oct chr ord divmod pow".split()))
_PURE_BUILTINS |= {os.fspath, str.maketrans, bytes.maketrans}
_PURE_SELF_TYPES = (*COMPARED_IN_C, tuple, frozenset, range, slice, torch.Size, types.MappingProxyType)
# Questions to the process whose answers seldom change.
_ANSWERS = frozenset(
    (os.getcwd, os.getpid, os.cpu_count, sys.getrecursionlimit, sys.getdefaultencoding, sys.getfilesystemencoding)
)
_OWN_SELF_TYPES = (*MUTABLE_CONTAINERS, *OURS, type({}.keys()), type({}.values()), type({}.items()))


_DESCRIPTORS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
)  # fmt: skip


def _call_bound(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Of an object, be it one of torch's own functions, which are bound to a record of pybind11."""
    receiver = function.__self__
    made_by_pybind = type(receiver).__name__.startswith(("pybind11_detail_function_record", "PyCapsule"))
    if made_by_pybind and function in all_functions():
        return _call_c_function(t, function, args, kwargs)
    return call_method(t, receiver, function.__name__, function, args, kwargs)


def _call_descriptor(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Class.method(self, ...) of a class written in C."""
    owner = function.__objclass__
    if derives(owner, TensorBase):
        return call_torch(t, function, args, kwargs)
    if not args:
        raise GraphBreak("bad-call", f"{function.__qualname__} without an object")
    receiver = t.world.resolve(args[0])
    if receiver is None:  # whose `__get__` means no object at all
        bound = getattr(None, function.__name__) if derives(types.NoneType, owner) else t.native(function, *args)
        return call_method(t, None, function.__name__, bound, args[1:], kwargs)
    if owner is object and varying(receiver) is not None:
        receiver = concrete(receiver)
    try:
        bound = t.native(function.__get__, receiver, type(receiver))
    except WrongKind:
        if type(function) is not types.WrapperDescriptorType:
            raise
        wanted = f"descriptor '{function.__name__}' requires a '{owner.__name__}' object but received a '{{}}'"
        raise misused(receiver, wanted) from None
    return call_method(t, receiver, function.__name__, bound, args[1:], kwargs)


# A function or method written in C.
call_native = by_kind(
    lambda t, function, *given: _BOUND_TO.of(getattr(function, "__self__", None))(t, function, *given),
    dict.fromkeys(_DESCRIPTORS, _call_descriptor),
    place=1,
)


def call_method(t: Tracer, receiver: Any, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    """A bound method written in C."""
    if name in _TEXTS and not _has_other_texts(receiver):
        found = text_by_name(t, receiver, name, args, _owner(receiver, name, bound))
        if found is not NotImplemented:
            return found
    if name in ATTRIBUTE_METHODS and can_change(type(receiver)) and not _is_other(receiver):
        return ATTRIBUTE_METHODS[name](t, (receiver, *args), kwargs)  # also of numbers and texts that have attributes
    return _METHODS.of(receiver)(t, receiver, name, bound, args, kwargs)


_is_other = deriving(type, torch.Tensor)
_has_other_texts = deriving(type, torch.Tensor, *SYMBOLIC_TYPES)
_TEXTS = frozenset(("__repr__", "__str__", "__format__"))


def _owner(receiver: Any, name: str, bound: Any) -> type:
    """The class that has the method."""
    written_in_c = (cls for cls in type(receiver).__mro__ if type(vars(cls).get(name, len)) in _DESCRIPTORS)
    return getattr(bound, "__objclass__", None) or next(written_in_c)


def _fake_method(t: Tracer, fake: FakeTensor, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    if name in ("numpy", "__array__") and t.recorder.elements.constants.of(fake) is None and not args:
        return to_array(t, fake)
    own = ALL.callables.get(getattr(torch.Tensor, name, None))
    return call_torch(t, bound, args, kwargs) if own is None else own(t, (fake, *args), kwargs)


def _join(t: Tracer, text: Any, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    if not is_iterable(args[0]):
        raise Raised(TypeError("can only join an iterable"))
    items = sequence(t, as_sequence(t, args[0]) if python_method(t, args[0], "__iter__") is not None else args[0], is_made=True)
    if is_str(text) and set(map(type, items)) <= {Text, str}:
        return join(text, items)
    return computed_method(t, text, name, bound, (items,), kwargs)


def _frozenset_method(t: Tracer, receiver: Any, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    t.refuse_opaque(receiver)
    return computed_method(t, receiver, name, bound, *arguments_of(receiver, name).of(t, args, kwargs))


def _tuple_method(t: Tracer, receiver: Any, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    if name in ("index", "count"):
        known, *args = known_to_c(t, receiver, *args)
        bound = bound if known is receiver else getattr(known, name)
    return computed_method(t, receiver, name, bound, args, kwargs)


def _tensor_method(t: Tracer, tensor: Any, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    return call_torch(t, bound, args, kwargs)


def _enter_device(t: Tracer, device: torch.device, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    return enter_device(t, name, bound, args)


def _refuse_generator(t: Tracer, generator: torch.Generator, name: str, *given: Any) -> NoReturn:
    raise GraphBreak("random-state", f"the method {name} of a generator")


def _by_name(rule: Callable[..., Any]) -> Method:
    """A rule that knows the method by its name alone."""
    return lambda t, receiver, name, bound, args, kwargs: rule(t, receiver, name, args, kwargs)


def _made_method(t: Tracer, receiver: Any, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    """Of an object that the trace made, which nobody else has."""
    rule = computed_method if id(receiver) in t.world.made else _object_method
    return rule(t, receiver, name, bound, args, kwargs)


def _random_method(t: Tracer, generator: random.Random, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    if t.world.is_foreign(generator):
        return draw(t, generator, name, args, kwargs)
    return _made_method(t, generator, name, bound, args, kwargs)


def _lock_method(t: Tracer, lock: Any, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    if id(lock) not in t.world.made:
        return call_lock_method(t, lock, name, args)
    check_own(lock, name, args, kwargs)
    return computed_method(t, lock, name, bound, args, kwargs)


def _cache_method(t: Tracer, cached: Any, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    """`cache_info` and its like of a function whose cache within the trace is known."""
    if id(cached) in t.caches and (name == "cache_parameters" or not t.world.is_foreign(cached)):
        return t.native(getattr(t.caches[id(cached)][1], name))
    return _object_method(t, cached, name, bound, args, kwargs)


def _object_method(t: Tracer, receiver: Any, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    """Methods that all objects have, those of iterators and of attributes by name; a break for what is left."""
    if name in _ITERATOR_METHODS and not t.world.is_opaque(receiver):
        return t.native(bound, *args, **kwargs)
    if is_output(t, receiver):
        return write_output(t, receiver, name, args)
    if type(receiver).__name__ == "ufunc":
        return call_ufunc_method(t, receiver, name, args, kwargs)
    if is_numpy_scalar(receiver):
        return computed_method(t, receiver, name, bound, args, kwargs)
    of_object = object in (getattr(bound, "__objclass__", None), getattr(getattr(type(receiver), name, None), "__objclass__", None))
    if name in _BY_IDENTITY and len(args) == 1 and (of_object or is_method(receiver)):
        return _by_identity(t, receiver, name, args[0]) if of_object else _of_method(t, receiver, name, args[0])
    if type(receiver).__module__ in _PLAIN_MODULES or type(receiver).__name__ == "PyCapsule":
        return t.native(bound, *map(t.plain, args), **kwargs)
    if name in ATTRIBUTE_METHODS and not is_class(receiver):
        return ATTRIBUTE_METHODS[name](t, (receiver, *args), kwargs)
    if getattr(bound, "__objclass__", None) is object and name in ("__init__", "__init_subclass__"):
        return t.native(bound, *args, **kwargs) if args or kwargs else None  # which complains
    raise GraphBreak("unknown-call", f"the method {name} of a {type(receiver).__name__}")


def _by_identity(t: Tracer, receiver: Any, name: str, other: Any) -> Any:
    """What `object` answers; its `__ne__` asks `__eq__`."""
    by_more = python_method(t, receiver, "__eq__") is not None or is_bound(receiver)
    if name == "__ne__" and by_more:
        return t.call(polyfills.differs, (receiver, other), {})
    return (name == "__eq__") if identical(t, receiver, other) else NotImplemented


def _of_method(t: Tracer, method: Any, name: str, other: Any) -> Any:
    """What a method answers: it differs from what is no method, and says so by asking the other."""
    return compare(t, _BY_IDENTITY[name], method, other) if is_method(other) else NotImplemented


_BY_IDENTITY = {"__eq__": "==", "__ne__": "!="}
_ITERATOR_METHODS = frozenset(("__next__", "__iter__", "__length_hint__", "send", "throw", "close"))
_PLAIN_MODULES = frozenset(("string", TensorBase.__module__))


def _named(rules: Mapping[str, Method], others: Method = _object_method) -> Method:
    """Methods of these names by rules of their own, all others by one."""
    return lambda t, receiver, name, *given: rules.get(name, others)(t, receiver, name, *given)


def _takes(rule: Callable[..., Any]) -> Method:
    """A rule that has the method's own parameters, behind the tracer and the object."""
    return lambda t, receiver, name, bound, args, kwargs: spread(rule, receiver)(t, args, kwargs)


# Their `__init__` stores more than the arguments.
_OWN_FIELDS = (
    AttributeError, BaseExceptionGroup, ImportError, NameError, OSError, StopIteration, SyntaxError, SystemExit,
)  # fmt: skip


def _change_error(t: Tracer, error: BaseException, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    """What a method of an exception stores in it."""
    if not t.world.is_foreign(error):
        return t.native(bound, *args, **kwargs)
    if name == "__init__" and not kwargs and not isinstance(error, (*_OWN_FIELDS, UnicodeError)):
        t.world.slot_set(error, "args", args, "plain")
        return None
    if name == "with_traceback" and len(args) == 1:
        t.world.slot_set(error, "__traceback__", args[0], "plain")
        return error
    raise GraphBreak("unknown-call", f"the method {name} of a {type(error).__name__} from outside")


def _descriptor_method(t: Tracer, descriptor: Any, name: str, bound: Any, args: Args, kwargs: Kwargs) -> Any:
    if name == "__init__" and t.world.is_foreign(descriptor):
        raise GraphBreak("unknown-call", f"the {type(descriptor).__name__} of a class is made anew")
    if name == "__get__" and isinstance(descriptor, property) and args[0] is not None and descriptor.fget is not None:
        return t.call(t.get_attr(descriptor, "fget"), args[:1], {})
    return t.native(bound, *args, **kwargs)


_METHODS: ByKind[Method] = ByKind(
    _object_method,
    {
        **dict.fromkeys(SYMBOLIC_TYPES, _tensor_method),
        **dict.fromkeys(LOCKS, _lock_method),
        LRU_CACHE: _named(dict.fromkeys(("cache_info", "cache_clear", "cache_parameters"), _cache_method)),
        types.FunctionType: _named(
            {
                "__get__": lambda t, function, name, bound, args, kwargs: (
                    t.native(bound, *args) if args[0] is None else types.MethodType(function, args[0])
                )
            }
        ),
        random.Random: _random_method,
    },
    {
        **dict.fromkeys((*VALUES, *_PURE_SELF_TYPES), computed_method),
        **dict.fromkeys(OBJECTS, _made_method),
        **dict.fromkeys((*_OWN_SELF_TYPES, list, dict, set), _by_name(call_container_method)),
        FakeTensor: _fake_method,
        torch.Tensor: _tensor_method,
        str: _named(
            {
                "format": _by_name(format_text),
                "format_map": _takes(lambda t, text, values, /: TailCall(polyfills.formatted_by_map, (text, values))),
                "__mod__": _takes(by_percent),
                "join": _join,
            },
            computed_method,
        ),
        bytes: _named({"join": _join}, computed_method),
        re.Pattern: _named(dict.fromkeys(("sub", "subn"), replaced), computed_method),
        frozenset: _frozenset_method,
        tuple: _tuple_method,
        torch.Size: _named({"numel": _takes(lambda t, size: TailCall(polyfills.multiplied, (size,)))}, computed_method),
        torch.device: _named(dict.fromkeys(("__enter__", "__exit__"), _enter_device), computed_method),
        random.Random: _made_method,
        torch.Generator: _named({"initial_seed": _takes(initial_seed), "manual_seed": _takes(seed_generator)}, _refuse_generator),
        contextvars.ContextVar: _by_name(call_context_variable),
        weakref.ref: _named({"__call__": _takes(referent), "__init__": lambda *given: None}),
        BaseException: _named(dict.fromkeys(("__init__", "with_traceback", "add_note"), _change_error)),
        **dict.fromkeys(
            (property, classmethod, staticmethod),
            _named(dict.fromkeys(("setter", "getter", "deleter", "__get__", "__init__"), _descriptor_method)),
        ),
    },
)


# Methods of objects that builtins and functions of these modules call.
_ARITHMETIC = frozenset(("math", "cmath", "_operator", "operator"))
_CALLED = (
    "__fspath__", "__ceil__", "__floor__", "__trunc__", "__round__", "__divmod__", "__rdivmod__", "__pow__", "__rpow__",
    "__mul__", "__rmul__", "__add__", "__radd__", "__sub__", "__rsub__", "__int__", "__complex__",
)  # fmt: skip


_MAY_BE_CALLED: ByKind[bool] = ByKind(
    True, dict.fromkeys(_PURE_SELF_TYPES, False), dict.fromkeys((FakeTensor, type), False)
)


def _refuse_own_methods(t: Tracer, values: Any) -> None:
    """Break if one of the values, or an item of one, has a method written in Python that the function may call unseen."""
    for value in leaves(*values):
        if _MAY_BE_CALLED.of(value):
            if any(python_method(t, value, name) is not None for name in _CALLED):
                raise GraphBreak("unknown-object", f"C code would call methods of {type(value).__name__}")


def _call_c_function(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    module = getattr(function, "__module__", None) or ""
    if module.startswith("torch") or function in all_functions():
        return call_torch(t, function, args, kwargs)
    if function in _PURE_BUILTINS or module in _PURE_MODULES:
        if module in ("math", "cmath"):
            refuse_many(t, function, args, kwargs)
        args = tuple(map(t.plain, args))
        t.refuse_opaque(*args)
        if function in _PURE_BUILTINS or module in _ARITHMETIC:
            _refuse_own_methods(t, (*args, *kwargs.values()))
        return t.native(function, *args, **{k: concrete(v) for k, v in kwargs.items()})
    folded = fold(t, function, args, kwargs)
    if folded is not NotImplemented:
        return folded
    if function in _ANSWERS and not args and not kwargs:
        return t.world.bring(function(), question(function))
    if module == "time":
        raise GraphBreak("side-effect-call", f"time.{function.__name__}")
    if module.partition(".")[0] == "numpy" and (made := call_numpy(t, function, args, kwargs)) is not NotImplemented:
        return made
    if function is builtins.__build_class__:
        return t.build_class(args, kwargs)
    raise GraphBreak("unknown-call", f"the C function {module}.{function.__name__}")


def _of_class(t: Tracer, cls: Any, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """int.from_bytes, itertools.chain.from_iterable, datetime.fromisoformat..."""
    if cls not in _PURE_CLASSES and cls.__module__ != "datetime":
        raise GraphBreak("unknown-call", f"the class method {cls.__name__}.{function.__name__}")
    note_time_zone(t, function.__name__)
    return t.native(function, *map(concrete, args), **kwargs)


def _from_keys(t: Tracer, cls: Any, function: Any, args: Args, kwargs: Kwargs) -> Any:
    if cls not in DICT_TYPES:
        return _of_class(t, cls, function, args, kwargs)
    return t.native(function, [t.hashable(k) for k in t.sequence(args[0])], *args[1:])


_PURE_CLASSES = frozenset((int, float, str, bytes, itertools.chain, object, decimal.Decimal))
_CLASS_METHODS: dict[str, Callable[..., Any]] = {
    "__call__": lambda t, cls, function, args, kwargs: steps_of(type(t).instantiate)(t, cls, args, kwargs),
    "__new__": lambda t, cls, function, args, kwargs: (
        t.new_object(args[0], function, args[1:], kwargs) if args and derives(args[0], cls) else t.native(function, *args, **kwargs)
    ),
    "__init__": lambda t, cls, function, args, kwargs: None,  # type's has nothing left to do
    "__init_subclass__": lambda t, cls, function, args, kwargs: t.native(function, *args, **kwargs) if args or kwargs else None,
    "__prepare__": lambda t, cls, function, args, kwargs: {},
    "__subclasshook__": lambda t, cls, function, args, kwargs: NotImplemented,
    "__subclasses__": lambda t, cls, function, args, kwargs: [  # a new one at each call
        *t.sequence(t.world.bring(function(*args, **kwargs), question(function)))
    ],
    "fromkeys": _from_keys,
    "from_iterable": lambda t, cls, function, args, kwargs: made_for(
        t, function, args, kwargs, lambda: t.native(function, iterables(t, args[0]))
    ),
    **dict.fromkeys(("now", "today", "utcnow"), refusal("side-effect-call", "the time is asked for")),
}


def _call_c_classmethod(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """dict.fromkeys, object.__new__, int.from_bytes..."""
    rule: Method = _CLASS_METHODS.get(function.__name__, _of_class)
    return rule(t, function.__self__, function, args, kwargs)


# A function of a module; its methods are an object's.
_call_in_module = by_kind(_call_c_function, {types.MethodWrapperType: _call_bound}, place=1)
_BOUND_TO: ByKind[Callable[..., Any]] = ByKind(
    _call_bound,
    {type(None): _call_c_function, types.GetSetDescriptorType: call_torch},  # `Tensor.shape.__get__`
    {types.ModuleType: _call_in_module, type: _call_c_classmethod},
)
