"""What follows a graph break, as data: the code of the operation that broke, and the functions that go on behind it.

In:     what an entry's text names there (`StepForm`, `ResumesForm`, `Place`).
Out:    `written(form, facts)`: JSON; `made(json, reader, dispatcher)`: the same from this process' own code.
Holds:  the program's code is named, never written down: what runs behind a break is made of the code that is there, whose
        content is that of the code that broke, with its own lines.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pliant.dispatch.dispatcher import Dispatcher
from pliant.dispatch.entry import ResumesForm, StepForm, Symbolic
from pliant.dispatch.own_frames import tail_of
from pliant.entries.constants import Json
from pliant.entries.facts import FactReader
from pliant.guards.sources import Source
from pliant.source import SourceLocation

if TYPE_CHECKING:
    from pliant.bytecode.resume import ResumePoint
    from pliant.capture.iterators.suspended import Place
    from pliant.entries.fact_writer import FactWriter

_NUMBERS: dict[str, type] = {"int": int, "float": float, "str": str}


def is_place(value: Any) -> bool:
    """Whether it is a place at which a generator of the program stands: made by capture, so its module is loaded."""
    suspended = sys.modules.get("pliant.capture.iterators.suspended")
    return suspended is not None and type(value) is suspended.Place


def written(form: StepForm | ResumesForm | Place, facts: FactWriter) -> Json:
    """What another process makes it from. NotKept."""
    if isinstance(form, StepForm):
        space = None if form.globals is None else facts.namer.reference(form.globals)
        return ["step", _point(form.point, facts), space]
    if not isinstance(form, ResumesForm):
        return ["place", _point(form.point, facts), facts.namer.reference(form.globals), list(form.names)]
    known = [[slot, *_known(what, facts)] for slot, what in sorted(form.known.items())]
    points = [_point(one, facts) for one in form.points]
    return ["resumes", points, facts.namer.reference(form.globals), form.name, known, form.alone, form.in_tail]


def place_of(point: ResumePoint) -> list[Json]:
    """All of it but the code."""
    return [point.offset, list(point.stack), list(point.locals), point.handled, point.entered]


def _point(point: ResumePoint, facts: FactWriter) -> Json:
    return [facts.namer.code(point.code), *place_of(point)]


def _known(what: tuple[int, frozenset[int]] | type | Source, facts: FactWriter) -> list[Json]:
    if isinstance(what, Source):
        return ["list", facts.source(what)]
    return ["number", what.__name__] if isinstance(what, type) else ["sizes", what[0], sorted(what[1])]


def told_as_data(told: Mapping[str, Any]) -> Json:
    where = told["where"]
    return [told["reason"], told["why"], told["do"], None if where is None else [where.file, where.line, where.function]]


def told_of(json: Json) -> dict[str, Any]:
    reason, why, do, where = json
    return {"reason": reason, "why": why, "do": do, "where": None if where is None else SourceLocation(*where)}


# ---- in another process: what makes code is loaded where there is a break
def made(json: Json, reader: FactReader, dispatcher: Dispatcher) -> Any:
    """What the name stands for."""
    word, *rest = json
    return _MADE[word](reader, dispatcher, *rest)


def _read_point(json: Json, reader: FactReader) -> ResumePoint:
    from pliant.bytecode.resume import ResumePoint

    code, offset, stack, names, handled, entered = json
    return ResumePoint(reader.finder.code(*code), offset, tuple(stack), tuple(names), handled, entered)


def _step(reader: FactReader, dispatcher: Dispatcher, point: Json, space: int | None) -> Any:
    from pliant.bytecode.steps import step_code

    code = step_code(_read_point(point, reader)).code
    return code if space is None else types.FunctionType(code, reader.finder.find(space))


def _place(reader: FactReader, dispatcher: Dispatcher, point: Json, space: int, names: list[str]) -> Any:
    from pliant.capture.iterators.suspended import Place

    return Place(_read_point(point, reader), reader.finder.find(space), (names[0], names[1]))


def _resumes(
    reader: FactReader,
    dispatcher: Dispatcher,
    points: list[Json],
    space: int,
    name: str,
    known: list[Json],
    alone: bool,
    in_tail: bool,
) -> Any:
    from pliant.dispatch.resume_function import note_symbolic

    compilation, symbolic = dispatcher.compilation, _read_known(known, reader)
    found = []
    for point in (_read_point(one, reader) for one in points):
        function = compilation.make_resume(compilation, point, reader.finder.find(space), name)
        note_symbolic(function, point, symbolic, dispatcher.policy)
        found.append(tail_of(function) if in_tail else function)
    return found[0] if alone else tuple(found)


def _read_known(rows: list[Json], reader: FactReader) -> Symbolic:
    return {slot: _KNOWN[word](reader, *rest) for slot, word, *rest in rows}


_KNOWN: dict[str, Callable[..., Any]] = {
    "list": lambda reader, place: reader.source(place),
    "number": lambda reader, name: _NUMBERS[name],
    "sizes": lambda reader, rank, dims: (rank, frozenset(dims)),
}
_MADE: dict[str, Callable[..., Any]] = {"step": _step, "resumes": _resumes, "place": _place}
