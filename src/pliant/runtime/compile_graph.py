"""From an ATen graph to a function that runs it.

In:     an `AtenGraph`.
Out:    a `CompiledGraph`.
Reads on: `compile_program.py`, which does everything after lowering.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant import config
from pliant.debug import events
from pliant.graph.contracts import AtenGraph, Runnable
from pliant.ir.interpret import run
from pliant.ir.loops import LoopProgram
from pliant.ir.printer import program_text
from pliant.ir.verify import verify
from pliant.lowering.lower import lower
from pliant.runtime.compile_program import CompiledGraph, compile_program, compile_row_program


def compile_graph(graph: AtenGraph, options: config.Config | None = None) -> CompiledGraph:
    """Compile an ATen graph. Raises `CompilerNotFound` if there is no C compiler."""
    program = _lowered(graph)
    made = compile_program(program, options)
    wanted = (options or config.get()).build.cuda_graphs
    if wanted != "never":
        made.call = _recorded(made.call, program, graph, always=wanted == "always")
    return made


def _recorded(call: Runnable, program: LoopProgram, graph: AtenGraph, *, always: bool) -> Runnable:
    """The compiled graph's function, recorded as a CUDA graph if it runs on a GPU; not `always`: where that pays."""
    from pliant.runtime.cuda.capturable import gpus_of, roles_of, why_not
    from pliant.runtime.cuda.graphs import recorded_on

    gpus = gpus_of(program)
    if not gpus:
        return call
    if (why := why_not(program)) is not None:
        events.record("cuda_graph_refused", name=program.name, why=why)
        return call
    roles = roles_of(program, graph.static_inputs, graph.private_outputs)
    return recorded_on(call, roles, gpus[0], program.name, always)


def compile_rows(graph: AtenGraph, rows: list[list[int]], numbers: list[int]) -> Callable[[list[Any]], None] | None:
    """Compile an ATen graph that runs for many rows of tensors: see `compile_row_program`."""
    return compile_row_program(_lowered(graph), rows, numbers)


def interpret_loops(graph: AtenGraph) -> Runnable:
    """Run a graph's loops by the reference interpreter: what the stages before code generation say, slowly."""
    program = _lowered(graph)
    return lambda inputs: run(program, inputs)


def _lowered(graph: AtenGraph) -> LoopProgram:
    with events.stage("lower", graph=graph.name):
        program = lower(graph)
    if config.get().general.verify_passes:
        verify(program)
    if events.wants("loops"):
        events.record("loops", name=graph.name, text=program_text(program))
    return program


compile_aten = compile_graph
