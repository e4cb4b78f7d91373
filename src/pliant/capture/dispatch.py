"""Entries of one callable: try them, capture on a miss, fall back to eager.

In:     calls `(args, kwargs)`; a root for the tracer; what the eager program does; a `Compilation`.
Out:    the result. `make_callable(dispatcher, like)` is the function a user or a step calls.
Holds:  entries are tried most recently used first and never change; captures are serialized per dispatcher; a call
        that arrives
        while this thread captures runs eagerly. Whatever fails inside the compiler ends as eager with an event,
        unless strict.
        An entry whose guards fail has done nothing, so the next may be tried.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

from pliant import background, config, peer, torch_adapter
from pliant.capture import stance
from pliant.capture.attempt import trace
from pliant.capture.bytecode.resume import ResumePoint
from pliant.capture.dynamic_policy import DynamicPolicy
from pliant.capture.entry import CallShape, Entry, GraphCompiler, Symbolic, make_entry
from pliant.capture.graph_breaks import KINDS, CannotCapture, CastsMeet
from pliant.capture.noted import note_guards, note_symbols
from pliant.capture.roots import CallableRoot, Root, argument_sources
from pliant.capture.trace import Break, BreakReason, Trace
from pliant.debug import events
from pliant.errors import (
    DataDependentError,
    FallbackWarning,
    GraphBreakError,
    PliantError,
    PliantWarning,
    RecompileError,
    Unsupported,
    UserError,
    WantsNumbers,
)
from pliant.gc_pause import GcPause
from pliant.guards import native_watch
from pliant.guards.codegen import MISS
from pliant.guards.explain import Failure, explain_miss
from pliant.guards.generated import EntryFunction
from pliant.guards.kinds import Guard
from pliant.guards.sources import ArgSource, KwargSource, Source
from pliant.guards.state import observers, state_guards, tracing
from pliant.interruptions import pass_on
from pliant.source import SourceLocation
from pliant.torch_adapter import shielded, without_saved_tensor_hooks

DISPATCHER = "__pliant_dispatcher__"  # in the `__dict__` of a function made by `make_callable`

GuardFilter = Callable[[Sequence[Guard]], Sequence[bool]]


@dataclass(slots=True)
class Learnt:
    """What the captures of one compilation found out about its backend and its program."""

    wants_numbers: bool = False  # its code holds for the sizes and numbers that it is shown alone
    casts_meet: bool = False  # autocast's casts before a graph break are taken behind it, in a block of another dtype


class Keeper(Protocol):
    """Keeps entries on disk."""

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
    fullgraph: bool = False
    dynamic: bool | None = None
    overrides: Mapping[str, object] = field(default_factory=dict)
    guard_filter: GuardFilter | None = None
    keeper: Keeper | None = None  # of entries on disk
    recipe: Callable[[Any], Any] | None = None  # compiles another object in the same way (copies, unpickled modules)
    # Held by the entries that break there.
    resumes: weakref.WeakValueDictionary[Any, Callable[..., Any]] = field(default_factory=weakref.WeakValueDictionary)
    learnt: Learnt = field(default_factory=Learnt)

    def options(self) -> config.Config:
        """The configuration of its captures."""
        found = {"symbols": False} if self.learnt.wants_numbers else {}
        found |= {"breaks_in_autocast": False} if self.learnt.casts_meet else {}
        return config.get().with_options({**self.overrides, **found})


# (compilation, point, globals, name) -> the function that runs the rest of a frame
ResumeFactory = Callable[[Compilation, ResumePoint, dict[str, Any], str], Callable[..., Any]]


class _Capturing(threading.local):
    """Whether a thread captures."""

    active = False


_capturing = _Capturing()


def is_capturing() -> bool:
    """Whether this thread is inside a capture."""
    return _capturing.active


@contextmanager
def _capture_scope() -> Iterator[None]:
    """Marks the thread, holds off garbage collection, and keeps hooks on saved tensors from the fakes."""
    with GcPause(), without_saved_tensor_hooks():
        _capturing.active = True
        try:
            yield
        finally:
            _capturing.active = False


def _always_miss(args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    return MISS


class Dispatcher:
    """The entries of one callable. `hot` is the most recently used entry's function."""

    __slots__ = (
        "__weakref__",
        "_failures",
        "_limit_told",
        "_lock",
        "_raising",
        "compilation",
        "eager",
        "entries",
        "given_up",
        "hot",
        "location",
        "name",
        "policy",
        "root",
    )

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
        self._raising = ""
        self._lock = background.reentrant_lock()
        self._limit_told = ""  # why the first call was not compiled for which there was no room
        stance.register(self)

    # ---- calls
    def call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        result = self.hot(args, kwargs)
        return self.miss(args, kwargs) if result is MISS else result

    def miss(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call that the most recently used entry does not serve."""
        if stance.current() == "force_eager":
            return self._eagerly(args, kwargs)
        if observer := observers():
            self.step_aside(observer)
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
        if _capturing.active:
            return self._eagerly(args, kwargs)
        if (result := self._by_another_process(args, kwargs)) is not MISS:
            return result
        if not self._is_open(args, kwargs):
            return self._eagerly(args, kwargs)
        if not tried and stance.current() in stance.EAGER_FIRST and self._note_call(args, kwargs):
            return self._eagerly(args, kwargs)
        return self._capture_and_run(args, kwargs, tried)

    def step_aside(self, observer: str) -> None:
        """Say that a call runs eagerly since something around it is to see its operators."""
        if _capturing.active:
            return
        kind = KINDS["observed-call"]
        if self.compilation.fullgraph and not tracing():
            raise GraphBreakError(observer, kind=kind.id, where=self.location, why=kind.why, do=kind.do)
        self.tell(observer, kind.id)

    def tell(self, why: str, kind: str) -> None:
        """Note that a call, or the rest of one, runs eagerly though compilation was asked for."""
        events.record("fallback", name=self.name, why=why, reason=kind, where=self.location)

    def _eagerly(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Behind a break the arguments come in a list, which eager empties: nobody else needs them."""
        if isinstance(self.root, CallableRoot):
            return self.eager(*args, **kwargs)
        return self.eager(args if type(args) is list else list(args))

    def _note_call(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether this is the first call: its sizes are compared with those of the next one."""
        if not isinstance(self.root, CallableRoot):
            return False
        return self.policy.note_call(self._sources_of(args, kwargs))

    def _sources_of(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[tuple[Source, Any]]:
        assert isinstance(self.root, CallableRoot)
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

    def refresh(self) -> None:
        """Take the fast path to the first entry, or none while eager is forced."""
        first = self.entries[:1]
        self.hot = first[0].fast if first and stance.own() != "force_eager" else _always_miss

    def reset(self) -> None:
        """Forget all entries and what was learnt about sizes."""
        with self._lock:
            self.entries = ()
            self.given_up = ""
            self._failures = 0
            self._limit_told = ""
            self.policy = DynamicPolicy(self.compilation.dynamic, may_break=not self.compilation.fullgraph)
            self.refresh()

    # ---- entries that another process made
    def _by_another_process(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """The result of an entry that is found on disk and serves the call, else MISS."""
        keeper = self.compilation.keeper
        full = len(self.entries) >= config.get().capture.recompile_limit
        if keeper is None or full or self.given_up or stance.current() in stance.EAGER_FIRST:
            return MISS
        with self._lock:
            for entry in shielded(keeper.find)(self, args, kwargs):
                result = entry.run(args, kwargs)
                if result is not MISS:
                    self.entries = (entry, *self.entries)
                    self.refresh()
                    self.policy.note_served(self._sources_of(args, kwargs))
                    note_guards(self.name, entry.guards)
                    events.record("entry", what="found", name=self.name, why="made by another process", reason="")
                    return result
                if events.wants("entry"):
                    failure = explain_miss(entry.checks, args, kwargs)
                    why = failure.text if failure is not None else "unknown"
                    events.record("entry", what="not for this call", name=self.name, why=why, reason="guard")
        return MISS

    # ---- a new entry, or not
    def _is_open(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Whether a call that no entry serves may be captured."""
        if self.given_up:
            self.tell(f"it could not be captured {_GIVE_UP_AFTER} times: {self.given_up}", "given-up")
            return False
        return self._may_compile(args, kwargs)

    def _may_compile(self, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        if not self.entries:
            return True
        if stance.current() == "eager_on_recompile":
            return False
        limit = config.get().capture.recompile_limit
        full = len(self.entries) >= limit
        if (
            full
            and self._limit_told
            and stance.current() != "fail_on_recompile"
            and not events.wants("recompile_limit")
        ):
            events.record("recompile_limit", name=self.name, limit=limit, why=self._limit_told, where=self.location)
            return False
        failures = self.explain(args, kwargs)
        why = "; ".join(dict.fromkeys(f.text for f in failures)) or "unknown"
        where = next((f.guard.origin for f in failures if f.guard is not None and f.guard.origin), self.location)
        if stance.current() == "fail_on_recompile":
            raise RecompileError(
                f"{self.name} would compile again", where=where, why=why, do='leave set_stance("fail_on_recompile")'
            )
        if full:
            self._limit_reached(limit, failures, why)
            return False
        events.record("recompile", name=self.name, why=why, where=where, count=len(self.entries) + 1)
        return True

    def explain(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Failure]:
        """Why each entry does not serve this call."""
        return [f for e in self.entries if (f := explain_miss(e.checks, args, kwargs)) is not None]

    def _limit_reached(self, limit: int, failures: list[Failure], why: str) -> None:
        """Say so once; later calls are counted as fallbacks like this one."""
        self._limit_told = why
        self.refresh()
        events.record("recompile_limit", name=self.name, limit=limit, why=why, where=self.location)
        advice = "\n  do   ".join(dict.fromkeys(f.advice for f in failures if f.advice))
        message = (
            f"{self.name} has been compiled {limit} times, so calls that none of these serve run eagerly from now on\n"
            f"  {self.location}\n  why  {why}\n  do   {advice or 'call it with fewer kinds of arguments'}, or raise"
            " pliant.config.patch(recompile_limit=...)"
        )
        events.warn_once(f"recompile-limit:{id(self)}", message, PliantWarning, stacklevel=6)

    def _capture_and_run(self, args: Sequence[Any], kwargs: dict[str, Any], tried: tuple[Entry, ...]) -> Any:
        for last in (False, True):  # modules that the first capture imports may change what it was told
            with self._lock:
                for entry in self.entries:  # another thread may have captured meanwhile
                    if entry not in tried and (result := entry.run(args, kwargs)) is not MISS:
                        return result
                self._raising = ""
                found = shielded(self._capture)(args, kwargs)
                if found is None:
                    return self._uncaptured(self._raising, args, kwargs)
                self.entries = (found, *self.entries)
                self.refresh()
            keeper = self.compilation.keeper
            keep = shielded(keeper.prepare)(self, found, args, kwargs) if keeper is not None else None
            found.form = None
            result = found.run(args, kwargs)
            if result is not MISS:
                if keep is not None:
                    keep()
                return result
            if last:
                self._fresh_entry_missed(found, args, kwargs)
            with self._lock:
                self.entries = tuple(e for e in self.entries if e is not found or last)
                self.refresh()
        return self._eagerly(args, kwargs)

    def _uncaptured(self, raising: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A call that no entry was made for. `raising`: what the program was expected to raise."""
        result = self._eagerly(args, kwargs)
        if raising:
            self._fall_back(f"only while it is captured it raises: {raising}", "exception")
        return result

    def _fresh_entry_missed(self, entry: Entry, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        failure = explain_miss(entry.checks, args, kwargs)
        why = f"a guard does not hold for the call it was made from: {failure.text if failure else 'unknown'}"
        self._fall_back(why, "guard-inconsistent")

    # ---- capture
    def _capture(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Entry | None:
        """A new entry; None if this call runs eagerly."""
        native_watch.prepare_beside()
        ambient = state_guards()
        before = torch_adapter.Beginning()
        try:
            return self._captured(args, kwargs, ambient)
        except UserError as error:
            if self.compilation.fullgraph or not isinstance(error, DataDependentError):
                raise
            self._fall_back(str(error), error.kind)  # a derivative needs values that the program does not
        except CastsMeet as stop:
            self._casts_meet(stop.reason)
        except CannotCapture as stop:
            self._cannot_capture(stop.reason)
        except Unsupported as stop:
            self._fall_back(str(stop), stop.kind)
        except Exception as error:
            pass_on(error)
            self._crashed(error)
        finally:
            before.restore()
            _capturing.active = False
        return None

    def _captured(self, args: Sequence[Any], kwargs: dict[str, Any], ambient: list[Guard]) -> Entry:
        try:
            with _capture_scope(), events.stage("compile", name=self.name):
                events.record("capture", name=self.name, where=self.location)
                return self._entry_for_backend(args, kwargs, ambient)
        except BaseException as error:
            pass_on(error)
            raise

    def _entry_for_backend(self, args: Sequence[Any], kwargs: dict[str, Any], ambient: list[Guard]) -> Entry:
        """The entry; if the backend's code would not hold for what symbols stand for, of a graph without any."""
        try:
            with config.use(self.compilation.options()):
                return self._traced_entry(args, kwargs, ambient)
        except WantsNumbers as stop:
            if self.compilation.learnt.wants_numbers:
                raise
            events.record("numbers_retry", name=self.name, why=str(stop), where=self.location)
        self.compilation.learnt.wants_numbers = (
            True  # outside the handler: what is handled while tracing is the program's
        )
        with config.use(self.compilation.options()):
            return self._traced_entry(args, kwargs, ambient)

    def _traced_entry(self, args: Sequence[Any], kwargs: dict[str, Any], ambient: list[Guard]) -> Entry:
        """The entry of a trace; if later stages cannot work with data-dependent numbers, of one that breaks at them."""
        traced = self._trace(args, kwargs)
        try:
            return self._entry_or_retry(traced, args, kwargs, ambient)
        finally:
            traced.forget()

    def _entry_or_retry(
        self, traced: Trace, args: Sequence[Any], kwargs: dict[str, Any], ambient: list[Guard]
    ) -> Entry:
        shape = CallShape.of(args, kwargs)
        if traced.graph is None or not traced.graph.shape_env.has_unbacked:
            self._note_break(traced)
            return self._entry_of(traced, shape, ambient)
        entry = None
        try:
            entry = self._entry_of(traced, shape, ambient)
        except WantsNumbers:
            raise
        except (Unsupported, DataDependentError) as error:
            events.record("data_dependent_retry", name=self.name, why=str(error), where=self.location)
        if entry is None:  # outside the handler: what is handled while tracing is the program's
            with config.use(config.get().with_options({"data_dependent": False})):
                traced = self._trace(args, kwargs)
                try:
                    entry = self._entry_of(traced, shape, ambient)
                finally:
                    traced.forget()
        self._note_break(traced)
        return entry

    def _trace(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Trace:
        with events.stage("capture"):
            return trace(self.root, args, kwargs, self.policy)

    def _entry_of(self, traced: Trace, shape: CallShape, ambient: list[Guard]) -> Entry:
        known = {g.source for g in traced.guards}
        extra = [g for g in ambient if g.source not in known]
        if self.compilation.guard_filter is not None:
            keep = self.compilation.guard_filter(traced.guards)
            traced.guards = [g for g, k in zip(traced.guards, keep, strict=True) if k]
        with events.stage("entry"):
            entry = make_entry(
                traced, self.compilation.compile_graph, self._resume, shape=shape, name=self.name, extra_guards=extra,
                eager=EagerAfter(self),
            )  # fmt: skip
        if entry.later and isinstance(self.root, CallableRoot):
            self._runs_later(entry.later)
        note_guards(self.name, entry.guards)
        if entry.graph is not None:
            note_symbols(self.name, entry.graph.shape_env)
        return entry

    def _runs_later(self, names: list[str]) -> None:
        kind, what = KINDS["runs-later"], f"{', '.join(names)} is returned before it has run"
        if self.compilation.fullgraph:
            raise GraphBreakError(what, kind=kind.id, where=self.location, why=kind.why, do=kind.do)
        self.tell(f"{what}: {kind.why}", kind.id)

    def eager_after(
        self, failed: tuple[str, str], args: Sequence[Any], kwargs: dict[str, Any], random_state: Any
    ) -> Any:
        """What serves a call whose data its code was not compiled for, or on which an operator fails.

        The graph has drawn random numbers at most: it writes inputs at its end. Eager raises what it has to, when it
        has to. Where it raises nothing, what was assumed is not the program's own condition: code that is made from
        now on does not assume it.
        """
        error, assumed = failed
        events.record("assumption", name=self.name, why=error.partition("\n")[0], where=self.location)
        if random_state is not None:
            torch.set_rng_state(random_state)
        result = self._eagerly(args, kwargs)
        if assumed and not self.compilation.fullgraph:
            self._assume_no_more(assumed)
        return result

    def _assume_no_more(self, assumed: str) -> None:
        with self._lock:
            self.policy.failed.add(assumed)
            self.entries = tuple(e for e in self.entries if not _assumes(e, assumed))
            self.refresh()

    def _resume(self, point: ResumePoint, globals_: dict[str, Any], name: str, known: Symbolic) -> Callable[..., Any]:
        function = self.compilation.make_resume(self.compilation, point, globals_, name)
        if DISPATCHER not in function.__dict__:  # not compiled
            return function
        policy: DynamicPolicy = function.__dict__[DISPATCHER].policy
        for slot, source in resume_sources(point):
            match known.get(slot):
                case (rank, dims):
                    policy.note_dynamic(source, rank, dims)
                case type() as number:
                    policy.note_varies(source, number)
                case Source() as there:
                    policy.share_lengths(source, self.policy, there)
        return function

    def _note_break(self, traced: Trace) -> None:
        if not isinstance(traced.end, Break):
            return
        reason = traced.end.reason
        kind = KINDS[reason.kind]
        if self.compilation.fullgraph or peer.breaks_are_errors():
            do = reason.do or kind.do
            raise GraphBreakError(reason.detail, kind=kind.id, where=reason.location, why=kind.why, do=do)
        events.record(
            "graph_break",
            reason=kind.id,
            where=reason.location,
            why=f"{reason.detail}: {kind.why}",
            do=reason.do or kind.do,
            name=self.name,
        )

    # ---- failures
    def _cannot_capture(self, reason: BreakReason) -> None:
        kind = KINDS[reason.kind]
        if (self.compilation.fullgraph or peer.breaks_are_errors()) and reason.kind not in _EAGER_RAISES:
            do = reason.do or kind.do
            raise GraphBreakError(reason.detail, kind=kind.id, where=reason.location, why=kind.why, do=do)
        why, where = f"[{reason.kind}] {reason.detail}", reason.location or self.location
        if reason.kind in _EAGER_RAISES:
            events.record("skip", name=self.name, why=why, where=where)
            self._raising = reason.detail
            return
        events.record("fallback", name=self.name, why=why, reason=reason.kind, where=where)
        self._count_failure(why)

    def _casts_meet(self, reason: BreakReason) -> None:
        """Compiled code of before may have cast what this call takes, and kept no cast: from now on it is not cut there."""
        first, self.compilation.learnt.casts_meet = not self.compilation.learnt.casts_meet, True
        for one in stance.everyone() if first else ():
            if isinstance(one, Dispatcher) and one.compilation is self.compilation:
                one.reset()
        self._cannot_capture(reason)

    def _fall_back(self, why: str, kind: str) -> None:
        self.tell(why, kind)
        self._count_failure(why)

    def _count_failure(self, why: str) -> None:
        self._failures += 1
        if self._failures >= _GIVE_UP_AFTER:
            self.given_up = why

    def _crashed(self, error: Exception) -> None:
        if config.get().general.strict:
            raise error
        why = str(error) if isinstance(error, PliantError) else f"{type(error).__name__}: {error}"
        self._fall_back(why, "crash")
        indented = why.replace("\n", "\n       ")
        message = f"the compiler failed on {self.name}, which runs eagerly\n  {self.location}\n  why  {indented}"
        message += "\n  do   report it; PLIANT_STRICT=1 raises the error instead"
        events.warn_once(f"crash:{self.name}:{type(error).__name__}", message, FallbackWarning, stacklevel=6)


class EagerAfter:
    """What an entry holds of its dispatcher, which is running when the entry is: not the dispatcher, which holds it."""

    __slots__ = ("_dispatcher",)

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = weakref.ref(dispatcher)

    def __call__(
        self, failed: tuple[str, str], args: Sequence[Any], kwargs: dict[str, Any], random_state: Any
    ) -> Any:
        dispatcher = self._dispatcher()
        assert dispatcher is not None
        return dispatcher.eager_after(failed, args, kwargs, random_state)


def _assumes(entry: Entry, assumed: str) -> bool:
    asserts = entry.graph.shape_env.runtime_asserts if entry.graph is not None else ()
    return any(str(one) == assumed and not one.stated for one in asserts)


def resume_sources(point: ResumePoint) -> list[tuple[str, ArgSource]]:
    """(slot or local, its source) for each value that a resume function gets, as the tracer reads them."""
    names = [f"stack{i}" for i, bound in enumerate(point.stack) if bound]
    names += ["exception"] * point.handled + list(point.locals)
    return [(name, ArgSource(i, name)) for i, name in enumerate(names, 1)]


_GIVE_UP_AFTER = 8  # failed captures before a callable runs eagerly for good
_EAGER_RAISES = ("exception", "bad-call", "tensor-error")  # the program itself raises: eager shows its own error
