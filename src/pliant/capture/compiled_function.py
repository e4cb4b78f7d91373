"""The object a user calls: a function that dispatches over entries, and a module that does.

In:     any callable and a `Compilation`.
Out:    `compiled_callable(fn, compilation)`: a plain function (so it binds as a method, keeps name, doc and signature);
        `compiled_module(module, compilation)`: a module that shares the original's attributes and compiles its call.
Holds:  the hot path is one call of the most recently used entry. `dispatcher_of` and `markers.original_of` find the
        parts again.
"""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.dispatch import DISPATCHER, Compilation, Dispatcher
from pliant.capture.entry import Entry
from pliant.capture.markers import ORIGINAL, is_ours
from pliant.capture.roots import CallableRoot
from pliant.capture.tracebacks import OWN_CODE, hide_frames
from pliant.guards.codegen import MISS
from pliant.guards.state import tracing
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
    for method in (Dispatcher.call, Dispatcher.miss, Dispatcher._eagerly, Dispatcher._capture_and_run, Entry.attempt)
)


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
    return compiled._pliant_dispatcher if isinstance(compiled, CompiledModule) else None


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


# ---- modules


class CompiledModule:
    """Mixed into a subclass of the module's own class; instances share the original's `__dict__`.

    So every attribute, parameter, hook and flag is the original's, whichever of the two sets it, and `isinstance`
    holds.
    """

    __slots__ = ()
    _pliant_is_compiled = True
    _orig_mod: torch.nn.Module
    _pliant_dispatcher: Dispatcher

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
        return [*torch.nn.Module.__dir__(self._orig_mod), "_orig_mod"]  # type: ignore[no-untyped-call]


OWN_CODE.add(CompiledModule.__call__.__code__)
_SLOTS = ("_orig_mod", "_pliant_dispatcher")
_classes: dict[type, type] = {}


def _class_for(cls: type) -> type:
    """The compiled variant of a module class: same name, so that `repr` and logs read as before."""
    made = _classes.get(cls)
    if made is None:
        body = {
            "__slots__": _SLOTS,
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
        }
        made = types.new_class(cls.__name__, (CompiledModule, cls), {}, lambda ns: ns.update(body))
        _classes[cls] = made
    return made


def compiled_module(module: torch.nn.Module, compilation: Compilation) -> torch.nn.Module:
    """A module that shares everything with the original and compiles its call."""
    cls = _class_for(type(module))
    made: Any = cls.__new__(cls)  # type: ignore[call-overload]
    object.__setattr__(made, "__dict__", module.__dict__)
    dispatcher = Dispatcher(CallableRoot(module), module, type(module).__qualname__, location_of(module), compilation)
    object.__setattr__(made, "_orig_mod", module)
    object.__setattr__(made, "_pliant_dispatcher", dispatcher)
    assert isinstance(made, torch.nn.Module)
    return made


def compile_in_place(module: torch.nn.Module, compilation: Compilation) -> None:
    """Calls of the module itself are compiled from now on: torch's modules look for such a function first."""
    module._compiled_call_impl = compiled_callable(module._call_impl, compilation)


def _recompiled(module: torch.nn.Module, recipe: Callable[[Any], Any] | None) -> Any:
    """A copy of a compiled module compiles anew, in the same way."""
    return recipe(module) if recipe is not None else module
