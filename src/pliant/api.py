"""What users call.

In:     functions, modules, tensors, names of options.
Out:    compiled functions and modules; marks; statistics.
Holds:  wrong arguments raise a `ConfigError` that says what to pass. Names are those torch uses where it has the
        feature.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import torch
from torch import fx

from pliant import config
from pliant.backends import BACKENDS, UserBackend, graph_compiler, known_as, registered, registered_names
from pliant.compiler import eager, keeper, load_stages, new_entry, resume_function
from pliant.debug import events
from pliant.dispatch import markers, stance
from pliant.dispatch.compiled_function import (
    FUNCTIONS,
    CompiledObject,
    compile_in_place,
    compiled_callable,
    compiled_object,
    dispatcher_of,
    forwarding_object,
    shares_all,
)
from pliant.dispatch.dim_marks import mark_dims
from pliant.dispatch.dispatcher import Compilation, Dispatcher, is_capturing
from pliant.dispatch.markers import original_of
from pliant.errors import ConfigError, UserError
from pliant.guards import kept_casts

if TYPE_CHECKING:
    from pliant.debug.cost import Cost
    from pliant.debug.explain import Explanation
    from pliant.exporting.exported import Exported
    from pliant.patterns.pattern import Pattern

set_stance = stance.set_stance

Fn = Callable[..., Any]


@overload
def compile(
    fn: None = None,
    *,
    backend: str | UserBackend | None = ...,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    mode: str | None = ...,
    options: Mapping[str, object] | None = ...,
    patterns: Sequence[Pattern] = ...,
    disable: bool = ...,
) -> Callable[[Any], Any]: ...


@overload
def compile(
    fn: Any,
    *,
    backend: str | UserBackend | None = ...,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    mode: str | None = ...,
    options: Mapping[str, object] | None = ...,
    patterns: Sequence[Pattern] = ...,
    disable: bool = ...,
) -> Any: ...


def compile(
    fn: Any = None,
    *,
    backend: str | UserBackend | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    patterns: Sequence[Pattern] = (),
    disable: bool = False,
) -> Any:
    """`fn`, compiled at its first calls: a function, method, module or any callable. Without `fn`, a decorator.

    fullgraph: an error instead of a graph break. dynamic: sizes are symbols always (True), never (False), once they
    vary (None). patterns: calls that others take the place of, see `pliant.patterns`. disable: `fn` itself comes back.
    """
    arguments: dict[str, Any] = {"backend": backend, "fullgraph": fullgraph, "dynamic": dynamic, "mode": mode}
    arguments |= {"options": options, "patterns": patterns}
    recipe = functools.partial(compile, **arguments)
    if fn is None:
        _compilation(recipe, **arguments)  # wrong options are reported at the decorator, not at the first call
        return functools.partial(recipe, disable=disable)
    compilation = _compilation(recipe, **arguments)
    if disable:
        return fn
    if isinstance(fn, CompiledObject) or dispatcher_of(fn) is not None:
        fn = original_of(fn)
    if _is_exported(fn):
        return fn.compile(**compilation.overrides)
    if isinstance(fn, torch.nn.Module):
        return compiled_object(fn, compilation)
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(recipe(fn.__func__))
    if not callable(fn):
        raise _not_callable(fn)
    if isinstance(fn, (*FUNCTIONS, type)):
        return compiled_callable(fn, compilation)
    return compiled_object(fn, compilation) if shares_all(fn) else forwarding_object(fn, compilation)


def _not_callable(fn: object) -> ConfigError:
    name, is_member = type(fn).__name__, hasattr(type(fn), "__get__")
    return ConfigError(
        f"cannot compile {fn!r}",
        kind="not-callable",
        why=f"objects of type {name} cannot be called",
        do=f"put pliant.compile below {name}" if is_member else "pass a function, a module or another callable",
    )


def compile_(module: torch.nn.Module, *, disable: bool = False, **arguments: Any) -> torch.nn.Module:
    """Compile the calls of this very module, so that its own methods (`generate`...) use the compiled code. Returns
    it. The arguments are those of `compile`."""
    if not isinstance(module, torch.nn.Module):
        raise ConfigError(
            f"compile_ cannot take {module!r}",
            kind="not-a-module",
            why=f"it is a {type(module).__name__}",
            do="use pliant.compile",
        )
    recipe = functools.partial(compile_, **arguments)
    compilation = _compilation(recipe, **arguments)
    if not disable:
        compile_in_place(module, compilation)
    return module


def _compilation(
    recipe: Callable[[Any], Any],
    *,
    backend: str | UserBackend | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
    patterns: Sequence[Pattern] = (),
) -> Compilation:
    _check_flag("fullgraph", fullgraph, (bool,), "True or False")
    _check_flag("dynamic", dynamic, (bool, type(None)), "True, False or None")
    _check_flag("mode", mode, (str, type(None)), "a name or None")
    _check_flag("options", options, (Mapping, type(None)), "a dictionary of option names and values")
    gpus = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]
    if mode in config.MODES and mode != "default" and config.changes_nothing(mode, gpus=gpus):
        events.warn_once(f"mode:{mode}", f'mode="{mode}" is the same as the default one on this device')
    on_disk = keeper() if backend in (None, "pliant") and "guard_filter_fn" not in (options or {}) else None
    known: dict[str, Any] = dict(options or {})
    guard_filter = known.pop("guard_filter_fn", None)
    if guard_filter is not None:
        _check_callable(guard_filter, "filter guards with")
    if patterns:
        from pliant.patterns.pattern import check_replacing

        check_replacing(patterns)
    compile_graph = graph_compiler(backend, patterns)
    if on_disk is None or not on_disk.may_find():
        load_stages()
    return Compilation(
        compile_graph=compile_graph,
        make_resume=resume_function,
        new_entry=new_entry,
        as_captured=eager,
        fullgraph=fullgraph,
        dynamic=dynamic,
        overrides=config.overrides_of(mode, known),
        guard_filter=guard_filter,
        keeper=on_disk,
        patterns=tuple(patterns),
        recipe=recipe,
    )


def _check_flag(name: str, value: object, types_: tuple[type, ...], what: str) -> None:
    if not isinstance(value, types_):
        raise ConfigError(
            f"{name} cannot be {value!r}",
            kind="wrong-type",
            why=f"it must be {what}, not {type(value).__name__}",
            do=f"pass {what}",
        )


# ---- marks on functions


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """A function that is never captured: a compiled caller breaks there, and what it calls runs eagerly, too. `reason`:
    what messages say of the break. Of a class neither making objects nor calling them is captured; of a module, its calls."""
    if fn is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if not recursive:
        events.warn_once("disable-recursive", "disable(recursive=False) is the same as disable(): compile what is called itself")
    original = original_of(fn)
    if isinstance(original, torch.nn.Module):
        original.forward = _disabled_method(original, original.forward, reason)
        return original
    if isinstance(original, type):
        markers.mark(original, markers.Mark.DISABLED, reason)
        if "__call__" in dir(original):
            original.__call__ = disable(original.__call__, reason=reason)  # type: ignore[method-assign]
        return original
    _check_callable(original, "disable")

    @functools.wraps(original)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        kept_casts.give()
        return original(*args, **kwargs)

    markers.mark(disabled, markers.Mark.DISABLED, reason)
    return disabled


def _disabled_method(owner: Any, method: Any, reason: str | None) -> Any:
    """A method of the object as one of which copies of the object have their own."""
    if isinstance(method, types.MethodType) and method.__self__ is owner:
        return types.MethodType(disable(method.__func__, reason=reason), owner)
    return disable(method, reason=reason)


def allow_in_graph(fn: Any) -> Any:
    """Calls of the function become one node of the graph; it must be free of side effects. Also takes a list of
    functions."""
    return _mark_each(fn, markers.Mark.IN_GRAPH)


def disallow_in_graph(fn: Any) -> Any:
    """Calls of the function (an operator, say) break the graph."""
    return _mark_each(fn, markers.Mark.BREAK)


def assume_constant_result(fn: Any) -> Any:
    """The function is called while capturing and its result is a constant of the graph."""
    return _mark_each(fn, markers.Mark.CONSTANT)


def _mark_each(fn: Any, how: markers.Mark) -> Any:
    if isinstance(fn, (list, tuple)):
        return [_mark_each(f, how) for f in fn]
    _check_callable(fn, "mark")
    markers.mark(fn, how)
    return fn


def _check_callable(fn: object, what: str) -> None:
    if not callable(fn):
        raise ConfigError(f"cannot {what} {fn!r}", kind="not-callable", why="it cannot be called", do="pass a function")


def substitute_in_graph(original: Any, **_: Any) -> Callable[[Fn], Fn]:
    """Decorator: where `original` (a function in C, say) is called, capture follows the decorated function instead."""
    _check_callable(original, "substitute")

    def decorate(traceable: Fn) -> Fn:
        markers.substitute(original, traceable)
        return traceable

    return decorate


def graph_break(msg: str = "") -> None:
    """Under capture, a graph break here. Otherwise nothing."""


def is_compiling() -> bool:
    """Whether the program is being captured: inside compiled code what the option `is_compiling` says, True."""
    return is_capturing()


markers.substitute(is_compiling, torch.compiler.is_compiling)


# ---- marks on tensors


def mark_dynamic(
    t: torch.Tensor, index: int | Iterable[int], *, min: int | None = None, max: int | None = None
) -> None:
    """This dimension is a symbol from the first compile on; specializing it is an error."""
    mark_dims(t, index, "marked", min, max)


def maybe_mark_dynamic(t: torch.Tensor, index: int | Iterable[int]) -> None:
    """This dimension starts as a symbol; specializing it is fine."""
    mark_dims(t, index, "maybe")


def mark_static(t: torch.Tensor, index: int | Iterable[int] | None = None) -> None:
    """This dimension (or all) is a constant, also where it varies."""
    mark_dims(t, index, "static")


def mark_unbacked(t: torch.Tensor, index: int | Iterable[int]) -> None:
    """The dimension's size is treated as unknown while capturing."""
    mark_dims(t, index, "unbacked")


# ---- seeing


def reset() -> None:
    """Forget all compiled code of all functions, and the statistics."""
    for dispatcher in stance.everyone():
        if isinstance(dispatcher, Dispatcher):
            dispatcher.reset()
    if (objects := sys.modules.get("pliant.runtime.objects")) is not None:
        objects.forget()
    events.reset()


def stats() -> dict[str, object]:
    """Counts and seconds since the start or the last `reset()`; what is compiled behind calls now is `pending`."""
    found = events.stats()
    behind = sys.modules.get("pliant.dispatch.behind")
    found["pending"] = behind.pending() if behind is not None else 0
    return found


def wait(seconds: float | None = None) -> bool:
    """Wait until all that is compiled behind calls (the option `background`) is ready or given up, `seconds` at most. Whether
    it is."""
    behind = sys.modules.get("pliant.dispatch.behind")
    return behind is None or behind.wait(seconds)


def explain(fn: Any, **arguments: Any) -> Callable[..., Explanation]:
    """`explain(fn)(*args)` compiles `fn` afresh, calls it once, and returns graphs, breaks, guards, seconds. Print
    it."""
    from pliant.debug.explain import explain as explaining

    overrides = config.overrides_of(arguments.get("mode"), arguments.get("options"))
    return explaining(functools.partial(compile, **arguments), original_of(fn), overrides)


def cost(fn: Any, *args: Any, **kwargs: Any) -> Cost:
    """What `fn(*args, **kwargs)` costs, as expressions in the sizes of its arguments; nothing runs. Print it, or
    `evaluate` it."""
    from pliant.debug.cost import cost as costs

    return costs(original_of(fn), *args, **kwargs)


# ---- ahead of time


def export(
    model: Fn,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    beyond: Literal["check", "specialize", "refuse"] = "check",
    training: bool = False,
) -> Exported:
    """`model(*args, **kwargs)` as one graph, for the sizes that `dynamic_shapes` says: by parameter names or positions,
    trees of `Dim`s. `beyond`: what becomes of facts about sizes that no Dim can say: the graph checks them, sizes are
    fixed so that they hold, or an error. `training`: the program returns `(result, {parameter name: gradient})`, with the
    gradients of the loss that the result is, has by the name `loss`, or begins with."""
    from pliant.exporting.capture import export as exporting

    if not callable(model):
        raise ConfigError(
            f"cannot export {model!r}", kind="not-callable", why=f"a {type(model).__name__} cannot be called",
            do="pass a module or a function",
        )  # fmt: skip
    if not isinstance(args, (tuple, list)):
        raise ConfigError(
            f"args cannot be {args!r}", kind="wrong-type", why="it is the tuple of the call's arguments", do="pass a tuple"
        )
    return exporting(original_of(model), args, kwargs, dynamic_shapes, beyond, bool(training))


def _is_exported(value: object) -> bool:
    """Whether it is a program of `export` or `load`; nothing is before their modules are loaded."""
    module = sys.modules.get("pliant.exporting.exported")
    return module is not None and isinstance(value, module.Exported)


def aot_compile(
    program: Exported, path: Any, *, interface: Literal["python", "c", "standalone"] = "python",
    targets: Sequence[str] = ("native",), options: Mapping[str, object] | None = None
) -> None:
    """Write an exported program with its compiled kernels: `pliant.load(path, kernels=True)` runs them without tracing
    or a C compiler. `targets`: the machines that it has kernels for, of which loading takes the best: `"native"`, a processor
    like this one; `"x86-64-v3"` (AVX2), `"x86-64-v4"` (AVX-512), `"armv8-a"` (NEON; by a cross compiler); GPUs by their
    compute capability, `"sm_90"`. `interface="c"`: a folder with a shared library that C and C++ programs
    without Python call, a header and the weights; it runs by PyTorch's operators. `interface="standalone"`: the same without
    PyTorch: compiled kernels, and loops of Pliant's own for products, convolutions and pools."""
    if not _is_exported(program):
        raise ConfigError(
            f"cannot package {program!r}", kind="wrong-type", why="it is no exported program",
            do="pass what pliant.export returns",
        )  # fmt: skip
    if interface not in ("python", "c", "standalone"):
        raise ConfigError(f"there is no interface {interface!r}", kind="wrong-value", do='pass "python", "c" or "standalone"')
    if interface != "python" and tuple(targets) != ("native",):
        raise ConfigError(
            f'a library has no `targets` (interface="{interface}")', kind="wrong-value", why="it is for one processor",
            do="name that by the option `opt_flags`, or write several libraries",
        )  # fmt: skip
    if interface == "c":
        from pliant.exporting.c_interface.library import write_library

        write_library(program, path)
        return
    if interface == "standalone":
        from pliant.exporting.standalone.library import write_library as write_standalone

        write_standalone(program, path, options or {})
        return
    from pliant.exporting.package import aot_compile as packaging

    packaging(program, path, options or {}, targets)


def list_backends() -> list[str]:
    """Names that `compile(backend=...)` takes: Pliant's own, and those that installed packages register."""
    return sorted({*BACKENDS, *registered_names()})


def lookup_backend(name: str) -> UserBackend:
    """The backend of this name, as a callable of a graph module and its inputs that returns what runs the graph."""
    graph_compiler(name)  # an unknown name is an error here
    name = known_as(name)
    if name in BACKENDS:
        return functools.partial(compile_fx, backend=name)
    backend = registered(name)
    assert backend is not None
    return backend


def compile_fx(
    module: fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    backend: str = "pliant",
    mode: str | None = None,
    options: Mapping[str, object] | None = None,
) -> Fn:
    """A graph that another front end captured, compiled at its first call: `torch.compile(model, backend="pliant")`
    finds this function by the entry point that the package registers, and hands `mode=` and `options=` over."""
    module.code  # noqa: B018  # some front ends generate `forward` at its first use, which is no part of the graph
    symbolic = any(isinstance(value, torch.SymInt) for value in example_inputs)  # they stay symbolic
    compiled: Fn = compile(
        module.forward, backend=backend, dynamic=True if symbolic else None, mode=mode, options=options
    )
    return compiled


# What a compiled function asks of the compiler is done between two graphs: capture does not follow the compiler itself.
for _request in (
    aot_compile, compile, compile_, cost, explain, export, graph_break, mark_dynamic, mark_static, mark_unbacked,
    maybe_mark_dynamic, reset, stats, wait,
):  # fmt: skip
    markers.mark(_request, markers.Mark.BREAK)

__all__ = [
    "UserError",
    "allow_in_graph",
    "aot_compile",
    "assume_constant_result",
    "compile",
    "compile_",
    "cost",
    "disable",
    "disallow_in_graph",
    "explain",
    "export",
    "graph_break",
    "is_compiling",
    "list_backends",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "maybe_mark_dynamic",
    "reset",
    "set_stance",
    "stats",
    "substitute_in_graph",
    "wait",
]
