"""Calls of any callable: inlined, run natively, recorded, replaced by a handler, or a graph break.

In:     a traced callable and traced arguments.
Out:    the traced result. `linked` calls are those whose result is the current CALL operation's result.
Holds:  C code runs during the trace only if a table says that it is free of side effects, and never on unguarded outside objects.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import functools
import inspect
import logging
import re
import types
import typing
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch

from pliant import arity
from pliant.bytecode.decode import Program, decode, per_program
from pliant.capture import idle_runs
from pliant.capture.frame import Frame
from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.handlers.c_functions import call_native
from pliant.capture.handlers.classes import ACCESSORS, call_enum, find_class
from pliant.capture.handlers.effects import log
from pliant.capture.handlers.random_numbers import draw, is_generator, is_of_python
from pliant.capture.handlers.standard_library import call_object, fold, make_reference, referent
from pliant.capture.handlers.table import Handler, find_special, refusal
from pliant.capture.handlers.table import find as find_row
from pliant.capture.handlers.threads import takes_shared_lock
from pliant.capture.iterators.endings import has_finalizer
from pliant.capture.iterators.generators import OURS, TracedGenerator, notice_arguments
from pliant.capture.numbers import arrays, progressions
from pliant.capture.protocols import class_statements, marked, polyfills
from pliant.capture.protocols.attributes import bring_class
from pliant.capture.protocols.cached_calls import call_cached
from pliant.capture.protocols.given_to_c import MADE_OF_NUMBERS, as_taken
from pliant.capture.protocols.iteration import advance, asks_for_length, is_driven
from pliant.capture.protocols.patched_methods import OF_OPERATORS, calls_as_torch_does, has_hooks, refuse_patched
from pliant.capture.protocols.rewritten import REWRITTEN
from pliant.capture.protocols.tail_calls import TailCall, ended, ending
from pliant.capture.recording.torch_calls import call_torch, is_torch_leaf
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.tracebacks import note_passing_module
from pliant.capture.value_kinds import (
    CONSTANTS,
    LITERALS,
    MUTABLE_CONTAINERS,
    ByKind,
    concrete,
    derives,
    function_of,
    is_any_dict,
    is_class,
    is_set,
    misused,
    own_dict,
)
from pliant.graph.fake_tensor import is_fake
from pliant.graph.unbacked import OPERATORS
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import AttributeSource, CellSource, DictAttributeSource, ItemSource, held
from pliant.guards.standard import LRU_CACHE, standard_class
from pliant.torch_adapter import ParameterMeta, module_call
from pliant.unpatched import BUILTINS


def call(t: Tracer, function: Any, args: Args, kwargs: Kwargs, linked: bool = False) -> Any:
    """function(*args, **kwargs)"""
    function = marked.resolve(t, function)
    if not MADE_OF_NUMBERS.isdisjoint(map(type, (*args, *kwargs.values()))):
        if (answer := progressions.answer(t, function, args, kwargs)) is not NotImplemented:
            return answer
        args, kwargs = as_taken(function, args, kwargs)
    if id(function) in _TAKING_ALL and len(args) == 1 and is_driven(t, args[0]) and not (id(function) in _OF_SETS and is_set(args[0])):
        is_listed = id(function) in _LISTING and asks_for_length(t, args[0])
        return call(t, polyfills.made_of_listed if is_listed else polyfills.made_of, (function, *args), kwargs, linked)
    if args and is_fake(args[0]) and (names := OF_OPERATORS.get(id(function))) is not None:
        refuse_patched(t, *names)
    handler = find_row(function)
    if handler is not None or type(function) in _CHECKED:
        _check_arity(t, function, args, kwargs)
    if handler is not None:
        return ended(t, _by_row(handler, t, function, args, kwargs), linked)
    result = marked.call_marked(t, function, args, kwargs)
    if result is not marked.NOT_MARKED:
        return result
    return _KINDS.of(function)(t, function, args, kwargs, linked)


def _call_method(t: Tracer, method: Any, args: Args, kwargs: Kwargs, linked: bool) -> Any:
    receiver = method.__self__
    # Methods of Python's generators that the trace made are interpreted.
    if is_generator(receiver) and (not is_of_python(receiver) or t.world.is_foreign(receiver)):
        return draw(t, receiver, method.__name__, args, kwargs)
    return _RECEIVERS.of(receiver)(t, method, args, kwargs, linked)


def _call_generator(t: Tracer, method: Any, args: Args, kwargs: Kwargs, linked: bool) -> Any:
    _check_arity(t, getattr(_GENERATOR, method.__name__, None), args, kwargs)
    return advance(t, method, args, linked)


_GENERATOR = (_ for _ in ())  # of Python's own
_RECEIVERS: ByKind[Callable[..., Any]] = ByKind(
    lambda t, method, args, kwargs, linked: call(t, method.__func__, (method.__self__, *args), kwargs, linked),
    {
        **dict.fromkeys(OURS, lambda t, method, args, kwargs, linked: t.native(method, *args, **kwargs)),
        TracedGenerator: _call_generator,
    },
    {logging.Logger: lambda t, method, args, kwargs, linked: log(t, method, args, kwargs)},
)


def _call_in_c(t: Tracer, function: Any, args: Args, kwargs: Kwargs, linked: bool) -> Any:
    return ended(t, call_native(t, function, args, kwargs), linked)


def _call_reference(t: Tracer, reference: Any, args: Args, kwargs: Kwargs, linked: bool) -> Any:
    own = t.world.python_function(type(reference), "__call__")
    if own is not None:
        return call(t, own, (reference, *args), kwargs, linked)
    _check_arity(t, reference, args, kwargs)
    return referent(t, reference)


# Functions that take all items of their one argument before they do anything.
_LISTING = frozenset(map(id, (list, tuple, BUILTINS.sorted)))
_OF_SETS = frozenset(map(id, (set, frozenset)))
_TAKING_ALL = _LISTING | _OF_SETS


def _check_arity(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> None:
    """CPython's own complaint about arguments that do not fit; a break where it might run code of the program first."""
    known = arity.of(function)
    if known is None or known.takes(len(args), kwargs):
        return
    # `x.name(...)` goes to what the class has, `x.name(*given)` to the bound method.
    method = function if t.frames[-1].op.name == "CALL_FUNCTION_EX" else arity.unbound(function)
    args, kwargs = tuple(map(concrete, args)), {name: concrete(value) for name, value in kwargs.items()}
    if _HARMLESS.issuperset(map(type, (*args, *kwargs.values()))):
        t.native(method, *(() if method is function else (function.__self__,)), *args, **kwargs)
    raise GraphBreak("bad-call", f"the arguments of {getattr(function, '__name__', function)}() do not fit")


_HARMLESS = CONSTANTS | MUTABLE_CONTAINERS | {tuple, type, types.FunctionType, types.BuiltinFunctionType}


def _by_row(handler: Handler, t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """The result of a handler. Of a function of PyTorch's in C, whose parameters are unknown, it may miss arguments."""
    try:
        return handler(t, args, kwargs)
    except (TypeError, ValueError, IndexError) as error:
        if arity.of(function) is not None:
            raise
        raise GraphBreak("bad-call", f"the arguments of {function} do not fit: {error}") from None


_C_FUNCTIONS = (
    types.BuiltinFunctionType, type(re.compile("").match), types.MethodDescriptorType, types.WrapperDescriptorType,
    types.MethodWrapperType, types.ClassMethodDescriptorType, types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
_CHECKED = frozenset((*_C_FUNCTIONS, *ACCESSORS))

# ---- Python functions
def _call_function(t: Tracer, function: types.FunctionType, args: Args, kwargs: Kwargs, linked: bool) -> Any:
    if is_torch_leaf(function):
        _guard_leaf(t, function)
        return _call_leaf(t, function, args, kwargs, linked)
    special = find_special(function)
    if special is not None:
        return special(t, function, args, kwargs)
    folded = fold(t, function, args, kwargs)
    if folded is not NotImplemented:
        _guard_leaf(t, function)
        return folded
    if str(function.__module__).startswith("numpy"):
        computed = arrays.call_numpy(t, function, args, kwargs)
        if computed is not NotImplemented:
            return computed
    if "registry" in function.__dict__ and "dispatch" in function.__dict__ and args:  # functools.singledispatch
        chosen = t.native(function.__dict__["dispatch"], bring_class(t, args[0]))
        _guard_registry(t, function)
        return call(t, t.world.hold(chosen, function.__qualname__), args, kwargs, linked)
    return t.repeated.call(t, inline, function, args, kwargs, linked and not takes_shared_lock(function))


def _call_leaf(t: Tracer, function: types.FunctionType, args: Args, kwargs: Kwargs, linked: bool) -> Any:
    """PyTorch's own function as one node; one that asks tensors for their values is interpreted."""
    before = t.recorder.count
    try:
        return call_torch(t, function, args, kwargs)
    except GraphBreak as stop:
        if stop.kind != "data-dependent" or t.recorder.count != before or not t.mode.allow_unbacked:
            raise
    return inline(t, function, args, kwargs, linked)


def _guard_leaf(t: Tracer, function: types.FunctionType) -> None:
    """A function that is called as it is: its code, its defaults, and the globals that its code names."""
    source = t.world.source_of(function) or held(function, function.__qualname__)
    if source in t.guarded_leaves:
        return
    t.guarded_leaves.add(source)
    for name in ("__code__", "__defaults__", "__kwdefaults__"):
        t.world.guard(AttributeSource(source, name), Kind.IDENTITY, getattr(function, name))
    namespace = function.__globals__
    root = held(namespace, str(namespace.get("__name__")))
    for name in function.__code__.co_names:
        value = namespace.get(name, MISSING)
        if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.ModuleType, type)):
            t.world.guard(ItemSource(root, name), Kind.IDENTITY, value)


def _guard_registry(t: Tracer, function: types.FunctionType) -> None:
    """The implementations of a single-dispatch function: a dict that its `dispatch` refers to."""
    dispatch = function.__dict__["dispatch"]
    source = t.world.source_of(function)
    index = dispatch.__code__.co_freevars.index("registry")
    chain: Any = held(dispatch, function.__qualname__) if source is None else DictAttributeSource(source, "dispatch")
    registry = CellSource(ItemSource(AttributeSource(chain, "__closure__"), index))
    found = dispatch.__closure__[index].cell_contents
    t.world.guard(registry, Kind.KEYS, tuple(found))
    for cls, implementation in found.items():
        t.world.guard(ItemSource(registry, cls), Kind.IDENTITY, implementation)


def inline(t: Tracer, function: types.FunctionType, args: Args, kwargs: Kwargs, linked: bool = False) -> Any:
    """Interpret the function's body."""
    if len(t.frames) > t.inline_depth:
        raise GraphBreak("recursion", f"{function.__qualname__} is nested {t.inline_depth} calls deep")
    idle_runs.check(t)
    frame = make_frame(t, function, args, kwargs, linked)
    flags = frame.code.co_flags
    if flags & inspect.CO_GENERATOR:
        frame.linked = False
        return TracedGenerator(frame, function)
    if flags & (inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
        raise GraphBreak("coroutine", f"the coroutine {function.__qualname__}")
    notice_arguments(frame)
    return frame.value()


def make_frame(t: Tracer, function: types.FunctionType, args: Args, kwargs: Kwargs, linked: bool) -> Frame:
    """The frame of a call, its parameters bound, its cells made."""
    world = t.world
    code = REWRITTEN.get(function.__code__, function.__code__)
    if (function.__closure__ or function.__defaults__ or function.__kwdefaults__) and not world.is_made(function):
        world.hold(function, function.__qualname__)  # one that C code had: what it refers to is the program's
    foreign = world.is_foreign(function)
    source = world.source_of(function)
    if foreign and source is not None:
        world.guard(AttributeSource(source, "__code__"), Kind.IDENTITY, function.__code__)
    local = bind_arguments(t, function, code, args, kwargs, source if foreign else None)
    cells: dict[str, types.CellType] = {}
    for index, (name, cell) in enumerate(zip(code.co_freevars, function.__closure__ or (), strict=True)):
        if foreign and source is not None:
            cell = world.bring_cell(cell, ItemSource(AttributeSource(source, "__closure__"), index))
        cells[name] = cell
    for name in code.co_cellvars:
        cells[name] = types.CellType(local.pop(name)) if name in local else types.CellType()
    return Frame(t, code, function.__globals__, local, cells, function.__qualname__, linked)


def bind_arguments(
    t: Tracer, function: types.FunctionType, code: types.CodeType, args: Args, kwargs: Kwargs, source: Any
) -> dict[str, Any]:
    """Parameters by name, as CPython binds them; a call that does not fit raises what it raises. Of a function that has a
    source, defaults are read from there.
    """
    defaults, by_name = function.__defaults__ or (), function.__kwdefaults__ or {}
    binder = types.FunctionType(_binder(decode(code)), _LOCALS, function.__name__)
    binder.__qualname__ = function.__qualname__
    binder.__defaults__ = defaults if source is None else (_DEFAULT,) * len(defaults)
    binder.__kwdefaults__ = by_name if source is None else dict.fromkeys(by_name, _DEFAULT)
    try:
        local: dict[str, Any] = binder(*args, **kwargs)
    except TypeError as error:
        raise t.raised(error) from None
    for name in [name for name, value in local.items() if value is _DEFAULT]:
        place = code.co_varnames.index(name) - (code.co_argcount - len(defaults))
        kind, key = ("__kwdefaults__", name) if name in by_name else ("__defaults__", place)
        local[name] = t.world.bring(getattr(function, kind)[key], ItemSource(AttributeSource(source, kind), key))
    return local


_DEFAULT = object()
_LOCALS = {"locals": locals}


@per_program
def _binder(program: Program) -> types.CodeType:
    """The code of a function with the same parameters, which gives them by name."""
    code, plain = program.code, (lambda: locals()).__code__
    more = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + more.bit_count()]
    return plain.replace(
        co_argcount=code.co_argcount,
        co_posonlyargcount=code.co_posonlyargcount,
        co_kwonlyargcount=code.co_kwonlyargcount,
        co_varnames=parameters,
        co_nlocals=len(parameters),
        co_flags=plain.co_flags | more,
    )


def _call_partial(t: Tracer, function: Any, args: Args, kwargs: Kwargs, linked: bool) -> Any:
    inner, given, keywords = function.func, function.args, function.keywords
    if t.world.is_foreign(function):
        source = t.world.place_of(function)
        inner = t.world.bring(inner, AttributeSource(source, "func"))
        given = t.world.bring(given, AttributeSource(source, "args"))
        keywords = t.world.adopt(t.world.bring(keywords, AttributeSource(source, "keywords")))
    return call(t, inner, (*given, *args), {**keywords, **kwargs}, linked)


# ---- objects with __call__
def _call_object(t: Tracer, obj: Any, args: Args, kwargs: Kwargs, linked: bool) -> Any:
    if (method := t.world.python_function(type(obj), "__call__")) is not None:
        return call(t, method, (obj, *args), kwargs, linked)
    if t.world.type_lookup(type(obj), "__call__") is MISSING:
        raise misused(obj, "'{}' object is not callable")
    folded = call_object(t, obj, args, kwargs)
    if folded is NotImplemented and type(obj).__module__.partition(".")[0] == "numpy":
        folded = arrays.call_numpy(t, obj, args, kwargs)
    if folded is not NotImplemented:
        return folded
    raise GraphBreak("unknown-call", f"a call of a {type(obj).__name__}")


def _call_module(t: Tracer, module: torch.nn.Module, args: Args, kwargs: Kwargs, linked: bool) -> Any:
    return t.repeated.call(t, _follow_module, module, args, kwargs, linked)


def _follow_module(t: Tracer, module: torch.nn.Module, args: Args, kwargs: Kwargs, linked: bool) -> Any:
    """Without hooks a module's call is its `forward`; with hooks nn.Module's own code is interpreted."""
    if not calls_as_torch_does(t, type(module)):
        return _call_object(t, module, args, kwargs, linked)
    if has_hooks(t, module):
        with _in_module(t, 1):
            return inline(t, module_call, (module, *args), kwargs, linked)
    if own_dict(module).get("_compiled_call_impl") is not None:
        t.world.dict_get(t.world.instance_dict(module), "_compiled_call_impl")
    try:
        with _in_module(t, 2):
            return call(t, t.get_attr(module, "forward"), args, kwargs, linked)
    except Raised as raised:
        note_passing_module(t, raised.error)
        raise


@contextlib.contextmanager
def _in_module(t: Tracer, count: int) -> Iterator[None]:
    """Around what a module's call enters: so many frames of PyTorch's own are between, which are not traced."""
    t.module_calls.append((len(t.frames), count))
    try:
        yield
    finally:
        t.module_calls.pop()


# ---- classes
def _call_class(t: Tracer, cls: type, args: Args, kwargs: Kwargs, linked: bool) -> Any:
    """cls(*args, **kwargs): the metaclass' __call__, then __new__ and __init__."""
    own = t.world.python_function(type(cls), "__call__")
    if own is not None and type(cls) is not ParameterMeta:
        if standard_class(type(cls)) and hasattr(cls, "__members__"):
            return call_enum(t, cls, args, kwargs)
        return call(t, own, (cls, *args), kwargs, linked)
    if is_class(meta_call := t.world.type_lookup(type(cls), "__call__")):  # no descriptor: `dict`, of a typed dict
        return call(t, meta_call, args, kwargs, linked)
    return instantiate(t, cls, args, kwargs, linked=linked)


@ending
def instantiate(t: Tracer, cls: type, args: Args, kwargs: Kwargs) -> Any:
    """type.__call__(cls, ...): `__new__`, then `__init__`."""
    native = find_class(cls)
    if native is not None:
        _check_arity(t, cls, args, kwargs)
        return native(t, cls, args, kwargs)
    if t.world.python_function(cls, "__del__") is not None or has_finalizer(cls):
        raise GraphBreak("unknown-object", f"a {cls.__name__}, which has a finalizer, is made")
    new = t.world.type_lookup(cls, "__new__")
    if (in_python := function_of(new)) is not None:
        return TailCall(polyfills.instance, (in_python, cls, args, kwargs))
    obj = new_object(t, cls, getattr(new, "__func__", new), args, kwargs)
    if (own := t.world.python_function(type(obj), "__init__")) is not None:
        return TailCall(polyfills.initialized, (own, obj, args, kwargs))
    init = t.world.type_lookup(type(obj), "__init__")
    if init not in _NO_INIT:
        _INITIALIZERS.of(obj)(t, init, obj, args, kwargs)
    return obj


def _initialize(t: Tracer, init: Any, obj: Any, args: Args, kwargs: Kwargs) -> None:
    t.native(init, obj, *(t.iterable(a) if not is_any_dict(a) else t.mapping(a) for a in args), **kwargs)


_CONTAINERS = (list, dict, set, collections.deque)
_NO_INIT = (object.__init__, type.__init__, weakref.ref.__init__)
_INITIALIZERS: ByKind[Callable[..., Any]] = ByKind(
    _initialize,
    families={
        **dict.fromkeys(
            _CONTAINERS, lambda t, init, obj, args, kwargs: call_native(t, init.__get__(obj), args, kwargs)
        ),
        **dict.fromkeys(
            (property, staticmethod, classmethod, BaseException), lambda t, init, obj, args, kwargs: t.native(init, obj, *args, **kwargs)
        ),
    },
)


_IS_ABSTRACT = 1 << 20  # Py_TPFLAGS_IS_ABSTRACT; the attribute would ask the program's metaclass


def new_object(t: Tracer, cls: type, new: Any, args: Args, kwargs: Kwargs) -> Any:
    """new(cls, *args, **kwargs), of a `__new__` written in C"""
    if new is object.__new__:
        if (args or kwargs) and cls.__new__ is not object.__new__:
            raise Raised(TypeError("object.__new__() takes exactly one argument (the type to instantiate)"))
        if (args or kwargs) and cls.__init__ is object.__init__:  # type: ignore[misc]
            raise Raised(TypeError(f"{cls.__name__}() takes no arguments"))
        if derives(type(cls), abc.ABCMeta):
            t.world.type_lookup(cls, "__abstractmethods__")  # stays as it is, and with it the flag
        if cls.__flags__ & _IS_ABSTRACT:
            t.native(object.__new__, cls)  # which complains
        try:
            return object.__new__(cls)
        except TypeError as error:  # its layout comes from a base written in C
            raise GraphBreak("unknown-object", str(error)) from None
    make = next((_NEW[base] for base in cls.__mro__ if base in _NEW and (new is base.__new__ or base in _ANY_NEW)), None)
    if make is None:
        raise GraphBreak("unknown-object", f"an object of the class {cls.__qualname__} is made, which is implemented in C")
    return make(t, cls, new, args, kwargs)


def _new_literal(t: Tracer, cls: type, new: Any, args: Args, kwargs: Kwargs) -> Any:
    """Of a class that derives from `str`, `int` or `float`: made of what this one makes of the arguments."""
    base = new.__self__
    if base in (str, int, float) and not LITERALS.issuperset(map(type, args)):  # objects are asked
        args, kwargs = (t.call(base, args, kwargs),), {}
    return t.native(new, cls, *map(t.concrete_tree, args), **kwargs)


_ANY_NEW = (BaseException, tuple, frozenset, str, int, float)  # also by the `__new__` of a class in C between
_NEW: dict[type, Callable[..., Any]] = {  # by the base that says what the object is made of
    type: lambda t, cls, new, args, kwargs: class_statements.new_class(t, functools.partial(new, cls), args, kwargs),
    weakref.ref: lambda t, cls, new, args, kwargs: make_reference(t, cls, args, kwargs),
    **dict.fromkeys(_CONTAINERS, lambda t, cls, new, args, kwargs: t.native(new, cls)),
    **dict.fromkeys(
        (tuple, frozenset), lambda t, cls, new, args, kwargs: t.native(new, cls, *map(t.iterable, args), **kwargs)
    ),
    BaseException: lambda t, cls, new, args, kwargs: t.native(new, cls, *map(t.concrete_tree, args), **kwargs),
    **dict.fromkeys((str, int, float), _new_literal),
    **dict.fromkeys(
        (property, classmethod, staticmethod),
        lambda t, cls, new, args, kwargs: t.native(new, cls, *args, **kwargs),
    ),
}


_KINDS: ByKind[Callable[..., Any]] = ByKind(
    _call_object,
    {
        types.FunctionType: _call_function,
        types.MethodType: _call_method,
        functools.partial: _call_partial,
        LRU_CACHE: lambda t, function, args, kwargs, linked: call_cached(t, function, args, kwargs),
        **dict.fromkeys(_C_FUNCTIONS, _call_in_c),
        type(functools.cmp_to_key(lambda one, other: 0)): lambda t, key, args, kwargs, linked: t.native(key, *args, **kwargs),
        **ACCESSORS,
        typing.NewType: lambda t, new_type, args, kwargs, linked: args[0],
        types.GenericAlias: lambda t, alias, args, kwargs, linked: call(t, alias.__origin__, args, kwargs, linked),
        **dict.fromkeys(OPERATORS, lambda t, function, args, kwargs, linked: call_torch(t, function, args, kwargs)),
    },
    {
        type: _call_class,
        weakref.ref: _call_reference,
        torch.nn.Module: _call_module,
        torch.jit.ScriptModule: refusal("unknown-call", "a TorchScript module"),
    },
)
