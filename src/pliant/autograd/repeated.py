"""Make a callable of a program with parts that are equal: each kind is compiled once and run for every part.

In:     a `CapturedGraph`, a compiler of ATen graphs, and one of graphs that run for many rows of tensors.
Out:    a function of the list of flat inputs that returns the tuple of the program's outputs.
Holds:  it does what `runtime.build` of the program does, which is used where a part does not lend itself.
Reads on: `repeats.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.autograd.around import Call
from pliant.autograd.calls import joined
from pliant.autograd.forward import written_in_graph
from pliant.autograd.joint import JointGraph, trace_joint
from pliant.autograd.repeats import Group, Repeats, find_repeats
from pliant.autograd.runtime import build, build_in_layers, partitioned
from pliant.debug import events
from pliant.errors import Unsupported
from pliant.graph.contracts import AtenCompiler, AtenGraph, CapturedGraph

# Runs on the list of the program's inputs; None if the graph needs more than kernels that write its inputs.
RowRun = Callable[[list[Any]], None]
# A compiler of a graph for rows of tensors (their places in that list) and numbers (theirs).
RowCompiler = Callable[[AtenGraph, list[list[int]], list[int]], RowRun | None]


def build_repeated(captured: CapturedGraph, compile_aten: AtenCompiler, compile_rows: RowCompiler) -> Call:
    """The callable; see `runtime.build`."""
    found = find_repeats(captured)
    runs = _runs(found.groups, compile_rows) if found is not None else None
    if found is None or runs is None:
        return build_in_layers(captured, compile_aten)
    return _joined(found, runs, compile_aten)


def _runs(groups: list[Group], compile_rows: RowCompiler) -> list[tuple[RowRun, list[int]]] | None:
    """For each group what runs its parts, and the inputs whose versions then change; None if one cannot be compiled."""
    runs = []
    for group in groups:
        try:
            with events.stage("joint"):
                joint = trace_joint(group.program)
        except Unsupported:
            return None
        if not isinstance(joint, JointGraph) or joint.constants:
            return None
        parts = partitioned(joint, group.program.name)
        run = compile_rows(parts.forward, group.rows, group.numbers) if parts.backward is None else None
        if run is None:
            return None
        bumped = written_in_graph(joint.plan)
        runs.append((run, [row[k] for row in group.rows for k in bumped]))
    return runs


def _joined(found: Repeats, runs: list[tuple[RowRun, list[int]]], compile_aten: AtenCompiler) -> Call:
    """The rest of the program first: where it fails, the parts have written nothing."""
    rest = build(found.rest[0], compile_aten) if found.rest is not None else None
    places = found.rest[1] if found.rest is not None else []
    bumped = [place for _, changed in runs for place in changed]
    return joined(rest, places, [run for run, _ in runs], bumped)
