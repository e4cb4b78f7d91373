"""A new entry of a dispatcher: its callable captured and compiled for one call, or why not.

In:     a dispatcher and a call that none of its entries serves.
Out:    `new_entry(dispatcher, args, kwargs)`: the entry; None if the call runs eagerly, which has been told.
Holds:  errors of the user's that compiling shows pass through; whatever else fails is a fallback, unless strict.
        Loaded where something is captured, not where entries are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from pliant import config, peer, torch_adapter
from pliant.autograd.aliasing import LastingWrite
from pliant.bytecode.resume import ResumePoint
from pliant.capture.attempt import break_error, trace
from pliant.capture.graph_breaks import KINDS, CannotCapture, CastsMeet, told_of
from pliant.capture.trace import Break, BreakReason, Trace
from pliant.debug import events
from pliant.dispatch import stance
from pliant.dispatch.dispatcher import Dispatcher, capturing, eager_after
from pliant.dispatch.entry import CallShape, Entry, Symbolic
from pliant.dispatch.entry_writer import make_entry
from pliant.dispatch.roots import CallableRoot, ResumeRoot
from pliant.errors import (
    DataDependentError,
    FallbackWarning,
    PliantError,
    Unsupported,
    UserError,
    WantsNumbers,
)
from pliant.gc_pause import GcPause
from pliant.guards import native_watch
from pliant.guards.kinds import Guard
from pliant.guards.state import state_guards
from pliant.interruptions import pass_on
from pliant.symbolic.shape_env import ShapeEnv
from pliant.together import LateFailure, together
from pliant.torch_adapter import without_saved_tensor_hooks

if TYPE_CHECKING:
    from pliant.dispatch.behind import Behind


@contextmanager
def _capture_scope() -> Iterator[None]:
    """Marks the thread, holds off garbage collection, and keeps hooks on saved tensors from the fakes."""
    with GcPause(), without_saved_tensor_hooks():
        capturing.active = True
        try:
            yield
        finally:
            capturing.active = False


def new_entry(dispatcher: Dispatcher, args: Sequence[Any], kwargs: dict[str, Any]) -> Entry | None:
    """The entry, or None."""
    return _Capture(dispatcher).made(args, kwargs)


class _Capture:
    """One capture for a dispatcher."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.dispatcher, self.compilation = dispatcher, dispatcher.compilation

    def made(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Entry | None:
        """A new entry; None if this call runs eagerly."""
        native_watch.prepare_beside()
        ambient = state_guards()
        before = torch_adapter.Beginning()
        try:
            return self._captured(args, kwargs, ambient)
        except UserError as error:
            if self.compilation.fullgraph or not isinstance(error, DataDependentError):
                raise
            self.dispatcher.fall_back(str(error), error.kind)  # a derivative needs values that the program does not
        except CastsMeet as stop:
            self._casts_meet(stop.reason)
        except CannotCapture as stop:
            self._cannot_capture(stop.reason)
        except Unsupported as stop:
            self.dispatcher.fall_back(str(stop), stop.kind)
        except Exception as error:
            pass_on(error)
            self._crashed(error)
        finally:
            before.restore()
            capturing.active = False
        return None

    def _captured(self, args: Sequence[Any], kwargs: dict[str, Any], ambient: list[Guard]) -> Entry:
        try:
            with _capture_scope(), events.stage("compile", name=self.dispatcher.name):
                events.record("capture", name=self.dispatcher.name, where=self.dispatcher.location)
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
            events.record("numbers_retry", name=self.dispatcher.name, why=str(stop), where=self.dispatcher.location)
        self.compilation.learnt.wants_numbers = (
            True  # outside the handler: what is handled while tracing is the program's
        )
        with config.use(self.compilation.options()):
            return self._traced_entry(args, kwargs, ambient)

    def _traced_entry(
        self, args: Sequence[Any], kwargs: dict[str, Any], ambient: list[Guard], beside: bool = True
    ) -> Entry:
        """The entry of a trace; if later stages cannot work with data-dependent numbers, of one that breaks at them."""
        traced = self._trace(args, kwargs)
        try:
            with together() if beside else nullcontext():  # guards are written while kernels are built
                return self._entry_or_retry(traced, args, kwargs, ambient)
        except LateFailure:
            beside = False  # again, from the trace on, each graph by itself
        except LastingWrite as error:  # again, with breaks at these writes
            if not self.dispatcher.policy.breaks_at(error.places):
                raise
        finally:
            traced.forget()
        return self._traced_entry(args, kwargs, ambient, beside)

    def _entry_or_retry(
        self, traced: Trace, args: Sequence[Any], kwargs: dict[str, Any], ambient: list[Guard]
    ) -> Entry:
        if traced.graph is None or not traced.graph.shape_env.has_unbacked:
            self._note_break(traced)
            return self._entry_of(traced, args, kwargs, ambient)
        entry = None
        try:
            entry = self._entry_of(traced, args, kwargs, ambient)
        except WantsNumbers:
            raise
        except (Unsupported, DataDependentError) as error:
            events.record("data_dependent_retry", name=self.dispatcher.name, why=str(error), where=self.dispatcher.location)
        if entry is None:  # outside the handler: what is handled while tracing is the program's
            with config.use(config.get().with_options({"data_dependent": False})):
                traced = self._trace(args, kwargs)
                try:
                    entry = self._entry_of(traced, args, kwargs, ambient)
                finally:
                    traced.forget()
        self._note_break(traced)
        return entry

    def _trace(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Trace:
        with events.stage("capture"):
            return trace(self.dispatcher.root, args, kwargs, self.dispatcher.policy)

    def _entry_of(self, traced: Trace, args: Sequence[Any], kwargs: dict[str, Any], ambient: list[Guard]) -> Entry:
        shape = CallShape.of(args, kwargs)
        known = {g.source for g in traced.guards}
        extra = [g for g in ambient if g.source not in known]
        if self.compilation.guard_filter is not None:
            from pliant.guards.filtering import filtered

            traced.guards = filtered(traced.guards, self.compilation.guard_filter, args, kwargs)
        behind = self._behind()
        with events.stage("entry"):
            entry = make_entry(
                traced, behind or self.compilation.compile_graph, self._resume, shape=shape, name=self.dispatcher.name, extra_guards=extra,
                eager=eager_after(self.dispatcher), is_behind=isinstance(self.dispatcher.root, ResumeRoot),
            )  # fmt: skip
        if behind is not None and behind.is_put_off:
            entry.behind = behind
        if entry.later and isinstance(self.dispatcher.root, CallableRoot):
            self._runs_later(entry.later)
        self.dispatcher.note_guards(entry.guards)
        if entry.graph is not None:
            _note_symbols(self.dispatcher.name, entry.graph.shape_env)
        return entry

    def _behind(self) -> Behind | None:
        """What compiles the graph behind the calls, where that is asked for."""
        as_captured, dispatcher = self.compilation.as_captured, self.dispatcher
        if as_captured is None or dispatcher.compiles_in_calls or not config.get().general.background:
            return None
        from pliant.dispatch.behind import Behind  # which few programs ask for

        return Behind(dispatcher, self.compilation.compile_graph, as_captured)

    def _runs_later(self, names: list[str]) -> None:
        reason = BreakReason("runs-later", f"{', '.join(names)} is returned before it has run", self.dispatcher.location)
        if self.compilation.fullgraph:
            raise break_error(reason)
        self.dispatcher.tell(f"{reason.detail}: {KINDS[reason.kind].why}", reason.kind)

    def _resume(self, point: ResumePoint, globals_: dict[str, Any], name: str, known: Symbolic) -> Callable[..., Any]:
        from pliant.dispatch.resume_function import note_symbolic  # of programs that break

        function = self.compilation.make_resume(self.compilation, point, globals_, name)
        note_symbolic(function, point, known, self.dispatcher.policy)
        return function

    def _note_break(self, traced: Trace) -> None:
        if not isinstance(traced.end, Break):
            return
        reason = traced.end.reason
        if self.compilation.fullgraph or peer.breaks_are_errors():
            raise break_error(reason)
        events.record("graph_break", name=self.dispatcher.name, **told_of(reason))

    # ---- failures
    def _cannot_capture(self, reason: BreakReason) -> None:
        if (self.compilation.fullgraph or peer.breaks_are_errors()) and reason.kind not in _EAGER_RAISES:
            raise break_error(reason)
        why, where = f"[{reason.kind}] {reason.detail}", reason.location or self.dispatcher.location
        if reason.kind in _EAGER_RAISES:
            events.record("skip", name=self.dispatcher.name, why=why, where=where)
            self.dispatcher.raising = reason.detail
            return
        events.record("fallback", name=self.dispatcher.name, why=why, reason=reason.kind, where=where)
        self.dispatcher.count_failure(why, for_good=reason.kind == "long-run")

    def _casts_meet(self, reason: BreakReason) -> None:
        """Compiled code of before may have cast what this call takes, and kept no cast: from now on it is not cut there."""
        first, self.compilation.learnt.casts_meet = not self.compilation.learnt.casts_meet, True
        for one in stance.everyone() if first else ():
            if one.compilation is self.compilation:
                one.reset()
        self._cannot_capture(reason)

    def _crashed(self, error: Exception) -> None:
        if self.compilation.options().general.strict:
            raise error
        why = str(error) if isinstance(error, PliantError) else f"{type(error).__name__}: {error}"
        self.dispatcher.fall_back(why, "crash")
        indented = why.replace("\n", "\n       ")
        message = f"the compiler failed on {self.dispatcher.name}, which runs eagerly\n  {self.dispatcher.location}\n  why  {indented}"
        message += "\n  do   report it; PLIANT_STRICT=1 raises the error instead"
        events.warn_once(f"crash:{self.dispatcher.name}:{type(error).__name__}", message, FallbackWarning)


def _note_symbols(name: str, env: ShapeEnv) -> None:
    """One event a symbol, with where it comes from, and one for each that a line of the program fixed to a value."""
    if not events.wants("dynamic") and not events.wants("specialize"):
        return
    for symbol, sources in env.sources.items():
        hint = env.hint(symbol)
        why = "nothing may depend on its value" if hint is None else f"{hint} in this call"
        events.record("dynamic", name=name, symbol=str(symbol), source=" and ".join(map(str, sources)), why=why, of=env.number)
    for one in env.specializations:
        origins = [str(env.sources[s][0]) for s in one.symbol.free if env.sources.get(s)]
        text = f"{one.symbol} ({', '.join(origins)})" if origins else str(one.symbol)
        where = one.origin or "a line that is not known"
        events.record("specialize", name=name, symbol=text, value=one.value, where=where)


_EAGER_RAISES = ("exception", "bad-call", "tensor-error")  # the program itself raises: eager shows its own error
