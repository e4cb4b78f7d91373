"""The object a user calls: a function that dispatches over entries, and a module that does.

In:     any callable and a `Compilation`.
Out:    `compiled_callable(fn, compilation)`: a plain function (so it binds as a method, keeps name, doc and signature);
        `compiled_object(obj, compilation)`: a module, or another object, that shares the original's attributes and
        compiles its call.
Holds:  the hot path is one call of the most recently used entry. `dispatcher_of` and `markers.original_of` find the
        parts again.
"""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from pliant.debug import events
from pliant.dispatch.dispatcher import DISPATCHER, Compilation, Dispatcher
from pliant.dispatch.entry import Entry
from pliant.dispatch.markers import ORIGINAL, Compiled, is_ours
from pliant.dispatch.own_frames import OWN_CODE, hide_frames
from pliant.dispatch.roots import CallableRoot
from pliant.errors import PliantWarning
from pliant.guards.standard import can_change
from pliant.guards.state import tracing
from pliant.guards.steps import MISS
from pliant.interruptions import pass_on
from pliant.source import SourceLocation
from pliant.torch_adapter import is_fx_tracing


def make_callable(dispatcher: Dispatcher) -> Callable[..., Any]:
    """The function that runs the dispatcher. Two calls deep on a hit; kept as short as Python allows."""
    miss = dispatcher.miss

    def compiled(*args: Any, **kwargs: Any) -> Any:
        try:
            result = dispatcher.hot(args, kwargs)
            return miss(args, kwargs) if result is MISS else result
        except BaseException as error:
            del args, kwargs
            hide_frames(error)
            raise

    compiled.__dict__[DISPATCHER] = dispatcher
    OWN_CODE.add(compiled.__code__)
    return compiled


OWN_CODE.update(
    method.__code__
    for method in (
        Dispatcher.call, Dispatcher.miss, Dispatcher._eagerly, Dispatcher._capture_and_run, Dispatcher._uncaptured,
        Entry.attempt,
    )
)  # fmt: skip


def compiled_callable(fn: Callable[..., Any], compilation: Compilation) -> Callable[..., Any]:
    """A function that behaves as `fn`."""
    dispatcher = Dispatcher(CallableRoot(fn), fn, name_of(fn), location_of(fn), compilation)
    compiled = make_callable(dispatcher)
    functools.update_wrapper(compiled, fn, updated=())
    compiled.__dict__.update({k: v for k, v in getattr(fn, "__dict__", {}).items() if k not in compiled.__dict__})
    compiled.__dict__["__wrapped__"] = compiled.__dict__[ORIGINAL] = fn
    if inspect.iscoroutinefunction(fn):
        _mark_coroutine_function(compiled)
    return compiled


def _mark_coroutine_function(compiled: Any) -> None:
    """Servers ask whether a function gives what is to be awaited."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(compiled)
    else:
        import asyncio

        compiled._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # for asyncio's question alone


def dispatcher_of(compiled: Any) -> Dispatcher | None:
    """The dispatcher behind a compiled function or module."""
    if isinstance(compiled, types.FunctionType):
        return compiled.__dict__.get(DISPATCHER) if is_ours(compiled) else None
    if isinstance(compiled, types.MethodType):
        return dispatcher_of(compiled.__func__)
    return compiled._pliant_dispatcher if isinstance(compiled, CompiledObject) else None


def name_of(fn: Any) -> str:
    """What messages call the callable."""
    if isinstance(fn, functools.partial):
        return f"partial({name_of(fn.func)})"
    name = getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None)
    return name if isinstance(name, str) else type(fn).__qualname__


def location_of(fn: Any) -> SourceLocation | None:
    """Where the Python code of the callable starts."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if isinstance(fn, torch.nn.Module):
        fn = fn.forward
    elif not isinstance(fn, (types.FunctionType, types.MethodType, types.BuiltinFunctionType, type)):
        fn = type(fn).__dict__.get("__call__", fn)
    code = getattr(fn, "__code__", None)
    if not isinstance(code, types.CodeType):
        return None
    return SourceLocation(code.co_filename, code.co_firstlineno, code.co_name)


# ---- modules and other objects


class CompiledObject(Compiled):
    """Mixed into a subclass of the object's own class; instances share the original's `__dict__`.

    So every attribute (of a module: parameter, hook, flag) is the original's, whichever of the two sets it, and
    `isinstance` holds.
    """

    __slots__ = ()
    _orig_mod: Any
    _pliant_dispatcher: Dispatcher

    def __init_subclass__(cls, **_: Any) -> None:
        """The program's own hook hears of no subclass: it made none."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        dispatcher = self._pliant_dispatcher
        try:
            result = dispatcher.hot(args, kwargs)
            if result is not MISS:
                return result
            if is_fx_tracing():  # its tracer knows this module, not the original
                dispatcher.step_aside(tracing())
                return super().__call__(*args, **kwargs)  # type: ignore[misc]
            return dispatcher.miss(args, kwargs)
        except BaseException as error:
            del args, kwargs
            hide_frames(error)
            raise

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _recompiled, (self._orig_mod, self._pliant_dispatcher.compilation.recipe)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _recompiled(copy.deepcopy(self._orig_mod, memo), self._pliant_dispatcher.compilation.recipe)

    def __dir__(self) -> list[str]:
        return [*dir(self._orig_mod), "_orig_mod"]


OWN_CODE.add(CompiledObject.__call__.__code__)
_SLOTS = ("_orig_mod", "_pliant_dispatcher")
# The compiled variant of a class lives as long as its instances: the class may be of one object alone.
_variants: weakref.WeakKeyDictionary[type, weakref.ref[type]] = weakref.WeakKeyDictionary()


def _class_for(cls: type) -> type:
    """The compiled variant of a class: same name, so that `repr` and logs read as before."""
    known = _variants.get(cls)
    made = known() if known is not None else None
    if made is None:
        body: dict[str, Any] = {
            "__slots__": _SLOTS,
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
        }
        if hasattr(cls, "__del__"):  # the original has an end, not what shares with it
            body["__del__"] = lambda self: None
        if issubclass(cls, torch.fx.GraphModule):  # it writes code into its class, which is to be the original's
            body["recompile"] = lambda self: self._orig_mod.recompile()
        body["__class__"] = property(_class_of_original, _set_class_of_original)
        if hasattr(cls, "__getattr__"):
            body["__getattr__"] = _asking_original(cls)
        body.update((name, _OriginalsSlot(slot)) for base in cls.__mro__ for name, slot in _slots_of(base).items())
        made = types.new_class(cls.__name__, (CompiledObject, cls), {}, lambda ns: ns.update(body))
        _variants[cls] = weakref.ref(made)
    return made


# Parametrizations and the like replace the class of an object that was compiled, or ask it to have another one.
def _class_of_original(made: Any) -> type:
    return type(made._orig_mod)


def _set_class_of_original(made: Any, cls: type) -> None:
    made._orig_mod.__class__ = cls


def _asking_original(cls: type) -> Callable[[Any, str], Any]:
    """What is not found: the original may have become one of another class."""

    def __getattr__(self: Any, name: str) -> Any:
        original = self._orig_mod
        return cls.__getattr__(self, name) if type(original) is cls else getattr(original, name)

    return __getattr__


def compiled_object(obj: Any, compilation: Compilation) -> Any:
    """An object that shares everything with the original and compiles its call."""
    cls = _class_for(type(obj))
    made: Any = object.__new__(cls)  # the class' own `__new__` may want arguments
    if hasattr(obj, "__dict__"):
        object.__setattr__(made, "__dict__", obj.__dict__)
    return _compiling(made, obj, compilation)


def _compiling(made: Any, obj: Any, compilation: Compilation) -> Any:
    dispatcher = Dispatcher(CallableRoot(obj), obj, name_of(obj), location_of(obj), compilation)
    object.__setattr__(made, "_orig_mod", obj)
    object.__setattr__(made, "_pliant_dispatcher", dispatcher)
    return made


# What a function is compiled to: it becomes a method where these do, and has its own attributes.
FUNCTIONS = (
    types.FunctionType,
    types.MethodType,
    types.BuiltinFunctionType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
)


def shares_all(obj: Any) -> bool:
    """Whether another object can have all that this one has: its state is in its `__dict__` and in slots."""
    return not isinstance(obj, type) and all(
        can_change(base) and not any(_is_in_c(base, *item) for item in vars(base).items())
        for base in type(obj).__mro__[:-1]
    )


def _is_in_c(base: type, name: str, value: Any) -> bool:
    """Whether it tells that objects of the class hold something of native code's, or are made by it."""
    if isinstance(value, types.MemberDescriptorType):
        return name not in _slots_of(base)
    return name == "__new__" and isinstance(value, types.BuiltinMethodType)


def _slots_of(cls: type) -> dict[str, types.MemberDescriptorType]:
    """Those that the class statement asked for."""
    members = vars(cls).items() if "__slots__" in vars(cls) else ()
    return {name: member for name, member in members if isinstance(member, types.MemberDescriptorType)}


class _OriginalsSlot:
    """A slot of a compiled object is the original's."""

    __slots__ = ("_slot",)

    def __init__(self, slot: types.MemberDescriptorType) -> None:
        self._slot = slot

    def __get__(self, obj: Any, owner: type | None = None) -> Any:
        return self if obj is None else self._slot.__get__(obj._orig_mod)

    def __set__(self, obj: Any, value: Any) -> None:
        self._slot.__set__(obj._orig_mod, value)

    def __delete__(self, obj: Any) -> None:
        self._slot.__delete__(obj._orig_mod)


_KEPT = {name for name in dir(object) if name not in ("__repr__", "__str__", "__format__", "__eq__", "__hash__")}
_KEPT |= {"__call__", "__class_getitem__", "__getattr__", "__set_name__"}


def forwarding_object(obj: Any, compilation: Compilation) -> Any:
    """An object that stands for one that native code keeps a part of (a `partial`, an instance of a dictionary's subclass):
    it compiles its call, and whatever else is asked of it the original answers."""
    cls = type(obj)
    asked = {name: _asked(name) for name in dir(cls) if name[:2] == name[-2:] == "__" and name not in _KEPT}
    body: dict[str, Any] = {name: method for name, method in asked.items() if callable(getattr(cls, name, None))}
    body |= {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    if hasattr(cls, "__get__"):  # a function in a class is its method
        body["__get__"] = _bound
    made = type(cls.__name__, (_Forwarding,), body)()
    return _compiling(made, obj, compilation)


def _bound(self: Any, it: Any, owner: type | None = None) -> Any:
    """What the original is as a member of a class; from Python 3.13 on partials say what becomes of them, and stay."""
    of_original = self._orig_mod.__get__(it, owner)
    return self if of_original is self._orig_mod else types.MethodType(self, it)


def _asked(name: str) -> Callable[..., Any]:
    return lambda self, *args: getattr(self._orig_mod, name)(*args)


class _Forwarding(CompiledObject):
    """Every attribute is the original's."""

    __slots__ = ("__weakref__", *_SLOTS)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    @property
    def __wrapped__(self) -> Any:
        return self._orig_mod


def compile_in_place(module: torch.nn.Module, compilation: Compilation) -> None:
    """Calls of the module itself are compiled from now on: torch's modules look for such a function first, and leave it
    out of their state."""
    module._compiled_call_impl = compiled_callable(module._call_impl, compilation)
    module.__dict__[_IN_PLACE] = _InPlace(module, compilation.recipe)


_IN_PLACE = "_pliant_compiled_in_place"


class _InPlace:
    """In the state of a module that was compiled in place: its copies are, on whichever side of a pickle."""

    __slots__ = ("module", "recipe")

    def __init__(self, module: torch.nn.Module, recipe: Callable[[Any], Any] | None) -> None:
        self.module, self.recipe = weakref.ref(module), recipe

    def _goes_on(self) -> bool:
        module = self.module()
        return module is not None and module._compiled_call_impl is not None

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _compiled_again(memo.get(id(self.module())), self.recipe) if self._goes_on() else None

    def __reduce__(self) -> Any:
        if not self._goes_on():
            return type(None), ()
        try:
            pickle.dumps(self.recipe)
        except Exception as error:
            pass_on(error)
            message = f"a pickled module loses its compilation: {error}"
            events.warn_once(f"in-place:{error}", message, PliantWarning)
            return type(None), ()
        return _compiled_again, (self.module(), self.recipe)


def _compiled_again(module: Any, recipe: Callable[[Any], Any] | None) -> Any:
    """Called before the copy has its state."""
    if module is None or recipe is None:
        return None
    recipe(module)
    return module.__dict__.get(_IN_PLACE)


def _recompiled(module: torch.nn.Module, recipe: Callable[[Any], Any] | None) -> Any:
    """A copy of a compiled module compiles anew, in the same way."""
    return recipe(module) if recipe is not None else module
