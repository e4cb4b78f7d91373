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
import functools
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from pliant import config
from pliant.debug import dump
from pliant.dispatch.compiled_function import compiled_callable
from pliant.dispatch.dispatcher import DISPATCHER, Compilation, Dispatcher, Keeper
from pliant.dispatch.entry import Entry
from pliant.dispatch.roots import argument_sources
from pliant.errors import CompileError, NoKernels
from pliant.gc_pause import GcPause
from pliant.guards import native_builder
from pliant.guards.settings import SETTERS, Settings
from pliant.interruptions import pass_on
from pliant.targets.registry import provide, target_of
from pliant.targets.target import Target
from pliant.torch_adapter import python_kernels_of_aten
from pliant.wrappers.wrapper import WROTE

if TYPE_CHECKING:
    from pliant.autograd.repeated import RowRun
    from pliant.graph.contracts import AtenGraph, CapturedGraph, Runnable
    from pliant.graph.control_bodies import Varying

GraphCallable = Callable[[list[Any]], Sequence[Any]]
GraphCompiler = Callable[["CapturedGraph"], GraphCallable]


def compile_captured(captured: CapturedGraph) -> GraphCallable:
    """From a captured graph to code that runs it."""
    from pliant.autograd.repeated import build_repeated
    from pliant.autograd.runtime import build
    from pliant.graph.control_flow import compile_bodies
    from pliant.runtime.compile_graph import interpret_loops
    from pliant.runtime.kernels_or_operators import kernels_or_operators, tell_operators
    from pliant.together import beside
    from pliant.wrappers.wrapper import telling_by_lines

    match config.get().debug.stop_after:
        case "graph":
            return eager(captured)
        case "joint":
            return aot_eager(captured)
        case "lower":
            return build(captured, interpret_loops)
    if (missing := _own_kernels() or _missing_target(captured)) is not None:
        tell_operators(captured.name, missing)
        return eager(captured)
    captured = _with_attention(captured)
    compile_bodies(captured.module, compiled_body)
    taken = captured.shape_env.asserts_taken()
    run = beside(
        lambda: build_repeated(captured, kernels_or_operators, _kernels_for_rows),
        undo=lambda: captured.shape_env.take_again(taken),
    )
    return telling_by_lines(run) if captured.written_inputs() else run


def _with_attention(captured: CapturedGraph) -> CapturedGraph:
    """The graph with attention as one operator, where the program writes it out."""
    from pliant.patterns.attention_cost import may_pay

    options = config.get()
    if options.autograd.rewrite_attention == "off" or options.bitwise or not may_pay(captured):
        return captured
    from pliant.patterns.attention import find_attention
    from pliant.patterns.rewriting import rewritten

    return rewritten(captured, [find_attention])


def _own_kernels() -> NoKernels | None:
    """Why what a program made of PyTorch's operators is not replaced: its kernels may stand below what ours are made of."""
    if not (kernels := python_kernels_of_aten()):
        return None
    return NoKernels(
        f"the program has kernels of its own for {', '.join(kernels[:3])}",
        kind="own-kernels",
        why="code of ours computes what PyTorch's own kernels do",
        do="register operators of your own, and call these",
    )


def _missing_target(captured: CapturedGraph) -> NoKernels | None:
    """Why no code is generated for a device that the program computes on; `meta` computes nothing."""
    from pliant.graph.fake_tensor import FakeTensor

    values = [value for node in captured.module.graph.nodes for value in pytree.tree_leaves(node.meta.get("val"))]
    for device in {value.device for value in values if isinstance(value, FakeTensor)}:
        try:
            if device.type != "meta":
                target_of(device)
        except NoKernels as missing:
            return missing
    return None


def _kernels_for_rows(graph: AtenGraph, rows: list[list[int]], numbers: list[int]) -> RowRun | None:
    from pliant.runtime.compile_graph import compile_rows

    try:
        return compile_rows(graph, rows, numbers)
    except CompileError as error:
        pass_on(error)
        return None  # which compiles its graph as any other


def compiled_body(body: torch.nn.Module, varying: Varying, known: bool) -> Callable[..., Any]:
    """A body of control flow as a compiled function of its own: sizes that are symbols around it are symbols in it. `known`: its
    class says all that it does."""
    kept = keeper() if known and config.get().cache.keep_entries else None
    compiled = compiled_callable(body, Compilation(compile_captured, resume_function, new_entry, keeper=kept))
    dispatcher = compiled.__dict__[DISPATCHER]
    dispatcher.name = "a body of control flow"
    for source, sizes in zip(argument_sources(body, len(varying)), varying, strict=True):
        if sizes is None:
            dispatcher.policy.note_varies(source, int)
        else:
            dispatcher.policy.note_dynamic(source, len(sizes), frozenset(itertools.compress(itertools.count(), sizes)))
    return compiled


@functools.cache
def keeper() -> Keeper:
    """What keeps entries on disk."""
    with GcPause():
        from pliant.entries.keeper import Keeper as OnDisk

    return OnDisk(compiled_body)


def resume_function(compilation: Compilation, point: Any, globals_: dict[str, Any], name: str) -> Callable[..., Any]:
    """What follows a graph break: see `dispatch.resume_function`."""
    from pliant.dispatch import resume_function

    return resume_function.resume_function(compilation, point, globals_, name)


def new_entry(dispatcher: Dispatcher, args: Sequence[Any], kwargs: dict[str, Any]) -> Entry | None:
    """A callable captured for a call: see `dispatch.new_entry`. Loaded now: what finds its entries on disk needs no compiler."""
    from pliant.dispatch import new_entry

    return new_entry.new_entry(dispatcher, args, kwargs)


def load_stages() -> None:
    """Load all stages: where a program asks for compiled code, not at the code's first call. C that any compiled code needs is
    compiled meanwhile."""
    from pliant.guards import native_watch

    native_watch.prepare_beside()
    with GcPause():
        import pliant.autograd.repeated
        import pliant.dispatch.new_entry
        import pliant.runtime.compile_graph

        if config.get().cache.keep_entries:
            import pliant.entries.claims
            import pliant.entries.draft  # noqa: F401


def aot_eager(captured: CapturedGraph) -> GraphCallable:
    """The joint stage with its ATen graphs run operator by operator."""
    from pliant.autograd.runtime import build
    from pliant.graph.interpret import interpret

    def run_as_is(graph: AtenGraph) -> Runnable:
        return lambda inputs: interpret(graph, inputs)

    return build(captured, run_as_is)


def eager(captured: CapturedGraph) -> GraphCallable:
    """The captured graph as it is."""
    from pliant.graph.interpret import in_inference_mode
    from pliant.graph.late_module import with_code

    forward = in_inference_mode(captured.module) or with_code(captured.module).forward
    return undoing(captured, lambda inputs: forward(*inputs))


def undoing(captured: CapturedGraph, run: GraphCallable) -> GraphCallable:
    """`run` of a graph that writes its inputs as it goes. Where an assumption, or an operator on data, may fail, it leaves
    them as they were; other errors say whether they were written.
    """
    run = _restoring(captured, run)
    written = captured.changed_inputs()
    if not written:
        return run
    if not _may_fail(captured):
        return _telling_by_versions(written, run)

    def undone(inputs: list[Any]) -> Sequence[Any]:
        before = [(inputs[i], inputs[i].detach().clone()) for i in written]
        try:
            return run(inputs)
        except Exception:
            for tensor, value in before:
                with torch.inference_mode(tensor.is_inference()):
                    tensor.detach().copy_(value)
            raise

    return undone


def _restoring(captured: CapturedGraph, run: GraphCallable) -> GraphCallable:
    """`run` of a graph that changes settings as it goes: where it fails in between, they are as before."""
    find = captured.module.graph.find_nodes
    if not any(find(op="call_function", target=setter, sort=False) for setter in SETTERS):
        return run

    def restored(inputs: list[Any]) -> Sequence[Any]:
        before = Settings()
        try:
            return run(inputs)
        except BaseException:
            before.restore()
            raise

    return restored


def _may_fail(captured: CapturedGraph) -> bool:
    """Whether the graph may be an error on data. Behind a write that autograd records, none may: the record stays."""
    from pliant.autograd.aliasing import LastingWrite
    from pliant.autograd.runtime import places_of_writes
    from pliant.graph.failing import call_may_fail

    calls = [node for node in captured.module.graph.nodes if node.op in ("call_function", "call_method")]
    failing = [place for place, node in enumerate(calls) if call_may_fail(node)]
    if not failing and not captured.shape_env.has_unbacked:
        return False
    if any(not captured.inputs[i].fake.is_leaf for i in captured.written_inputs()):
        places = places_of_writes(calls[: failing[-1]] if failing else calls)
        if places:
            raise LastingWrite("what may fail on its data comes after a write that autograd records", places)
    return True


def _telling_by_versions(written: list[int], run: GraphCallable) -> GraphCallable:
    """`run`, whose errors say whether inputs were written before: the versions of these tell."""

    def told(inputs: list[Any]) -> Sequence[Any]:
        tensors = [inputs[i] for i in written]
        before = [_version(tensor) for tensor in tensors]
        try:
            return run(inputs)
        except Exception as error:
            setattr(error, WROTE, before != [_version(tensor) for tensor in tensors])
            raise

    return told if written else run


def _version(tensor: Any) -> object:
    """How often it was written; of inference tensors that is not known."""
    return object() if tensor.is_inference() else tensor._version


def _build_watch() -> ctypes.PyDLL | None:
    """The library that has the native part of guards; None where there is no C compiler. Also prepared for what graphs share."""
    from pliant.runtime.load import prepare

    try:
        library = prepare()
        return ctypes.PyDLL(library._name, handle=library._handle)  # whose functions keep the interpreter's lock
    except (CompileError, OSError) as error:
        pass_on(error)
        return None


native_builder.use(_build_watch)


def _gpu(device: torch.device) -> Target:
    from pliant.runtime.cuda import available

    return available.target_of(device)


provide("cuda", _gpu)

dump.install()
