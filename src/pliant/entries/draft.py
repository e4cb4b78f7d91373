"""One entry written as data, in the process that made it.

In:     an entry of a dispatcher, and what is called.
Out:    `Draft(root, entry, ...).data`: JSON. `form.made` reads it.
Holds:  all code that capture went through belongs to objects with names, and nothing in it is this process' alone; else
        `NotKept`.
"""

from __future__ import annotations

import functools
import itertools
import os
import re
import time
import types
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from pliant import gc_pause
from pliant.cache.lines import spelled, written
from pliant.dispatch import markers
from pliant.dispatch.entry import Answer, Entry, EntryForm
from pliant.dispatch.roots import Root
from pliant.entries import breaks, constants
from pliant.entries.codes import places_of
from pliant.entries.constants import Json
from pliant.entries.content import NotKept
from pliant.entries.fact_writer import FactWriter
from pliant.entries.form import marks_as_data
from pliant.entries.namer import found_as
from pliant.entries.operators import overload_of
from pliant.entries.program_writer import ProgramWriter, address_of, is_ours
from pliant.entries.taken import Taken
from pliant.guards.kinds import Guard
from pliant.guards.sources import Source
from pliant.torch_adapter import OpOverload
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
        steps = found.steps
        guards = [*entry.guards, *watched, *(s.guard for s in steps if s.guard is not None)]
        sources = [*watched_sources, *(s.source for s in steps if s.source is not None)]
        self._generators = [g.expected for g in guards if type(g.expected) is torch.Generator]
        self.programs = ProgramWriter(generators=[*map(address_of, self._generators)])
        self.programs.code |= generated_code.code_behind(getattr(entry.run, "__wrapped__", entry.run))
        for operator in _own_operators(entry):
            self.programs.note(operator)
        self._graph = self.programs.written(found.values[found.graph]) if found.graph else None
        self.programs.fill()
        self._answers = [_answer_as_data(one) for one in found.answers]
        named = [] if found.section is None else found.section.named()
        values = [*_values(found).values(), *named, *self._generators, *(function for function, *_ in self._answers)]
        self._taken = Taken(root.called, {id(g): g for g in guards}.values(), sources, values)

    def named_objects(self) -> tuple[Root | None, Entry | None]:
        """What has all that `data` names, to be held by whoever is about to ask for it."""
        return self._root(), self._entry()

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
            del self._taken, self._answers, self._generators

    def _data(self, root: Any, entry: Entry, form: EntryForm) -> Json:
        facts = FactWriter(root, entry.guards, self._taken)
        gc_pause.await_end()
        checks = entry.checks.steps  # the section's are written now, and what they name is among the form's values
        names = {name: facts.namer.reference(value) for name, value in _values(form).items()}
        guards: dict[int, int] = {}
        for guard in entry.guards:
            gc_pause.await_end()
            guards[id(guard)] = facts.guard(guard)
        steps = [(s.text, _place(s.guard, guards, facts), None if s.source is None else facts.source(s.source))
                 for s in checks]  # fmt: skip
        watched, sources = _watched(form)
        section = [_place(guard, guards, facts) for guard in watched], list(map(facts.source, sources))
        held_text = "" if form.section is None else form.section.text()
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
            "generators": [facts.namer.reference(generator) for generator in self._generators],
            "made": [form.graph, form.eager],
            "operators": None if self._graph is None else _count(entry),
            "section": None if form.section is None else [generated_code.digest_of(held_text), *section],
            "held text": held_text,
            "tensors": {name: list(places) for name, places in form.tensors.items()},
            "marks": [[facts.source(source), marks_as_data(marks)] for source, marks in form.marks],
            "steps": steps,
            "guards": facts.guards,
            "sources": facts.sources,
            "objects": facts.namer.table,
            "packages": facts.namer.packages,
        }
        _check_code(root, form, facts.namer.objects)
        gc_pause.await_end()
        self.programs.code |= generated_code.code_of(held_text) if held_text else {}  # another process needs it at once
        return result

    def text(self) -> bytes:
        """The entry as it is on disk. NotKept."""
        *lines, _ = spelled(self.data)
        for line in lines:
            without_addresses(line)
        return written([*lines, spelled({"code": generated_code.as_data(self.programs.code)})[-1]])


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
        if (own := overload_of(node.target)) is not None and not is_ours(own):
            yield own
        if node.op == "call_function" and markers.mark_of(node.target) is markers.Mark.IN_GRAPH:
            raise NotKept("in-graph", f"{node.target.__qualname__} is in the graph, unread")


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
