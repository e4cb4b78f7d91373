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
import pickle
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.dispatch import DISPATCHER, Compilation, Dispatcher
from pliant.capture.entry import Entry
from pliant.capture.markers import ORIGINAL, is_ours
from pliant.capture.roots import CallableRoot
from pliant.capture.tracebacks import OWN_CODE, hide_frames
from pliant.debug import events
from pliant.errors import PliantWarning
from pliant.guards.codegen import MISS
from pliant.guards.state import tracing
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
    return compiled


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
    elif not isinstance(fn, (types.FunctionType, types.MethodType, type)) and not isinstance(
        fn, types.BuiltinFunctionType
    ):
        fn = type(fn).__dict__.get("__call__", fn)
    code = getattr(fn, "__code__", None)
    if not isinstance(code, types.CodeType):
        return None
    return SourceLocation(code.co_filename, code.co_firstlineno, code.co_name)


# ---- modules and other objects


class CompiledObject:
    """Mixed into a subclass of the object's own class; instances share the original's `__dict__`.

    So every attribute (of a module: parameter, hook, flag) is the original's, whichever of the two sets it, and
    `isinstance` holds.
    """

    __slots__ = ()
    _pliant_is_compiled = True
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
        made = types.new_class(cls.__name__, (CompiledObject, cls), {}, lambda ns: ns.update(body))
        _variants[cls] = weakref.ref(made)
    return made


def compiled_object(obj: Any, compilation: Compilation) -> Any:
    """An object that shares everything with the original and compiles its call."""
    cls = _class_for(type(obj))
    made: Any = object.__new__(cls)  # the class' own `__new__` may want arguments
    object.__setattr__(made, "__dict__", obj.__dict__)
    dispatcher = Dispatcher(CallableRoot(obj), obj, type(obj).__qualname__, location_of(obj), compilation)
    object.__setattr__(made, "_orig_mod", obj)
    object.__setattr__(made, "_pliant_dispatcher", dispatcher)
    return made


_HEAP_TYPE = 1 << 9  # a class made by a class statement


def shares_all(obj: Any) -> bool:
    """Whether another object can have all that this one has: its state is in its `__dict__`."""
    if isinstance(obj, type) or not hasattr(obj, "__dict__"):
        return False
    return all(
        base.__flags__ & _HEAP_TYPE and not any(map(_is_in_c, vars(base).items())) for base in type(obj).__mro__[:-1]
    )


def _is_in_c(item: tuple[str, Any]) -> bool:
    """Whether it tells that objects of the class hold more than a `__dict__`: a slot, or making them is native code's."""
    name, value = item
    return (
        isinstance(value, types.MemberDescriptorType)
        or name == "__new__"
        and isinstance(value, types.BuiltinMethodType)
    )


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
            events.warn_once(f"in-place:{error}", message, PliantWarning, stacklevel=3)
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
