"""The pipeline as one function, a line per arrow. Read this first.

In:     a `CapturedGraph`: torch-level operators on fake tensors (`capture/` made it from the program's bytecode).
Out:    `run(list of inputs) -> outputs`, differentiable by torch's autograd engine.
Holds:  each arrow is one function with typed input and output, timed by `debug.events.stage`.

    capture    bytecode -> CapturedGraph                        capture/tracer.py
    joint      CapturedGraph -> AtenGraph, forward + backward   autograd/
    partition  AtenGraph -> forward, backward, saved values     autograd/partition/
    lower      AtenGraph -> loop IR                             lowering/
    schedule   loops -> kernels, order, memory plan             schedule/
    codegen    kernels -> C and a wrapper                       codegen/
    build      C -> loaded code                                 runtime/, cache/
"""

from __future__ import annotations

import ctypes
import difflib
import time
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from pliant import config
from pliant.debug import dump, events
from pliant.debug.first_run import checked
from pliant.debug.repro import crash_report
from pliant.errors import AssumptionError, CompileError, ConfigError
from pliant.graph.contracts import AtenGraph, CapturedGraph, Runnable
from pliant.graph.unbacked import assume
from pliant.guards import native_watch

GraphCallable = Callable[[list[Any]], Sequence[Any]]
GraphCompiler = Callable[[CapturedGraph], GraphCallable]
# What a user may pass as backend: gets the graph and its inputs, returns what runs it.
UserBackend = Callable[[fx.GraphModule, list[Any]], Callable[..., Sequence[Any]]]


def compile_captured(captured: CapturedGraph) -> GraphCallable:
    """From a captured graph to code that runs it."""
    from pliant.autograd.runtime import build
    from pliant.runtime.compile_graph import compile_graph, interpret_loops

    match config.get().debug.stop_after:
        case "graph":
            return eager(captured)
        case "joint":
            return aot_eager(captured)
        case "lower":
            return build(captured, interpret_loops)
    return build(captured, compile_graph)


def aot_eager(captured: CapturedGraph) -> GraphCallable:
    """The joint stage with its ATen graphs run operator by operator."""
    from pliant.autograd.runtime import build
    from pliant.graph.interpret import interpret

    def run_as_is(graph: AtenGraph) -> Runnable:
        return lambda inputs: interpret(graph, inputs)

    return build(captured, run_as_is)


def eager(captured: CapturedGraph) -> GraphCallable:
    """The captured graph as it is."""
    forward = captured.module.forward
    return _undoing(captured, lambda inputs: forward(*inputs))


def _undoing(captured: CapturedGraph, run: GraphCallable) -> GraphCallable:
    """`run` of a graph that writes its inputs as it goes: where an assumption fails, it leaves them as they were."""
    if all(node.target is not assume for node in captured.module.graph.nodes):
        return run
    written = [i for i, one in enumerate(captured.inputs) if one.kind == "tensor" and one.fake._version > 0]

    def undone(inputs: list[Any]) -> Sequence[Any]:
        before = [(inputs[i], inputs[i].detach().clone()) for i in written]
        try:
            return run(inputs)
        except AssumptionError:
            for tensor, value in before:
                tensor.detach().copy_(value)
            raise

    return undone if written else run


def _build_watch(text: str) -> ctypes.PyDLL | None:
    """The native part of guards; None where there is no C compiler."""
    from pliant.runtime.build import build

    try:
        return ctypes.PyDLL(str(build([text], config.get().build)))
    except (CompileError, OSError):
        return None


native_watch.use_builder(_build_watch)

BACKENDS: dict[str, GraphCompiler] = {"pliant": compile_captured, "eager": eager, "aot_eager": aot_eager}


def from_user(backend: UserBackend) -> GraphCompiler:
    """A backend of the ecosystem as a graph compiler."""

    def compile_with_it(captured: CapturedGraph) -> GraphCallable:
        run = backend(captured.module, [i.example for i in captured.inputs])
        return _undoing(captured, lambda inputs: run(*inputs))

    return compile_with_it


def graph_compiler(backend: str | UserBackend | None) -> GraphCompiler:
    """The compiler of graphs that `compile(backend=...)` asks for, timed and counted."""
    if backend is None or isinstance(backend, str):
        chosen = lookup_backend(backend or "pliant")
    elif callable(backend):
        chosen = from_user(backend)
    else:
        raise ConfigError(
            f"backend cannot be {backend!r}",
            kind="wrong-type",
            why="it must be a name or a callable (graph module, inputs) -> callable",
            do="pass one of " + ", ".join(BACKENDS),
        )
    return _recorded(chosen)


def lookup_backend(name: str) -> GraphCompiler:
    """The backend of this name."""
    if name in BACKENDS:
        return BACKENDS[name]
    near = difflib.get_close_matches(name, BACKENDS, n=1)
    raise ConfigError(
        f"unknown backend {name!r}",
        kind="unknown-backend",
        why="the backends are " + ", ".join(BACKENDS),
        do=f"did you mean {near[0]!r}?" if near else "pass one of these, or a callable",
    )


def _recorded(compile_graph: GraphCompiler) -> GraphCompiler:
    def compile_it(captured: CapturedGraph) -> GraphCallable:
        operators = [n for n in captured.module.graph.nodes if n.op not in ("placeholder", "output", "get_attr")]
        if events.wants("graph_code"):
            events.record("graph_code", name=captured.name, text=captured.module.code.strip())
        fakes = [i.fake for i in captured.inputs]
        with (
            crash_report(captured.module, fakes, name=captured.name),
            events.stage("graph", name=captured.name) as timer,
        ):
            compiled = compile_graph(captured)
        if config.get().general.verify == "first":
            compiled = checked(captured, compiled)
        events.record("graph", name=captured.name, nodes=len(operators), seconds=time.perf_counter() - timer.start)
        return compiled

    return compile_it


dump.install()
