"""Entries of one callable: try them, capture on a miss, fall back to eager.

In:     calls `(args, kwargs)`; a root for the tracer; what the eager program does; a `Compilation`.
Out:    the result. `make_callable(dispatcher, like)` is the function a user or a step calls.
Holds:  entries never change, and are tried most recently used first: one whose guards fail has done nothing. A lock that is
        free while the program runs serializes captures; calls during this thread's own run eagerly, as do failed ones (an event).
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, cast

from pliant import background, config
from pliant.debug import events
from pliant.dispatch import second_calls, stance
from pliant.dispatch.dynamic_policy import DynamicPolicy, Served, served
from pliant.dispatch.entry import Entry, GraphCompiler
from pliant.dispatch.kept_later import keeping_call
from pliant.dispatch.roots import CallableRoot, Root, argument_sources, resume_sources
from pliant.errors import PliantWarning, RecompileError
from pliant.gc_pause import GcPause
from pliant.guards import kept_casts
from pliant.guards.generated import EntryFunction
from pliant.guards.kinds import Guard, Kind
from pliant.guards.sources import KwargSource, Source
from pliant.guards.state import observers, tracing
from pliant.guards.steps import MISS
from pliant.records import dataclass
from pliant.source import SourceLocation
from pliant.torch_adapter import Beginning, shielded

if TYPE_CHECKING:
    from pliant.bytecode.resume import ResumePoint
    from pliant.guards.explain import Failure
    from pliant.guards.filtering import GuardFilter

DISPATCHER = "__pliant_dispatcher__"  # in the `__dict__` of a function made by `make_callable`


@dataclass(slots=True)
class Learnt:
    """What the captures of one compilation found out about its backend and its program."""

    wants_numbers: bool = False  # its code holds for the sizes and numbers that it is shown alone
    casts_meet: bool = False  # autocast's casts before a graph break are taken behind it, in a block of another dtype


class Keeper(Protocol):
    """Keeps entries on disk."""

    def may_find(self) -> bool:
        """Whether there are entries at all, so that the stages may not be needed."""

    def prepare(
        self, dispatcher: Dispatcher, entry: Entry, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Callable[[], None] | None:
        """What writes the entry, to be called once it has served the call it was made for."""

    def find(self, dispatcher: Dispatcher, args: Sequence[Any], kwargs: dict[str, Any]) -> Iterable[Entry]:
        """Entries that other processes made, and that the dispatcher does not have."""


@dataclass(frozen=True, slots=True, eq=False)
class Compilation:
    """What one `pliant.compile` fixes for a callable and all its resume functions."""

    compile_graph: GraphCompiler
    make_resume: ResumeFactory
    new_entry: Callable[[Dispatcher, Sequence[Any], dict[str, Any]], Entry | None]
    as_captured: GraphCompiler | None = None  # what runs a graph while it is compiled behind the calls
    fullgraph: bool = False
    dynamic: bool | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    guard_filter: GuardFilter | None = None
    keeper: Keeper | None = None  # of entries on disk
    patterns: Sequence[Any] = ()  # that are replaced in its graphs
    recipe: Callable[[Any], Any] | None = None  # compiles another object in the same way (copies, unpickled modules)
    # Held by the entries that break there.
    resumes: weakref.WeakValueDictionary[Any, Callable[..., Any]] = field(default_factory=weakref.WeakValueDictionary)
    learnt: Learnt = field(default_factory=Learnt)

    def limit(self) -> int:
        """How many entries one callable may have."""
        return cast(int, self.overrides.get("recompile_limit", config.get().capture.recompile_limit))

    def options(self) -> config.Config:
        """The configuration of its captures, and of its entries on disk."""
        found = {"symbols": False} if self.learnt.wants_numbers else {}
        found |= {"breaks_in_autocast": False} if self.learnt.casts_meet else {}
        changes = {**self.overrides, **found}
        return config.get().with_options(changes) if changes else config.get()


# (compilation, point, globals, name) -> the function that runs the rest of a frame
ResumeFactory = Callable[[Compilation, "ResumePoint", dict[str, Any], str], Callable[..., Any]]


class Capturing(threading.local):
    """Whether a thread captures."""

    active = False


capturing = Capturing()


def is_capturing() -> bool:
    """Whether this thread is inside a capture."""
    return capturing.active


def _always_miss(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return MISS


class Dispatcher:
    """The entries of one callable. `hot` is the most recently used entry's function."""

    def __init__(
        self,
        root: Root,
        eager: Callable[..., Any],
        name: str,
        location: SourceLocation | None,
        compilation: Compilation,
    ) -> None:
        self.hot: EntryFunction = _always_miss
        self.entries: tuple[Entry, ...] = ()
        self.root = root
        self.eager = eager
        self.name = name
        self.location = location
        self.compilation = compilation
        self.policy = DynamicPolicy(compilation.dynamic, may_break=not compilation.fullgraph)
        self.given_up = ""
        self._failures = 0
        self.raising = ""
        self._lock = background.reentrant_lock()
        self.seen: dict[str, Any] = {}  # by digest: the entries on disk that the keeper looked at, or wrote
        self.compiles_in_calls = False  # whatever the option `background` says: its graphs could not be compiled behind them
        self.claim: Any = None  # the keeper's: other processes wait for what this one compiles
        self._limit_told = ""  # why the first call was not compiled for which there was no room
        stance.register(self)

    # ---- calls
    def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        result = self.hot(args, kwargs)
        return self.miss(args, kwargs) if result is MISS else result

    def miss(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call that the most recently used entry does not serve."""
        said = stance.current()
        if said == "force_eager":
            return self._eagerly(args, kwargs)
        if observer := observers():
            self.step_aside(observer)
            return self._eagerly(args, kwargs)
        if sys.is_finalizing():
            self.tell("the interpreter ends, and imports nothing more", "interpreter-ends")
            return self._eagerly(args, kwargs)
        tried = self.entries
        if tried and self.hot is tried[0].run:
            tried[0].note_miss(args, kwargs)
            if tried[0].probes:
                self.refresh()
        for entry in tried[1:]:
            result = entry.attempt(args, kwargs)
            if result is not MISS:
                self._promote(entry)
                return result
        if capturing.active or self._limit_told and self._is_past_limit(said):
            return self._eagerly(args, kwargs)
        if (result := self._by_another_process(said, args, kwargs)) is not MISS:
            return result
        try:
            if not self._is_open(said, args, kwargs):
                self._let_others_go_on()
                return self._eagerly(args, kwargs)
            if not tried and said in stance.EAGER_FIRST and self._note_call(args, kwargs):
                return self._eagerly(args, kwargs)
            return self._capture_and_run(args, kwargs, tried)
        finally:
            self._let_others_go_on()

    def _let_others_go_on(self) -> None:
        """Processes that wait for an entry, which is not made here; what keeps one does so itself."""
        claim, self.claim = self.claim, None
        if claim is not None:
            claim.release(kept=False)

    def step_aside(self, observer: str) -> None:
        """Say that a call runs eagerly since something around it is to see its operators."""
        if capturing.active:
            return
        if self.compilation.fullgraph and not tracing():
            from pliant.capture.attempt import break_error
            from pliant.capture.trace import BreakReason

            raise break_error(BreakReason(_OBSERVED, observer, self.location))
        self.tell(observer, _OBSERVED)

    def tell(self, why: str, kind: str) -> None:
        """Note that a call, or the rest of one, runs eagerly though compilation was asked for."""
        events.record("fallback", name=self.name, why=why, reason=kind, where=self.location)

    def _eagerly(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Behind a break the arguments come in a list, which eager empties: nobody else needs them."""
        kept_casts.give()
        if isinstance(self.root, CallableRoot):
            return self.eager(*args, **kwargs)
        return self.eager(args if type(args) is list else list(args))

    def _note_call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether this is the first call: its sizes are compared with those of the next one."""
        if not isinstance(self.root, CallableRoot):
            return False
        return self.policy.note_call(self._sources_of(args, kwargs))

    def _sources_of(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[Source, Any]]:
        if not isinstance(self.root, CallableRoot):
            return [(source, args[source.index]) for _, source in resume_sources(self.root.point)]
        positional = zip(argument_sources(self.root.fn, len(args)), args, strict=True)
        return [*positional, *((KwargSource(k), a) for k, a in kwargs.items())]

    def _promote(self, entry: Entry) -> None:
        with self._lock:
            if entry in self.entries:
                self.entries = (entry, *(e for e in self.entries if e is not entry))
        self.refresh()

    def drop(self, entry: Entry) -> None:
        """Forget one entry."""
        with self._lock:
            self.entries = tuple(e for e in self.entries if e is not entry)
        self.refresh()

    def compile_in_calls(self, entry: Entry) -> None:
        """Have the next call that the entry would serve compile its graph, and all others."""
        self.compiles_in_calls = True
        self.drop(entry)

    def refresh(self) -> None:
        """Take the fast path to the first entry, or none while eager is forced."""
        first = self.entries[:1]
        if not first or stance.own() == "force_eager":
            self.hot = _always_miss
        elif first[0].unkept:
            self.hot = keeping_call(weakref.ref(self), first[0])
        else:
            self.hot = self._second_call(first[0]) if second_calls.left() else first[0].fast

    def keep_later(self, entry: Entry) -> None:
        """Have the entry kept on disk by a call that it serves."""
        if self.compilation.keeper is None:
            entry.form = None
            return
        entry.unkept = True
        self.refresh()

    def _second_call(self, entry: Entry) -> EntryFunction:
        """In place of the entry's function until second calls have prepared what later ones are faster with."""
        dispatcher = weakref.ref(self)  # which holds the function

        def second_call(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
            found = dispatcher()
            if second_calls.prepared() and found is not None:
                found.refresh()
            return entry.fast(args, kwargs)

        return second_call

    def reset(self) -> None:
        """Forget all entries and what was learnt about sizes."""
        with self._lock:
            self.entries = ()
            self.given_up = ""
            self._failures = 0
            self._limit_told = ""
            self.compiles_in_calls = False
            self.policy = DynamicPolicy(self.compilation.dynamic, may_break=not self.compilation.fullgraph)
            self.refresh()

    # ---- entries that another process made
    def _by_another_process(self, said: stance.Stance, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an entry that is found on disk and serves the call, else MISS."""
        keeper = self.compilation.keeper
        full = len(self.entries) >= self.compilation.limit()
        if keeper is None or full or self.given_up or said in stance.EAGER_FIRST:
            return MISS
        found = iter(shielded(keeper.find)(self, args, kwargs))
        while (entry := self._next_of(found)) is not None:
            adopt = functools.partial(self._adopt, entry, served(self._sources_of(args, kwargs)))
            result = entry.first_run(adopt, args, kwargs)
            if result is not MISS:
                return result
            if events.wants("entry"):
                failure = _explained(entry, args, kwargs)
                why = failure.text if failure is not None else "unknown"
                events.record("entry", what="not for this call", name=self.name, why=why, reason="guard")
        return MISS

    def _next_of(self, found: Iterator[Entry]) -> Entry | None:
        """One thread looks at a time; what is found runs without the lock, as it may run the rest of the program."""
        before = Beginning()
        try:
            with self._lock, GcPause(), config.use(self.compilation.options()):
                return next(found, None)
        finally:
            before.restore()

    def _adopt(self, entry: Entry, arguments: list[Served]) -> None:
        """Take an entry that serves a call of these arguments."""
        with self._lock:
            if entry in self.entries:
                return
            if self.policy.failed.isdisjoint(entry.assumptions):  # as this very call may have shown
                self.entries = (entry, *self.entries)
                self.refresh()
        self.policy.note_found(arguments, entry.checks.guards)
        self.note_guards(entry.guards)
        events.record("entry", what="found", name=self.name, why="made by another process", reason="")
        if entry.operators is not None:
            events.record("found_graph", name=self.name, nodes=entry.operators)
        if entry.told is not None:
            events.record("graph_break", name=self.name, **entry.told)

    def note_guards(self, guards: Iterable[Guard]) -> None:
        """One event a guard, with the user's line that needs it. None is worked out unless somebody listens."""
        if not events.wants("guard"):
            return
        from pliant.guards.explain import describe_guard

        for guard in guards:
            is_state = guard.kind is Kind.STATE
            events.record("guard", name=self.name, text=describe_guard(guard), where=guard.origin or "", is_state=is_state)

    # ---- a new entry, or not
    def _is_past_limit(self, said: stance.Stance) -> bool:
        """Whether nothing has changed since a call was told that there is no room for it: it need not be asked why."""
        limit = self.compilation.limit()
        changed = len(self.entries) < limit or self.given_up or events.wants("recompile_limit")
        if changed or said in ("eager_on_recompile", "fail_on_recompile"):
            return False
        events.record("recompile_limit", name=self.name, limit=limit, why=self._limit_told, where=self.location)
        return True

    def _is_open(self, said: stance.Stance, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether a call that no entry serves may be captured."""
        if self.given_up:
            self.tell(self.given_up, "given-up")
            return False
        return self._may_compile(said, args, kwargs)

    def _may_compile(self, said: stance.Stance, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        if not self.entries:
            return True
        if said == "eager_on_recompile":
            return False
        limit = self.compilation.limit()
        failures = self.explain(args, kwargs)
        why = "; ".join(dict.fromkeys(f.text for f in failures)) or "unknown"
        where = next((f.guard.origin for f in failures if f.guard is not None and f.guard.origin), self.location)
        if said == "fail_on_recompile":
            raise RecompileError(
                f"{self.name} would compile again", where=where, why=why, do='leave set_stance("fail_on_recompile")'
            )
        if len(self.entries) >= limit:
            self._limit_reached(limit, failures, why, where)
            return False
        events.record("recompile", name=self.name, why=why, where=where, count=len(self.entries) + 1)
        return True

    def explain(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Failure]:
        """Why each entry does not serve this call."""
        return [f for e in self.entries if (f := _explained(e, args, kwargs)) is not None]

    def _limit_reached(self, limit: int, failures: list[Failure], why: str, where: SourceLocation | None) -> None:
        """Say so once; later calls are counted as fallbacks like this one."""
        self._limit_told = why
        self.refresh()
        events.record("recompile_limit", name=self.name, limit=limit, why=why, where=self.location)
        from pliant.guards.explain import in_lines

        message = [
            f"{self.name} has been compiled {limit} times, so calls that none of these serve run eagerly from now on",
            *dict.fromkeys(f"  {place}" for place in (self.location, where)),
            *in_lines(failures),
            f"  do   or raise the limit: pliant.config.update(recompile_limit={2 * limit}), PLIANT_RECOMPILE_LIMIT={2 * limit}",
        ]
        events.warn_once(f"recompile-limit:{id(self)}", "\n".join(message), PliantWarning)

    def _capture_and_run(self, args: Sequence[Any], kwargs: dict[str, Any], tried: tuple[Entry, ...]) -> Any:
        for last in (False, True):  # modules that the first capture imports may change what it was told
            while not isinstance(found := self._captured(args, kwargs, tried), Entry):
                if isinstance(found, str):
                    return self._uncaptured(found, args, kwargs)
                for entry in found:
                    if (result := entry.run(args, kwargs)) is not MISS:
                        return result
                tried = (*tried, *found)
            keep = self._keep(found, args, kwargs)
            result = found.run(args, kwargs) if keep is None else found.first_run(keep, args, kwargs)
            if result is not MISS:
                return result
            self._fresh_entry_missed(found, args, kwargs) if last else self.drop(found)
        return self._eagerly(args, kwargs)

    def _captured(self, args: Sequence[Any], kwargs: dict[str, Any], tried: Sequence[Entry]) -> Entry | tuple[Entry, ...] | str:
        """A new entry; those that other threads have captured meanwhile, if any; or what the program was expected to raise."""
        with self._lock:
            if others := tuple([one for one in self.entries if one not in tried]):
                return others
            self.raising = ""
            self.policy.learn()
            found = shielded(self.compilation.new_entry)(self, args, kwargs)
            if found is None:
                return self.raising
            self.entries = (found, *self.entries)
            self.refresh()
            return found

    def _keep(self, entry: Entry, args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[[], None] | None:
        """What writes a new entry to disk. One whose graph is compiled behind its calls waits for that."""
        if entry.behind is not None:
            entry.behind.begin(entry)
            return None
        keeper = self.compilation.keeper
        keep = shielded(keeper.prepare)(self, entry, args, kwargs) if keeper is not None else None
        if keep is None:
            entry.form = None
        return keep

    def _uncaptured(self, raising: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call that no entry was made for. `raising`: what the program was expected to raise."""
        self._let_others_go_on()
        result = self._eagerly(args, kwargs)
        if raising:
            self.fall_back(f"only while it is captured it raises: {raising}", "exception")
        return result

    def _fresh_entry_missed(self, entry: Entry, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        failed = _explained(entry, args, kwargs)
        self.fall_back(f"a guard does not hold for the call it was made from: {failed.text if failed else 'unknown'}", "guard-inconsistent")

    def eager_after(self, failed: tuple[str, str], args: Sequence[Any], kwargs: dict[str, Any], random_state: Any) -> Any:
        """What serves a call whose data its code was not compiled for, or on which an operator fails.

        The graph has drawn random numbers at most: it writes inputs at its end. Eager raises what it has to, when it
        has to. Where it raises nothing, what was assumed is not the program's own condition: code that is made from
        now on does not assume it.
        """
        error, assumed = failed
        events.record("assumption", name=self.name, why=error.partition("\n")[0], where=self.location)
        if random_state is not None:
            from pliant.graph.generator_states import set_random_bytes

            set_random_bytes(*random_state)
        result = self._eagerly(args, kwargs)
        if assumed and not self.compilation.fullgraph:
            self._assume_no_more(assumed)
        return result

    def _assume_no_more(self, assumed: str) -> None:
        with self._lock:
            self.policy.failed.add(assumed)
            self.policy.outcomes.add(assumed)
            self.entries = tuple(e for e in self.entries if assumed not in e.assumptions)
            self.refresh()

    def fall_back(self, why: str, kind: str) -> None:
        self.tell(why, kind)
        self.count_failure(why)

    def count_failure(self, why: str, for_good: bool = False) -> None:
        self._failures += 1
        if for_good or self._failures >= _GIVE_UP_AFTER:
            self.given_up = f"it could not be captured{'' if for_good else f' {self._failures} times'}: {why}"


def eager_after(dispatcher: Dispatcher) -> Callable[..., Any]:
    """What an entry holds of its dispatcher, which is running when the entry is: not the dispatcher, which holds it."""
    found: Any = weakref.WeakMethod(dispatcher.eager_after)
    return lambda *call: found()(*call)


_OBSERVED = "observed-call"
_GIVE_UP_AFTER = 8  # failed captures before a callable runs eagerly for good


def _explained(entry: Entry, args: Sequence[Any], kwargs: dict[str, Any]) -> Failure | None:
    """Why the entry does not serve a call. Words for that are loaded when somebody asks."""
    from pliant.guards.explain import explain_miss

    return explain_miss(entry.checks, args, kwargs)
