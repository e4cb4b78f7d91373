"""What the record says of lines of the program.

In:     a recording; its graphs and programs.
Out:    `Sources` with a mark for each break, specialization, recompile and fallback, each guard, each call of a graph, and each
        kernel, at the line that it comes from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pliant.debug.events import Event
from pliant.report.graphs import Captured, Program
from pliant.report.recording import Recording
from pliant.report.sources import Mark, Sources
from pliant.source import SourceLocation


def annotated(recording: Recording, captured: Sequence[Captured], programs: Sequence[Program]) -> Sources:
    """The marks of a recording."""
    sources = Sources()
    for event in recording.events:
        for place, mark in _told(event):
            sources.add(place, mark)
    for number, event in enumerate(recording.of("guard")):
        if isinstance(where := event.fields["where"], SourceLocation):
            sources.add(where, Mark("guard", f"guard {number}", f"guard-{number}"))
    for graph in captured:
        for row in graph.rows:
            if row.where is not None:
                sources.add(row.where, Mark("node", row.name, f"{graph.id}-{row.name}"))
    for program in programs:
        for k, step in enumerate(program.steps):
            for place in step.places:
                sources.add(place, Mark("step", f"{program.name} {k}", step.id))
    return sources


def _told(event: Event) -> Iterator[tuple[SourceLocation, Mark]]:
    fields: Mapping[str, Any] = event.fields
    where = fields.get("where")
    if not isinstance(where, SourceLocation):
        return
    match event.kind:
        case "graph_break":
            yield where, Mark("break", fields["why"], "", f"graph break [{fields['reason']}]", fields["do"])
        case "specialize":
            yield where, Mark("specialize", f"{fields['symbol']} is {fields['value']} from here on", "", "specialized")
        case "recompile":
            yield where, Mark("recompile", fields["why"], "timeline", f"{fields['name']} was compiled again")
        case "recompile_limit":
            yield where, Mark("recompile", fields["why"], "timeline", f"{fields['name']} is compiled no more")
        case "fallback" | "assumption" | "skip":
            yield where, Mark("fallback", str(fields["why"]), "timeline", f"{fields['name']} ran eagerly")
        case "is_compiling":
            yield where, Mark("asks", f"is_compiling() is {fields['answer']} here", "", "asks whether it is compiled")
