"""Graphs and kernels of a recording, joined with one another.

In:     events: `nodes`, `graph_code`, `kernels`, `eager_memory`.
Out:    `Captured` graphs with their code; `Program`s: an ATen graph, its steps, their costs and the functions that run them.
Holds:  graphs and programs of one capture are joined by its number.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from pliant.debug.events import Event
from pliant.graph.told import NodeRow
from pliant.records import dataclass
from pliant.report.recording import Recording
from pliant.schedule.told import StepRow
from pliant.source import SourceLocation
from pliant.symbolic.expr import ZERO, Expr
from pliant.symbolic.traverse import evaluate


@dataclass
class Captured:
    """A graph that capture made. number: of its capture. eager: bytes that eager has allocated after each call of the graph and
    its backward, `eager_forward`: of the graph alone."""

    id: str
    number: int
    name: str
    rows: Sequence[NodeRow]
    code: str = ""
    eager: list[int] = field(default_factory=list)
    eager_forward: list[int] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)


@dataclass
class Step:
    """A step of a program. `row` has expressions, the rest is for the sizes at hand; None: only running tells. range: what
    profilers call its native call."""

    id: str
    row: StepRow
    nodes: list[NodeRow]
    range: str
    read: int | None
    written: int | None
    operations: int | None
    alive: int | None
    waiting: int | None
    seconds: float | None = None

    @property
    def moved(self) -> int | None:
        return None if self.read is None or self.written is None else self.read + self.written

    @property
    def places(self) -> list[SourceLocation]:
        """Lines that it computes, each once."""
        return list(dict.fromkeys(node.where for node in self.nodes if node.where is not None))

    @property
    def label(self) -> str:
        """What it computes, in a few words."""
        named = [node for node in self.nodes if not node.is_view] or self.nodes
        names = [_operator(node) for node in named] or [self.row.text.partition("->")[0].split()[1]]
        return " + ".join(names[:6]) + (f" + {len(names) - 6} more" if len(names) > 6 else "")


@dataclass
class Program:
    """A compiled ATen graph. formulas: expressions in sizes; code: function -> its text."""

    id: str
    name: str
    rows: Sequence[NodeRow]
    captured: Captured | None
    steps: list[Step] = field(default_factory=list)
    formulas: dict[str, Expr] = field(default_factory=dict)
    code: dict[str, str] = field(default_factory=dict)
    wrapper: str = ""
    results: int | None = None


def graphs_of(recording: Recording) -> tuple[list[Captured], list[Program]]:
    """All graphs and programs, in order."""
    captured: dict[int, Captured] = {}
    programs: list[Program] = []
    flops: dict[str, Mapping[str, Expr]] = {}
    code: dict[tuple[str, int], str] = {}
    for event in recording.events:
        fields: Mapping[str, Any] = event.fields
        if event.kind == "graph_code":
            code[fields["name"], event.thread] = fields["text"]
        elif event.kind == "nodes" and fields["level"] == "captured":
            text = code.pop((fields["name"], event.thread), "")
            captured[fields["of"]] = Captured(f"g{len(captured)}", fields["of"], fields["name"], fields["rows"], text)
        elif event.kind == "eager_memory":
            _add_eager(captured.get(fields["of"]), fields)
        elif event.kind == "nodes":
            programs.append(_program(f"p{len(programs)}", fields, captured.get(fields["of"])))
            flops[programs[-1].id] = fields["flops"]
        elif event.kind == "kernels":
            waiting = [one for one in programs if one.name == fields["name"] and not one.steps]
            if waiting:
                _add_steps(waiting[-1], event, flops[waiting[-1].id])
    _measure(programs, recording.seconds)
    return list(captured.values()), programs


def _add_eager(graph: Captured | None, fields: Mapping[str, Any]) -> None:
    """What eager has allocated. Of a program in several segments each is an event."""
    if graph is not None:
        numbers = [number(e, fields["hints"]) or 0 for e in fields["allocated"]]
        graph.eager += numbers
        graph.eager_forward += numbers[: fields["forward"]]


def _program(id: str, fields: Mapping[str, Any], captured: Captured | None) -> Program:
    program = Program(id, fields["name"], fields["rows"], captured)
    if captured is not None:
        captured.programs.append(program)
    return program


def _add_steps(program: Program, event: Event, flops: Mapping[str, Expr]) -> None:
    fields: Mapping[str, Any] = event.fields
    rows: Sequence[StepRow] = fields["rows"]
    hints, computed_by = fields["hints"], _fused(program.rows, rows)
    for k, row in enumerate(rows):
        computed = row.operations if row.is_kernel else sum((flops.get(name, ZERO) for name in row.nodes), ZERO)
        numbers = [number(e, hints) for e in (row.read, row.written, computed, row.alive, row.waiting)]
        program.steps.append(Step(f"{program.id}k{k}", row, computed_by[k], fields["ranges"].get(row.entry, ""), *numbers))
    program.formulas = {
        "flops": sum(flops.values(), ZERO),
        "read": sum((row.read for row in rows), ZERO),
        "written": sum((row.written for row in rows), ZERO),
        "allocated": max(program.steps, key=lambda step: step.alive or 0).row.alive if rows else ZERO,
    }
    program.results = number(fields["results"], hints)
    program.wrapper = fields["wrapper"]
    program.code = functions_in("\n".join(fields["texts"]), {name for row in rows for name in row.functions})


def _fused(nodes: Sequence[NodeRow], steps: Sequence[StepRow]) -> list[list[NodeRow]]:
    """The nodes that each step computes: those that its loops are of, and those whose values no step puts in memory and that it
    therefore computes where it reads them."""
    by_name = {row.name: row for row in nodes}
    kept = {name for step in steps for name in step.nodes}
    found = []
    for step in steps:
        own: set[str] = set()
        waiting = [name for name in step.nodes if name in by_name]
        while waiting:
            own.add(name := waiting.pop())
            waiting += [n for n in by_name[name].reads if n not in kept and n not in own and by_name[n].kind == "call"]
        found.append([row for row in nodes if row.name in own])
    return found


def _measure(programs: Sequence[Program], seconds: Mapping[str, float]) -> None:
    """Give native calls their times: those by whose range's name no other call goes that moves other amounts. A call's time is
    shared out among its kernels by the bytes that they move."""
    calls: dict[str, dict[tuple[str, int], list[Step]]] = {}
    for program in programs:
        for step in program.steps:
            calls.setdefault(step.range, {}).setdefault((program.id, step.row.run), []).append(step)
    for name in calls.keys() & seconds.keys():
        moved = {sum(step.moved or 0 for step in steps) for steps in calls[name].values()}
        for step in (step for steps in calls[name].values() for step in steps):
            step.seconds = seconds[name] * (step.moved or 0) / max(moved) if len(moved) == 1 and max(moved) else None


def number(e: Expr, hints: Mapping[Any, Any]) -> int | None:
    """The expression for the sizes at hand; None where only running the program tells."""
    try:
        return int(evaluate(e, hints))
    except (KeyError, ZeroDivisionError, OverflowError, ValueError):
        return None


_DEFINITION = re.compile(r"^[^\s#/}].*\b(\w+?)(?:_part)?\([^;]*\{$")


def functions_in(text: str, names: set[str]) -> dict[str, str]:
    """The texts of these functions, with the comments before them, out of units of C."""
    found: dict[str, list[str]] = {name: [] for name in names}
    comment: list[str] = []
    taking: list[str] | None = None
    for line in text.split("\n"):
        if taking is None and line.startswith("//"):
            comment.append(line)
            continue
        if taking is None and (match := _DEFINITION.match(line)) is not None and match[1] in names:
            taking = found[match[1]]
            taking += comment
        comment = []
        if taking is not None:
            taking.append(line)
            taking = None if line == "}" else taking
    return {name: "\n".join(lines) for name, lines in found.items() if lines}


def _operator(node: NodeRow) -> str:
    """`gelu` of `gelu: f32[4] = aten.gelu.default(mm)`."""
    called = node.text.partition(" = ")[2].partition("(")[0]
    return called.removeprefix("aten.").partition(".")[0] or node.name
