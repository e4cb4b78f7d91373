"""The page: what a recording says, as the template shows it.

In:     a `Recording`.
Out:    `page_of`: HTML without anything outside of it.
Holds:  every text is escaped by the template engine. Lists and texts have bounds, and what they leave out is said where it
        would have been.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from pliant.debug import timing
from pliant.debug.events import Event
from pliant.records import dataclass
from pliant.report import charts, drawing
from pliant.report.annotate import annotated
from pliant.report.graphs import Captured, Program, graphs_of
from pliant.report.recording import Recording
from pliant.report.texts import bytes_text, code_lines, count_text, first_line, seconds_text, short_place
from pliant.source import SourceLocation
from pliant.torch_adapter import VERSION

MOST_ROWS = 1500  # of a table
MOST_NODES = 3000  # of all graphs that are listed
MOST_CODE = 1_200_000  # characters of generated code
MOST_FORMULA = 400  # characters


@dataclass(frozen=True, slots=True)
class Bounded:
    """The first rows of a list, and how many there are beyond."""

    rows: Sequence[Any]
    left_out: int


def bounded(rows: Sequence[Any], most: int = MOST_ROWS) -> Bounded:
    """The rows that a page has."""
    return Bounded(rows[:most], max(0, len(rows) - most))


def page_of(recording: Recording) -> str:
    """The whole page."""
    captured, programs = graphs_of(recording)
    sources = annotated(recording, captured, programs)
    files = sources.files()

    def link(place: object) -> str:
        """The line's id, if the page has it."""
        if not isinstance(place, SourceLocation):
            return ""
        found = sources.id_of(place)
        return found if sources.is_shown(found) else ""

    environment = _environment()
    environment.globals.update(link=link, css=_text("page.css"), script=_text("page.js"))
    return environment.get_template("page.html").render(
        title=recording.title, failure=recording.failure, when=time.strftime("%Y-%m-%d %H:%M"), torch=VERSION,
        seconds=recording.end - recording.start, dropped=recording.dropped, summary=_summary(recording, captured),
        functions=bounded(_functions(recording, captured)), stages=_stages(recording.of("stage")), files=files,
        captured=_drawn(captured), programs=programs, node_room=Room(MOST_NODES), code_room=Room(MOST_CODE),
        guards=bounded(recording.of("guard")), timeline=bounded(_timeline(recording)),
        flames=charts.flames(recording.of("stage"), recording.start), memory=_memory(captured), measured=bounded(_measured(recording, captured)),
        curve_size=(charts.WIDTH, charts.HEIGHT), roofline=charts.roofline(programs),
        traffic=bounded(_traffic(programs), 60), costs=bounded(_costs(recording, programs)),
        notes=bounded(_notes(recording)),
    )  # fmt: skip


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(
        bytes=bytes_text, count=count_text, seconds=seconds_text, first_line=first_line, short_place=short_place,
        code_lines=code_lines,
    )
    return environment


@functools.cache
def _text(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")


class Room:
    """What is left of a bound, as the template takes from it."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, wanted: int) -> bool:
        """Whether there is room for so much; then it is taken."""
        if wanted > self.left:
            return False
        self.left -= wanted
        return True


def _summary(recording: Recording, captured: Sequence[Captured]) -> list[tuple[str, int, str]]:
    """(what, how many, the section that has them)"""
    kinds = Counter(event.kind for event in recording.events)
    caches = Counter(str(event.fields.get("what")) for event in recording.of("cache"))
    functions = {event.fields["name"] for event in recording.of("capture")}
    return [
        ("functions compiled", len(functions), "functions"),
        ("graphs", len(captured), "graphs"),
        ("graph breaks", kinds["graph_break"], "source"),
        ("recompiles", kinds["recompile"], "timeline"),
        ("calls that ran eagerly", kinds["fallback"] + kinds["recompile_limit"] + kinds["assumption"], "timeline"),
        ("guards", kinds["guard"], "guards"),
        ("cache hits", caches["hit"], "time"),
        ("built anew", caches["miss"], "time"),
    ]


def _functions(recording: Recording, captured: Sequence[Captured]) -> list[dict[str, Any]]:
    """A row a function: how often it was compiled, what broke, how long it took."""
    found: dict[str, dict[str, Any]] = {}
    for event in recording.of("capture"):
        row = found.setdefault(str(event.fields["name"]), {"where": event.fields.get("where"), "captures": 0})
        row["captures"] += 1
    for name, row in found.items():
        own = [event for event in recording.events if event.fields.get("name") == name]
        kinds = Counter(event.kind for event in own)
        seconds = [
            float(str(event.fields["seconds"]))
            for event in recording.of("stage")
            if event.fields["name"] == "compile" and event.fields.get("of_name") == name
        ]
        row.update(
            name=name, kinds=kinds, seconds=sum(seconds), graphs=[one for one in captured if one.name == name],
            fallbacks=kinds["fallback"] + kinds["recompile_limit"] + kinds["assumption"],
        )  # fmt: skip
    return sorted(found.values(), key=lambda row: -row["seconds"])


def _stages(events: Sequence[Event]) -> list[tuple[str, int, timing.StageTime]]:
    """(name, how deep, times) in the order of a tree."""
    times = timing.stage_times(events)
    return [(path.rpartition("/")[2], path.count("/"), times[path]) for path in sorted(times)]


def _drawn(captured: Sequence[Captured]) -> list[tuple[Captured, drawing.Drawing | None]]:
    return [(one, drawing.drawn(one.rows)) for one in captured]


def _timeline(recording: Recording) -> list[tuple[float, Event, str]]:
    """(seconds since the start, event, its name as a word)"""
    words = {
        "capture": "capture", "recompile": "recompile", "graph_break": "break", "recompile_limit": "limit", "fallback": "eager",
        "assumption": "eager", "data_dependent_retry": "retry", "numbers_retry": "retry",
    }  # fmt: skip
    return [(event.time - recording.start, event, words[event.kind]) for event in recording.of(*words)]


def _memory(captured: Sequence[Captured]) -> list[dict[str, Any]]:
    """A row a captured graph: bytes over the steps of its programs, and the peaks beside eager's."""
    rows: list[tuple[int, dict[str, Any]]] = []
    for graph in captured:
        own = [p for p in graph.programs if p.steps]
        parts = _planned(own)
        backward = any(p.name.endswith("_backward") for p in own)
        eager = graph.eager if backward else graph.eager_forward
        if most := max([*parts, *eager], default=0):
            unknown = any(step.alive is None for p in own for step in p.steps)
            ours, beside = charts.memory_curve(parts, most), charts.memory_curve(eager, most)
            rows.append((most, {"graph": graph, "ours": ours, "eager": beside, "backward": backward, "unknown": unknown}))
    return [row for _, row in sorted(rows, key=lambda one: -one[0])]


def _planned(programs: Sequence[Program]) -> list[int]:
    """Bytes at each step. What the forward saves lives on until the backward has read it, what it returns until the end."""
    parts: list[int] = []
    results = 0
    for program in programs:
        saved = program.steps[0].waiting or 0
        parts += [max(0, results - saved) + (step.alive or 0) + (step.waiting or 0) for step in program.steps]
        results += program.results or 0
    return parts


def _measured(recording: Recording, captured: Sequence[Captured]) -> list[dict[str, Any]]:
    """A row a call that was measured: its bytes by device, and the planned peak of each graph of which it ran something."""
    rows = []
    for call in recording.memory:
        planned = []
        for graph in captured:
            ran = [p for p in graph.programs if any(step.range in call.ranges for step in p.steps)]
            planned += [(graph, max(_planned(ran)))] if ran else []
        rows.append({"call": call, "planned": planned})
    return rows


def _traffic(programs: Sequence[Program]) -> list[tuple[Program, Any]]:
    """Steps by the bytes that they move, the largest first."""
    known = [(program, step) for program in programs for step in program.steps if step.moved]
    return sorted(known, key=lambda one: -one[1].moved)


def _costs(recording: Recording, programs: Sequence[Program]) -> list[dict[str, Any]]:
    """Formulas of each program, and what the symbols in them are."""
    sources: dict[object, dict[str, str]] = {}
    for event in recording.of("dynamic"):
        text = f"{event.fields['source']}, {event.fields['why']}"
        sources.setdefault(event.fields["of"], {})[str(event.fields["symbol"])] = text
    rows = []
    for program in (one for one in programs if one.steps):
        known = sources.get(program.captured.number, {}) if program.captured is not None else {}
        symbols = sorted({str(s) for e in program.formulas.values() for s in e.free})
        formulas = {name: _short(f"{e.as_int():,}" if e.as_int() is not None else str(e)) for name, e in program.formulas.items()}
        rows.append({"program": program, "formulas": formulas, "symbols": [(s, known.get(s, "a size")) for s in symbols]})
    return rows


def _short(text: str) -> str:
    return text if len(text) <= MOST_FORMULA else f"{text[:MOST_FORMULA]}... ({len(text):,} characters)"


def _notes(recording: Recording) -> list[tuple[str, int]]:
    """Operators that are calls of PyTorch's, with how often, and what else is said of no line."""
    calls = Counter(f"{event.fields['name']}: {event.fields['why']}" for event in recording.of("extern"))
    skips = Counter(f"{event.fields['name']} is not captured: {event.fields['why']}" for event in recording.of("skip"))
    return [*calls.most_common(), *skips.most_common()]
