"""One entry as data.

In:     an entry of a dispatcher, and what is called.
Out:    `Draft(root, entry, ...).data`: JSON; `made(json, ...)`: the entry in another process, for its own objects.
Holds:  every object that the entry refers to was found and has the content that was written down before the entry is
        made; its own check then runs on each call. Guards are read from their tables when they are first needed.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import time
import types
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from pliant import gc_pause, peer
from pliant.cache.lines import Lines, written
from pliant.cpython import order_in_table
from pliant.debug import events
from pliant.dispatch import markers
from pliant.dispatch.dispatcher import Dispatcher, eager_after
from pliant.dispatch.dynamic_policy import marks_of
from pliant.dispatch.entry import Answer, Entry, EntryForm
from pliant.dispatch.roots import Root
from pliant.entries import breaks, constants
from pliant.entries.codes import places_of
from pliant.entries.constants import Json
from pliant.entries.content import NotKept, digest_of
from pliant.entries.environment import compiler_of
from pliant.entries.facts import FactReader, FactWriter
from pliant.entries.objects import NotFound, found_as, version_of
from pliant.entries.operators import content_of, overload_of
from pliant.entries.programs import ProgramReader, ProgramWriter, operator_named, parts_of
from pliant.entries.taken import Taken
from pliant.guards.codegen import READ_ERRORS, Step
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
from pliant.guards.watch import Watch
from pliant.interruptions import pass_on
from pliant.records import dataclass
from pliant.torch_adapter import DisableTorchFunction, OpOverload, without_dispatch_modes
from pliant.wrappers import generated_code

_OWN = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# Functions of which no guard tells the answer, and that answer otherwise in another process; modules of such functions, and
# of classes whose objects ask settings of the process.
_PROCESS_BOUND = frozenset(
    map(id, (hash, id, os.getpid, os.getppid, os.cpu_count, os.getcwd, os.uname, time.time, time.perf_counter, time.monotonic))
)
_OF_PROCESSES = frozenset(("decimal", "_decimal", "importlib.metadata", "importlib.util", "linecache", "locale", "platform"))
_ADDRESS = rb"\b0x[0-9a-f]{8,}"


class Draft:
    """An entry that is to be kept: what the call must have looked at before the program goes on. NotKept.

    Of the program's objects it has plain data alone: they are the entry's, which may be gone when it is to be written."""

    def __init__(self, root: Root, entry: Entry, compiler: str) -> None:
        found = entry.form
        if found is None or entry.later:
            raise NotKept("runs-later", "it returns what runs later, as a generator does")
        if found.process_bound:
            raise NotKept("process-bound", found.process_bound)
        self._root, self._entry, self._compiler = weakref.ref(root), weakref.ref(entry), compiler
        watched, watched_sources = _watched(found)
        steps = entry.checks.steps
        guards = [*entry.guards, *watched, *(s.guard for s in steps if s.guard is not None)]
        sources = [*watched_sources, *(s.source for s in steps if s.source is not None)]
        self.programs = ProgramWriter()
        self.programs.code |= generated_code.code_behind(getattr(entry.run, "__wrapped__", entry.run))
        for operator in _own_operators(entry):
            self.programs.note(operator)
        self._graph = self.programs.written(found.values[found.graph]) if found.graph else None
        self.programs.fill()
        self._answers = [_answer_as_data(one) for one in found.answers]
        values = [*_values(found).values(), *(function for function, *_ in self._answers)]
        self._taken = Taken(root.called, {id(g): g for g in guards}.values(), sources, values)

    @functools.cached_property
    def data(self) -> Json:
        """The entry as JSON, in which the programs may still grow. NotKept."""
        root, entry = self._root(), self._entry()
        if root is None or entry is None or entry.form is None:
            raise NotKept("dropped", "the program let go of it before it was written down")
        try:
            return self._data(root.called, entry, entry.form)
        finally:
            entry.form = None
            del self._taken, self._answers

    def _data(self, root: Any, entry: Entry, form: EntryForm) -> Json:
        facts = FactWriter(root, entry.guards, self._taken)
        names = {name: facts.namer.reference(value) for name, value in _values(form).items()}
        guards: dict[int, int] = {}
        for guard in entry.guards:
            gc_pause.await_end()
            guards[id(guard)] = facts.guard(guard)
        steps = [[s.text, _place(s.guard, guards, facts), None if s.source is None else facts.source(s.source)]
                 for s in entry.checks.steps]  # fmt: skip
        watched, sources = _watched(form)
        section = [_place(guard, guards, facts) for guard in watched], list(map(facts.source, sources))
        behind = {name: breaks.written(one, facts) for name, one in _behind(form).items()}
        result = {
            "name": entry.name,
            "compiler": self._compiler,
            "text": entry.text,
            "names": names,
            "lock": None if form.lock is None else facts.namer.reference(form.lock),
            "own operators": self.programs.operators,
            "behind": behind,
            "assumes": list(entry.assumptions),
            "orders": [[size, constants.spelled(items)] for size, items in form.orders],
            "answers": [[facts.namer.reference(function), *said] for function, *said in self._answers],
            "break": None if form.told is None else breaks.told_as_data(form.told),
            "graph": self._graph,
            "made": [form.graph, form.eager],
            "operators": None if self._graph is None else _count(entry),
            "section": None if form.section is None else section,
            "tensors": {name: list(places) for name, places in form.tensors.items()},
            "marks": [[facts.source(source), _marks_as_data(marks)] for source, marks in form.marks],
            "steps": steps,
            "guards": facts.guards,
            "sources": facts.sources,
            "objects": facts.namer.table,
            "packages": facts.namer.packages,
        }
        _check_code(root, form, facts.namer.objects)
        return result

    def text(self) -> bytes:
        """The entry as it is on disk. NotKept."""
        without_addresses(written({**self.data, "code": {}}))
        return written({**self.data, "code": generated_code.as_data(self.programs.code)})


def _values(form: EntryForm) -> dict[str, Any]:
    """What the names of the text stand for, but for what an entry makes itself."""
    made = {form.graph, form.eager, *_behind(form)}
    return {name: value for name, value in form.values.items() if name not in made}


def _behind(form: EntryForm) -> dict[str, Any]:
    """What is made of the program's code."""
    return {name: value for name, value in form.values.items() if breaks.is_place(value)} | dict(form.behind)


def _watched(form: EntryForm) -> tuple[Sequence[Guard], Sequence[Source]]:
    return ([], []) if form.section is None else form.section.watched()


def _count(entry: Entry) -> int:
    """How many operators the graph has."""
    nodes = entry.graph.module.graph.nodes if entry.graph is not None else ()
    return sum(node.op not in ("placeholder", "output", "get_attr") for node in nodes)


def _marks_as_data(marks: Mapping[int, Any]) -> Json:
    return sorted([dim, mark.how, mark.lo, mark.hi] for dim, mark in marks.items())


def _answer_as_data(answer: Answer) -> list[Any]:
    """What is asked, and all else as JSON: the function, or what stands in its place and keeps its answers. NotKept."""
    held = found_as(answer.function)
    asked = held if getattr(held, "__wrapped__", None) is answer.function else answer.function
    found = [constants.spelled(one) for one in (answer.args, dict(answer.kwargs), answer.result)]
    if found[0] is None or found[1] is None or found[2] is None and answer.result is not None:
        raise NotKept("process-bound", f"{answer.function.__qualname__} is marked constant, and what it says has no form")
    return [asked, *found]


def _place(guard: Guard | None, guards: dict[int, int], facts: FactWriter) -> int | None:
    if guard is None:
        return None
    if id(guard) not in guards:  # one that the writer made of another
        guards[id(guard)] = facts.guard(guard)
    return guards[id(guard)]


def _own_operators(entry: Entry) -> Iterator[OpOverload[..., Any]]:
    """The program's own operators that are called. NotKept for functions that are called unread."""
    if entry.graph is None:
        return
    modules = [one for one in entry.graph.module.modules() if isinstance(one, torch.fx.GraphModule)]
    for node in itertools.chain.from_iterable(one.graph.nodes for one in modules):
        if (own := overload_of(node.target)) is not None:
            yield own
        if node.op == "call_function" and markers.mark_of(node.target) is markers.Mark.IN_GRAPH:
            raise NotKept("in-graph", f"{node.target.__qualname__} is in the graph, unread")


# ---- code
def _check_code(root: Any, found: EntryForm, objects: Iterable[Any]) -> None:
    """All code that capture went through is part of what was named, and none of it is bound to this process."""
    known: set[int] = set()
    for obj in (root, *objects):
        if id(obj) in _PROCESS_BOUND or isinstance(obj, _DEFINED) and obj.__module__ in _OF_PROCESSES:
            raise NotKept("process-bound", f"{obj.__name__} answers otherwise in another process")
        known.update(id(code) for code, _ in places_of(obj))
    for key, code in found.codes.items():
        if key not in known and not code.co_filename.startswith(_OWN):
            raise NotKept("no-name", f"the code of {code.co_qualname}")


_DEFINED = (types.FunctionType, types.BuiltinFunctionType, type)


def without_addresses(text: bytes) -> None:
    """No text of the program's in it tells where an object was. NotKept."""
    if b"0x" in text and (found := re.search(_ADDRESS, text)) is not None:
        raise NotKept("process-bound", f"the text {found[0].decode()}, an address by its looks")


# ---- in another process
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
        return list(map(_marks_as_data, said)) == [marks for _, marks in self.marks]


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
    here = compiler_of(dispatcher.compilation)
    if here and data["compiler"] != here:
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
    values |= {name: breaks.made(row, reader, dispatcher) for name, row in data["behind"].items()}
    graph, eager = data["made"]
    if eager:
        values[eager] = eager_after(dispatcher)
    section = None if data["section"] is None else _Section(reader, *data["section"])
    with generated_code.known(data["code"]):
        if graph:
            values[graph] = programs.made(data["graph"])
        run = define_entry(data["text"], values, data["name"], section, data["tensors"])
    if data["lock"] is not None:
        run = holding(finder.find(data["lock"]), run)
    checks = Replay(lambda: _steps(reader, data["steps"]), values)
    guards = [reader.guard(place) for place in range(len(data["guards"]))] if events.wants("guard") else []
    told = None if data["break"] is None else breaks.told_of(data["break"])
    end = "return" if told is None else told["reason"]
    entry = Entry(
        run, data["name"], data["text"], checks, guards, end, [], None, operators=data["operators"], told=told,
        assumed=data["assumes"],
    )  # fmt: skip
    return Found(entry, [(reader.source(place), marks) for place, marks in data["marks"]])


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

    def __init__(self, reader: FactReader, guards: list[int], sources: list[int]) -> None:
        self._reader, self._guards, self._sources = reader, guards, sources

    def watched(self) -> tuple[Sequence[Guard], Sequence[Source]]:
        return list(map(self._reader.guard, self._guards)), list(map(self._reader.source, self._sources))

    def first_watch(self) -> Watch | None:
        return None
