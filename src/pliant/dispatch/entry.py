"""What serves a call: compiled code behind its guards, of whichever process.

Out:    `Entry.run(args, kwargs)`: the result, or MISS if a guard does not hold (nothing has happened then).
Reads on: `dispatch/entry_writer.py`, which makes one of a trace.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from pliant.errors import AssumptionError
from pliant.guards.generated import EntryFunction
from pliant.guards.kinds import Guard
from pliant.guards.replay import Probe, Replay
from pliant.guards.sources import Source
from pliant.guards.steps import MISS, Step
from pliant.records import dataclass
from pliant.torch_adapter import OPERATORS
from pliant.wrappers.wrapper import WROTE

if TYPE_CHECKING:
    from pliant.bytecode.resume import ResumePoint
    from pliant.graph.contracts import CapturedGraph
    from pliant.guards.held_section import HeldSection

GraphCallable = Callable[[list[Any]], Sequence[Any]]
GraphCompiler = Callable[["CapturedGraph"], GraphCallable]
# What is symbolic in a frame at a break: stack slot or local -> rank and symbolic dimensions, or the type of a number.
Symbolic = dict[str, tuple[int, frozenset[int]] | type | Source]
ResumeMaker = Callable[["ResumePoint", dict[str, Any], str, Symbolic], Callable[..., Any]]


@dataclass(frozen=True, slots=True, eq=False)
class StepForm:
    """Code that runs the operation at which a graph broke: as a function of these globals, or alone."""

    point: ResumePoint
    globals: dict[str, Any] | None


@dataclass(frozen=True, slots=True, eq=False)
class ResumesForm:
    """The resume functions of these points, or the only one's itself, of a frame with these globals and this name.
    `known`: what is symbolic there. `in_tail`: a resume function runs the entry, and goes on with what the entry returns."""

    points: tuple[ResumePoint, ...]
    globals: dict[str, Any]
    name: str
    known: Symbolic
    alone: bool
    in_tail: bool


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What a function that is marked constant said while the program was captured: another process asks it again."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    result: Any


@dataclass(frozen=True, slots=True, eq=False)
class EntryForm:
    """What an entry's function was made of (`guards.generated.define_entry`), and which code of the program capture
    went through. `steps`: of the check but for the section's; `process_bound`: what capture relied on that no guard tells and another process may have otherwise;
    `marks`: what users said about the sizes of each tensor, which no guard tells either; `behind`: what names of the text
    stand for that an entry makes itself at a graph break, `told`: what is told of that break; `graph`, `eager`: the names of
    what runs the graph and of what serves the calls that it cannot, "" if there is none; `answers` of functions that are marked
    constant; `orders` in which sets that the program made gave their items, and how many slots their tables had; `lock`: what the
    program holds while it runs."""

    text: str
    values: Mapping[str, Any]
    section: HeldSection | None
    steps: Sequence[Step]
    tensors: Mapping[str, Sequence[int]]
    codes: Mapping[int, types.CodeType]
    process_bound: str = ""
    marks: Sequence[tuple[Source, Mapping[int, Any]]] = ()
    behind: Mapping[str, StepForm | ResumesForm] = field(default_factory=dict)
    told: Mapping[str, Any] | None = None
    graph: str = ""
    eager: str = ""
    answers: Sequence[Answer] = ()
    orders: Sequence[tuple[int, tuple[Any, ...]]] = ()
    lock: Any = None


@dataclass(slots=True, eq=False, weakref_slot=True)
class Entry:
    """Compiled code of one capture. `checks` are the guard statements (for explanations), `text` the whole function.

    A call is first asked what earlier ones failed on (`probes`): whatever the entry has of guards, most calls that it
    does not serve are told so by one of them.
    """

    run: EntryFunction
    name: str
    text: str
    checks: Replay
    guards: list[Guard]
    end: str  # "return", or the kind of the break
    later: list[str]  # generators and their like among what it returns
    graph: CapturedGraph | None
    form: EntryForm | None = None  # what `run` was made of, where another process could make it so; until it is written down
    operators: int | None = None  # how many its graph has, of an entry that another process made
    told: Mapping[str, Any] | None = None  # of the break it ends in, of such an entry
    assumed: Sequence[str] = ()  # of numbers that data gives, by the code of such an entry
    behind: Any = None  # a `behind.Behind`: what compiles its graph behind its calls
    unkept: bool = False  # whether it is to be kept on disk by a call that it serves
    probes: tuple[Probe, ...] = ()
    _misses: int = 0
    _next: int = 2  # at which miss the failing guard is looked for: ever more rarely, since that costs a whole check

    def attempt(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """`run`, or MISS at once where a guard fails that failed before."""
        for probe in self.probes:
            if probe(args, kwargs):
                return MISS
        result = self.run(args, kwargs)
        if result is MISS:
            self.note_miss(args, kwargs)
        return result

    def first_run(self, serves: Callable[[], None], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """`run`, and word that it serves the call: where there is a break before what follows it, which may never end."""
        if self.end == "return":
            result = self.run(args, kwargs)
            if result is not MISS:
                serves()
            return result
        run: Any = self.run
        (prepare,) = run.__defaults__

        def prepared(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
            pending = prepare(args, kwargs)
            if pending is not MISS:
                serves()
            return pending

        return run(args, kwargs, prepared)

    def use(self, run: GraphCallable) -> None:
        """Have calls from now on run the graph so: what runs it now means the same."""
        assert self.form is not None
        function: Any = getattr(self.run, "__wrapped__", self.run)
        values: Any = self.form.values
        function.__globals__[self.form.graph] = values[self.form.graph] = run

    @property
    def assumptions(self) -> Sequence[str]:
        """What its code takes for granted of numbers that data gives, and the program does not state."""
        if self.graph is None:
            return self.assumed
        return [str(one) for one in self.graph.shape_env.runtime_asserts if not one.stated]

    @property
    def fast(self) -> EntryFunction:
        """`attempt`, by the shortest way."""
        return self.attempt if self.probes else self.run

    def note_miss(self, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self._misses += 1
        if self._misses >= self._next:
            self._next = 2 * self._misses
            found = self.checks.first_failing(args, kwargs)
            if found is not None:
                probe = self.checks.probe(found[0])
                self.probes = (probe, *(p for p in self.probes if p is not probe))[:_PROBES]


@dataclass(frozen=True, slots=True)
class CallShape:
    """How many positional arguments and which keywords a call has. `given_up`: the positional ones come in a list that
    is to be emptied, since nobody else needs them (behind a graph break)."""

    count: int
    keywords: tuple[str, ...]
    given_up: bool = False

    @staticmethod
    def of(args: Sequence[Any], kwargs: dict[str, Any]) -> CallShape:
        return CallShape(len(args), tuple(kwargs), type(args) is list)

    def failing_test(self) -> str:
        keywords = f"tuple(kwargs) != {self.keywords!r}" if self.keywords else "kwargs"
        return f"len(args) != {self.count} or {keywords}"


_PROBES = 2


def failure(error: BaseException) -> tuple[str, str]:
    """What is told of an error of the graph, and what was assumed, if it is that which does not hold."""
    return str(error), error.assumed if isinstance(error, AssumptionError) else ""


def is_of_operator(error: BaseException) -> bool:
    """Whether an operator of the graph failed, or what was assumed of its data, when nothing was written yet.

    A backend of the user's may have errors of its own; a custom operator may be the user's Python. `checkpoint` ends what
    it runs again by an error, raised where values are saved.
    """
    if getattr(error, WROTE, False):
        return False
    frame, last, called = error.__traceback__, "", False
    while frame is not None:
        last = frame.tb_frame.f_globals.get("__name__", "")
        called = called or last == OPERATORS or frame.tb_frame.f_code.co_filename.startswith("<eval_with_key>")
        frame = frame.tb_next
    return (called or last.partition(".")[0] in ("", "pliant", "torch")) and last != "torch.utils.checkpoint"


def state_of(generator: Any) -> tuple[Callable[[Any], None], Any]:
    """How to set the state of a random generator again, and the state."""
    if hasattr(generator, "getstate"):
        return generator.setstate, generator.getstate()
    if hasattr(generator, "get_state"):
        return generator.set_state, generator.get_state()
    bits = generator.bit_generator
    return functools.partial(setattr, bits, "state"), bits.state
