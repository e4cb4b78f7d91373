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

import contextlib
import ctypes
import threading
from collections.abc import Callable, Sequence
from typing import Any

from pliant import config
from pliant.debug import dump
from pliant.errors import AssumptionError, CompileError
from pliant.graph.contracts import WROTE, AtenGraph, CapturedGraph, Runnable
from pliant.graph.unbacked import assume
from pliant.guards import native_watch

GraphCallable = Callable[[list[Any]], Sequence[Any]]
GraphCompiler = Callable[[CapturedGraph], GraphCallable]


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
    return _telling(_written(captured), build(captured, compile_graph), knows=False)


def load_stages() -> None:
    """Load what `compile_captured` needs: where a program asks for compiled code, not at the code's first call."""
    import pliant.autograd.runtime
    import pliant.runtime.compile_graph  # noqa: F401


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
    return undoing(captured, lambda inputs: forward(*inputs))


def undoing(captured: CapturedGraph, run: GraphCallable) -> GraphCallable:
    """`run` of a graph that writes its inputs as it goes: where an assumption fails, it leaves them as they were; an
    error of an operator says whether they were written.
    """
    written = _written(captured)
    if all(node.target is not assume for node in captured.module.graph.nodes):
        return _telling(written, run, knows=True)

    def undone(inputs: list[Any]) -> Sequence[Any]:
        before = [(inputs[i], inputs[i].detach().clone()) for i in written]
        try:
            return run(inputs)
        except AssumptionError:
            for tensor, value in before:
                tensor.detach().copy_(value)
            raise

    return undone if written else run


def _written(captured: CapturedGraph) -> list[int]:
    """Which inputs the graph writes, perhaps."""
    tensors = [(i, one.fake) for i, one in enumerate(captured.inputs) if one.kind == "tensor"]
    return [i for i, fake in tensors if fake is not None and (fake.is_inference() or fake._version > 0)]


def _telling(written: list[int], run: GraphCallable, knows: bool) -> GraphCallable:
    """`run`, whose errors say that inputs were written before. `knows`: their versions tell."""

    def told(inputs: list[Any]) -> Sequence[Any]:
        before = [_writes(inputs[i]) for i in written] if knows else []
        try:
            return run(inputs)
        except Exception as error:
            if not knows or before != [_writes(inputs[i]) for i in written]:
                setattr(error, WROTE, not isinstance(error, AssumptionError))
            raise

    return told if written else run


def _writes(tensor: Any) -> object:
    """How often it was written; of inference tensors that is not known."""
    return object() if tensor.is_inference() else tensor._version


def _build_watch(text: str) -> ctypes.PyDLL | None:
    """The native part of guards; None where there is no C compiler."""
    from pliant.runtime.build import build, quick

    threading.Thread(target=_prepare_loading, daemon=True, name="pliant-loading").start()
    try:
        return ctypes.PyDLL(str(build([text], quick(config.get().build))))
    except (CompileError, OSError):
        return None


def _prepare_loading() -> None:
    """Compile what the code of all graphs shares."""
    from pliant.runtime.load import prepare

    with contextlib.suppress(CompileError, OSError):
        prepare()


native_watch.use_builder(_build_watch)

dump.install()
