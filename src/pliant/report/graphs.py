"""Graphs and kernels of a recording, joined with one another.

In:     events: `nodes`, `graph_code`, `kernels`, `eager_memory`.
Out:    `Captured` graphs with their code; `Program`s: an ATen graph, its steps, their costs and the functions that run them.
Holds:  what cannot be told apart (the backward of one of several graphs of one name) is not joined.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    """A graph that capture made. eager: bytes that eager has allocated after each call of the graph and its backward."""

    id: str
    name: str
    rows: Sequence[NodeRow]
    code: str = ""
    eager: list[int] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)


@dataclass
class Step:
    """A step of a program. `row` has expressions, the rest is for the sizes at hand; None: only running tells."""

    id: str
    row: StepRow
    nodes: list[NodeRow]
    read: int | None
    written: int | None
    operations: int | None
    alive: int | None
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
        names = [_operator(node) for node in self.nodes] or [self.row.text.partition("->")[0].split()[1]]
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
    captured: list[Captured] = []
    programs: list[Program] = []
    flops: dict[str, Mapping[str, Expr]] = {}
    code: dict[tuple[str, int], str] = {}
    for event in recording.events:
        fields: Mapping[str, Any] = event.fields
        if event.kind == "graph_code":
            code[fields["name"], event.thread] = fields["text"]
        elif event.kind == "nodes" and fields["level"] == "captured":
            text = code.pop((fields["name"], event.thread), "")
            captured.append(Captured(f"g{len(captured)}", fields["name"], fields["rows"], text))
        elif event.kind == "eager_memory":
            if (found := _latest(captured, fields["name"])) is not None:
                found.eager = [n for e in fields["allocated"] if (n := number(e, fields["hints"])) is not None]
        elif event.kind == "nodes":
            programs.append(_program(f"p{len(programs)}", fields, captured))
            flops[programs[-1].id] = fields["flops"]
        elif event.kind == "kernels":
            waiting = [one for one in programs if one.name == fields["name"] and not one.steps]
            if waiting:
                _add_steps(waiting[-1], event, flops[waiting[-1].id], recording.seconds)
    return captured, programs


def _latest(captured: Sequence[Captured], name: str) -> Captured | None:
    """The graph that is compiled: the newest of the name, which parts of it have with an ending."""
    return next((one for one in reversed(captured) if name == one.name or name.startswith(f"{one.name}_")), None)


def _program(id: str, fields: Mapping[str, Any], captured: Sequence[Captured]) -> Program:
    """A backward may be compiled when it is first needed: it is joined if there is but one graph that it can be of."""
    found, name = _latest(captured, fields["name"]), fields["name"]
    late = found is not None and name.endswith("_backward") and sum(one.name == found.name for one in captured) > 1
    program = Program(id, name, fields["rows"], None if late else found)
    if program.captured is not None:
        program.captured.programs.append(program)
    return program


def _add_steps(program: Program, event: Event, flops: Mapping[str, Expr], seconds: Mapping[str, float]) -> None:
    fields: Mapping[str, Any] = event.fields
    by_name, hints = {row.name: row for row in program.rows}, fields["hints"]
    rows: Sequence[StepRow] = fields["rows"]
    for k, row in enumerate(rows):
        computed = _sum([row.operations, *(flops.get(name, ZERO) for name in row.nodes)])
        numbers = [number(e, hints) for e in (row.read, row.written, computed, row.alive)]
        program.steps.append(Step(f"{program.id}k{k}", row, [by_name[n] for n in row.nodes if n in by_name], *numbers))
    for entry, steps in _by_entry(program.steps):
        if (taken := seconds.get(fields["ranges"].get(entry, ""))) is not None:
            for step in steps:  # a range is one native call: its time is shared out by the bytes moved
                whole = sum(one.moved or 0 for one in steps)
                step.seconds = taken * (step.moved or 0) / whole if whole else None
    program.formulas = {
        "flops": _sum(flops.values()),
        "read": _sum(row.read for row in rows),
        "written": _sum(row.written for row in rows),
    }
    program.results = number(fields["results"], hints)
    program.wrapper = fields["wrapper"]
    program.code = functions_in("\n".join(fields["texts"]), {name for row in rows for name in row.functions})


def _by_entry(steps: Sequence[Step]) -> Iterator[tuple[str, list[Step]]]:
    found: dict[str, list[Step]] = {}
    for step in steps:
        if step.row.entry:
            found.setdefault(step.row.entry, []).append(step)
    yield from found.items()


def number(e: Expr, hints: Mapping[Any, Any]) -> int | None:
    """The expression for the sizes at hand; None where only running the program tells."""
    try:
        return int(evaluate(e, hints))
    except (KeyError, ZeroDivisionError, OverflowError, ValueError):
        return None


def _sum(parts: Iterable[Expr]) -> Expr:
    total: Expr = ZERO
    for part in parts:
        total = total + part
    return total


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
