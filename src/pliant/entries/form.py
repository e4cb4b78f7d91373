"""One entry as data, in another process.

In:     the JSON that `draft.Draft` wrote.
Out:    `made(json, ...)`: the entry, for this process' own objects.
Holds:  every object that the entry refers to was found and has the content that was written down before the entry is
        made; its own check then runs on each call. Guards are read from their tables when they are first needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pliant import peer
from pliant.cache.lines import Lines
from pliant.cpython import order_in_table
from pliant.debug import events
from pliant.dispatch.dim_marks import marks_of
from pliant.dispatch.dispatcher import Dispatcher, eager_after
from pliant.dispatch.entry import Entry
from pliant.entries import constants
from pliant.entries.constants import Json
from pliant.entries.content import NotKept, digest_of
from pliant.entries.environment import compiler_of, takes_any_compilers
from pliant.entries.facts import FactReader
from pliant.entries.objects import NotFound, version_of
from pliant.entries.programs import ProgramReader, operator_named, parts_of
from pliant.guards.generated import define_entry, holding
from pliant.guards.kinds import Guard
from pliant.guards.replay import Replay
from pliant.guards.sources import (
    ArgSource,
    DictAttributeSource,
    HeldSource,
    KwargSource,
    ModuleMemberSource,
    Source,
    value_of,
)
from pliant.guards.steps import READ_ERRORS, Step
from pliant.interruptions import pass_on
from pliant.records import dataclass
from pliant.torch_adapter import DisableTorchFunction, without_dispatch_modes
from pliant.wrappers import generated_code

if TYPE_CHECKING:
    from pliant.guards.held_state import FirstLook


def marks_as_data(marks: Mapping[int, Any]) -> Json:
    return sorted([dim, mark.how, mark.lo, mark.hi] for dim, mark in marks.items())


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """An entry made again, and what users had said about sizes where it was made. Of no size anything: no marks."""

    entry: Entry
    marks: list[tuple[Source, Json]]

    def is_for(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Whether as much is said about the sizes of this call. No guard asks: a mark made later is none of an entry's. Where
        the guards fail the entry says so itself: what may run the program's code on the way there is not read."""
        if not all(_is_plainly_read(source) for source, _ in self.marks):
            if self.entry.checks.first_failing(args, dict(kwargs)) is not None:
                return True
        try:
            said = [marks_of(value_of(source, args, kwargs)) for source, _ in self.marks]
        except READ_ERRORS:
            return False
        return list(map(marks_as_data, said)) == [marks for _, marks in self.marks]


def _is_plainly_read(source: Source | None) -> bool:
    """Whether reading it runs nothing of the program's, whatever lies there."""
    while isinstance(source, _PLAINLY_READ):
        source = getattr(source, "parent", None)
    return source is None


_PLAINLY_READ = (ArgSource, KwargSource, HeldSource, DictAttributeSource, ModuleMemberSource)


def made(
    data: Lines,
    programs: ProgramReader,
    dispatcher: Dispatcher,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> Found:
    """The entry for this process' objects. NotFound. Where there is no compiler, kernels of any will do."""
    if data["break"] is not None and peer.breaks_are_errors():
        raise NotFound("it has a graph break, which is an error here")
    compilation = dispatcher.compilation
    if data["compiler"] != compiler_of(compilation) and not takes_any_compilers(compilation):
        raise NotFound("its kernels are another compiler's")
    for package, version in data["packages"].items():
        if version_of(package) != version:
            raise NotFound(f"{package} is another version")
    for name, expected in data["own operators"].items():
        _check_operator(name, expected)
    reader = FactReader(data, dispatcher.root.called)
    finder = reader.finder
    finder.args, finder.kwargs = args, kwargs
    for place in range(len(data["objects"])):
        finder.find(place)
    finder.args, finder.kwargs = (), {}
    for size, items in data["orders"]:
        _check_order(size, constants.read(items))
    for place, *said in data["answers"]:
        _ask_again(finder.find(place), *said)
    values = {name: finder.find(place) for name, place in data["names"].items()}
    values |= _behind(data["behind"], reader, dispatcher)
    graph, eager = data["made"]
    if eager:
        values[eager] = eager_after(dispatcher)
    section = None if data["section"] is None else _Section(reader, data, *data["section"])
    with generated_code.known(data["code"]):
        programs.generators = [finder.find(place) for place in data["generators"]]
        if graph:
            values[graph] = programs.made(data["graph"])
        run = define_entry(data["text"], values, data["name"], section, data["tensors"])
    if data["lock"] is not None:
        run = holding(finder.find(data["lock"]), run)
    checks = Replay(lambda: _steps(reader, data["steps"]), values)
    guards = [reader.guard(place) for place in range(len(data["guards"]))] if events.wants("guard") else []
    told = _told(data["break"])
    end = "return" if told is None else told["reason"]
    entry = Entry(
        run, data["name"], data["text"], checks, guards, end, [], None, operators=data["operators"], told=told,
        assumed=data["assumes"],
    )  # fmt: skip
    return Found(entry, [(reader.source(place), marks) for place, marks in data["marks"]])


def _behind(rows: Mapping[str, Json], reader: FactReader, dispatcher: Dispatcher) -> dict[str, Any]:
    """What follows the graph break. Loaded where there is one."""
    if not rows:
        return {}
    from pliant.entries import breaks

    return {name: breaks.made(row, reader, dispatcher) for name, row in rows.items()}


def _told(row: Json) -> dict[str, Any] | None:
    """What is told of the break."""
    if row is None:
        return None
    from pliant.entries import breaks

    return breaks.told_of(row)


def _ask_again(function: Any, args: Json, kwargs: Json, expected: Json) -> None:
    """NotFound unless a function that is marked constant says here what it said there; capture would call it, too."""
    try:
        with DisableTorchFunction(), without_dispatch_modes():
            if constants.spelled(function(*constants.read(args), **constants.read(kwargs))) == expected:
                return
    except Exception as error:
        pass_on(error)
    raise NotFound(f"{getattr(function, '__qualname__', function)} says something else")


def _check_order(size: int, items: tuple[Any, ...]) -> None:
    """NotFound unless a set has its items in this order here, whatever the order in which they came."""
    if order_in_table(items, size) != list(items):
        raise NotFound("a set of texts has another order here")


def _check_operator(name: str, expected: str) -> None:
    """NotFound unless this process has such an operator."""
    from pliant.entries.operators import content_of

    try:
        if digest_of(content_of(operator_named(*parts_of(name)))) == expected:
            return
    except (NotKept, AttributeError):  # there is none
        pass
    raise NotFound(f"{name} is another")


def _steps(reader: FactReader, rows: Iterable[Json]) -> list[Step]:
    return [
        Step(text, None if guard is None else reader.guard(guard), None if source is None else reader.source(source))
        for text, guard, source in rows
    ]


class _Section:
    """What the entry's section watches, read when it is first watched."""

    def __init__(self, reader: FactReader, data: Lines, digest: str, guards: list[int], sources: list[int]) -> None:
        self._reader, self._guards, self._sources = reader, guards, sources
        self._text = generated_code.Text(digest, lambda: data["held text"])

    @property
    def values(self) -> Mapping[str, Any]:
        return {}

    def text(self) -> generated_code.Text:
        return self._text

    def watched(self) -> tuple[Sequence[Guard], Sequence[Source]]:
        return list(map(self._reader.guard, self._guards)), list(map(self._reader.source, self._sources))

    def first_look(self) -> FirstLook | None:
        return None
