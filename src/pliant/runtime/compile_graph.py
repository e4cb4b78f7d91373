"""From an ATen graph to a function that runs it.

In:     an `AtenGraph`.
Out:    a `CompiledGraph`.
Reads on: `compile_program.py`, which does everything after lowering.
"""

from __future__ import annotations

from pliant import config
from pliant.debug import events
from pliant.graph.contracts import AtenGraph
from pliant.ir.printer import program_text
from pliant.lowering.lower import lower
from pliant.runtime.compile_program import CompiledGraph, compile_program


def compile_graph(graph: AtenGraph, options: config.Config | None = None) -> CompiledGraph:
    """Compile an ATen graph. Raises `CompilerNotFound` if there is no C compiler."""
    with events.stage("lower", graph=graph.name):
        program = lower(graph)
    if events.wants("loops"):
        events.record("loops", name=graph.name, text=program_text(program))
    return compile_program(program, options)


compile_aten = compile_graph
