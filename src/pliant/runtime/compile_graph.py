"""From an ATen graph to a function that runs it.

In:     an `AtenGraph`.
Out:    a `CompiledGraph`.
Reads on: `compile_program.py`, which does everything after lowering.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant import config
from pliant.debug import events
from pliant.graph.contracts import AtenGraph, Runnable
from pliant.ir.loops import LoopProgram
from pliant.ir.printer import program_text
from pliant.ir.verify import verify
from pliant.lowering.lower import lower
from pliant.runtime.compile_program import (
    CompiledGraph,
    WrittenProgram,
    compile_program,
    compile_row_program,
    write_program,
)
from pliant.schedule.in_place import written_in_place
from pliant.schedule.repeated_heads import without_repeated_heads
from pliant.schedule.row_blocks import in_blocks_of_rows
from pliant.together import beside


def compile_graph(graph: AtenGraph, options: config.Config | None = None) -> CompiledGraph:
    """Compile an ATen graph. Raises `CompilerNotFound` if there is no C compiler."""
    program = _lowered(graph)
    wanted = (options or config.get()).build.cuda_graphs
    device = None if wanted == "never" else _recorded_on(program)
    if device is None:
        return compile_program(program, options)
    return _recorded(program, graph, device, options, always=wanted == "always")


def write_graph(graph: AtenGraph) -> WrittenProgram:
    """The texts of an ATen graph, for whoever builds them."""
    return write_program(_lowered(graph), config.get())


def _recorded_on(program: LoopProgram) -> torch.device | None:
    """The GPU on which the program's calls may be recorded as a CUDA graph."""
    from pliant.runtime.cuda.capturable import gpus_of, why_not

    gpus = gpus_of(program)
    if gpus and (why := why_not(program)) is not None:
        events.record("cuda_graph_refused", name=program.name, why=why)
        return None
    return gpus[0] if gpus else None


def _recorded(
    program: LoopProgram, graph: AtenGraph, device: torch.device, options: config.Config | None, *, always: bool
) -> CompiledGraph:
    """The compiled program, whose calls are recorded; not `always`: where that pays. Large results are made apart."""
    from pliant.runtime.cuda.capturable import roles_of
    from pliant.runtime.cuda.graphs import recorded_on
    from pliant.runtime.cuda.large_results import made_apart, split

    parts = split(program, graph.private_outputs)
    first = program if parts is None else parts.begin
    private = graph.private_outputs if parts is None else parts.private(frozenset(graph.private_outputs))
    made, *others = _compiled([first] if parts is None else [first, parts.end], options)
    made.call = recorded_on(made.call, roles_of(first, graph.static_inputs, private), device, program.name, always)
    if parts is not None:
        (rest,) = others
        made.call = made_apart(made.call, rest.call, parts.shown, parts.passed, parts.only, parts.order)
        made.add(rest)
    return made


def _compiled(programs: list[LoopProgram], options: config.Config | None) -> list[CompiledGraph]:
    """The programs, whose code is built side by side."""
    return beside(lambda: [compile_program(program, options) for program in programs])


def compile_rows(graph: AtenGraph, rows: list[list[int]], numbers: list[int]) -> Callable[[list[Any]], None] | None:
    """Compile an ATen graph that runs for many rows of tensors: see `compile_row_program`."""
    return compile_row_program(_lowered(graph), rows, numbers)


def interpret_loops(graph: AtenGraph) -> Runnable:
    """Run a graph's loops by the reference interpreter: what the stages before code generation say, slowly."""
    from pliant.ir.interpret import run  # which only who looks at stages asks for

    program = _lowered(graph)
    return lambda inputs: run(program, inputs)


def _lowered(graph: AtenGraph) -> LoopProgram:
    if events.wants("nodes"):
        from pliant.debug.flops import flops_by_node  # what shows programs is loaded for who looks
        from pliant.graph.told import node_rows

        rows = node_rows(graph.graph)
        events.record(
            "nodes", name=graph.name, level="aten", of=graph.shape_env.number, count=len(rows), rows=rows, flops=flops_by_node(graph)
        )
    with events.stage("lower", graph=graph.name):
        program = in_blocks_of_rows(lower(graph))
        program = written_in_place(program, lambda fact: graph.shape_env.statically_known(fact) is True)
        program = without_repeated_heads(program)
    if config.get().general.verify_passes:
        verify(program)
    if events.wants("loops"):
        events.record("loops", name=graph.name, text=program_text(program))
    return program


compile_aten = compile_graph
