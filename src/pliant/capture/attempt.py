"""One capture: attempts at interpreting a call, until one ends or shows where the frames are cut.

In:     a root (a call, or a frame to resume), the real arguments, the policy for dynamic sizes.
Out:    a `Trace` (`capture.trace`), or `CannotCapture`; of `whole` a `Trace` that ends with a return, or what
        `compile(fullgraph=True)` raises at the line that would break the graph.
Holds:  nothing outside changes during an attempt. A graph break that is met in the middle of an operation restarts the trace,
        which then stops before that operation.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import torch
from torch import fx

from pliant import config
from pliant.bytecode.cfg import layouts
from pliant.bytecode.ops import effect, operand_count
from pliant.bytecode.resume import is_generator, point_at, resume_freevars
from pliant.bytecode.steps import step_code
from pliant.capture.collect import collect_values
from pliant.capture.frame import Frame
from pliant.capture.graph_breaks import (
    KINDS,
    BreakBefore,
    CannotCapture,
    CastsKept,
    CastsMeet,
    GraphBreak,
    Raised,
    StartAgain,
    Stopped,
)
from pliant.capture.handlers.effects import check_put_off
from pliant.capture.idle_runs import check_rest
from pliant.capture.iterators.carried import count_by_turn
from pliant.capture.iterators.generators import (
    TracedGenerator,
    is_traced_generator,
    kept_cells,
    kept_locals,
    notice,
    started,
)
from pliant.capture.iterators.standing_iterators import step, use_up
from pliant.capture.iterators.suspended import Carry, put, running
from pliant.capture.outside.settings import cast_of, on_casts
from pliant.capture.outside.unread_arguments import UnreadArguments
from pliant.capture.protocols.cached_calls import check_computed
from pliant.capture.recording import stand_ins
from pliant.capture.recording.late_state import check_late_states
from pliant.capture.trace import NULL, Break, BreakReason, CallEffect, Effect, FrameState, Return, Trace
from pliant.capture.tracer import Tracer
from pliant.capture.value_kinds import has_method, is_method
from pliant.dispatch.dynamic_policy import DynamicPolicy
from pliant.dispatch.roots import CallableRoot, ResumeRoot, Root, argument_sources
from pliant.errors import GraphBreakError, Unsupported
from pliant.graph import given_warnings
from pliant.graph.contracts import CapturedGraph
from pliant.graph.late_module import LateModule
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.settings import Settings
from pliant.guards.sources import ArgSource, HandledSource, ItemSource, KwargSource
from pliant.interruptions import pass_on
from pliant.source import SourceLocation, user_location
from pliant.torch_adapter import gradient_bytes_at_a_time, pop_function_mode

_MAX_RESTARTS = 16


def whole(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], policy: DynamicPolicy) -> Trace:
    """The trace of `fn(*args, **kwargs)`."""
    try:
        traced = trace(CallableRoot(fn), args, dict(kwargs), policy)
    except CannotCapture as stop:
        raise break_error(stop.reason) from None
    if traced.end.reason is not None:
        raise break_error(traced.end.reason)
    return traced


def break_error(reason: BreakReason) -> GraphBreakError:
    kind = KINDS[reason.kind]
    return GraphBreakError(reason.detail, kind=kind.id, where=reason.location, why=kind.why, do=reason.do or kind.do)


def trace(root: Root, args: Sequence[Any], kwargs: dict[str, Any], policy: DynamicPolicy) -> Trace:
    """Capture a call. Nothing observable has happened when this returns or raises, but that lazy modules were made."""
    warnings = given_warnings.state()
    while True:
        try:
            return _trace(root, args, kwargs, policy)
        except StartAgain as again:
            again.first()
        except RecursionError:  # ours: a call of the program's is several of the interpreter's
            raise CannotCapture(BreakReason("recursion", "calls are nested too deeply to follow", None)) from None
        finally:
            given_warnings.bring_back(warnings)


def _trace(root: Root, args: Sequence[Any], kwargs: dict[str, Any], policy: DynamicPolicy) -> Trace:
    stop, reason = -1, None
    for _ in range(_MAX_RESTARTS):
        attempt = _Attempt(Tracer(policy, stop), root, reason)
        found = None
        try:
            found = attempt.run(args, kwargs)
            return found
        except BreakBefore as again:
            stop, reason = again.step, again.reason
        except CannotCapture as failure:
            attempt.t.world.check_shared()
            whole = attempt.whole_operation()
            if whole is None or failure.is_final or failure.reason.kind == "exception":
                raise
            stop, reason = whole, attempt.reason or failure.reason
        finally:
            if found is None:
                attempt.t.forget()
    assert reason is not None
    raise CannotCapture(reason)


class _Attempt:
    """Runs a tracer over a root and makes the `Trace`."""

    def __init__(self, tracer: Tracer, root: Root, reason: BreakReason | None) -> None:
        self.t = tracer
        self.root = root
        self.reason = reason
        self.kept: list[tuple[Any, Any]] = []  # casts of inputs that autocast keeps where the trace breaks

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Trace:
        before = self.t.settings = Settings()
        try:
            with self.t.mode, self.t.recorder:
                try:
                    result = self._start(args, kwargs)
                finally:
                    self.t.active = False
                    self.t.overrides.disabled += 1
                    for _ in range(self.t.overrides.devices):  # blocks that a break is in
                        pop_function_mode()
                if self.t.failure is not None:
                    raise self.t.failure
                if self.t.lock is not None and self.t.lock.depth:
                    self._break_before_lock("a lock stays held where the function ends", self.t.lock.where)
                return self._finish(result, before)
        except GraphBreak as stop:
            pass_on(stop)
            found = self._broken(stop.reason(self._break_location()))
        except Stopped:
            assert self.reason is not None
            found = self._frames_to_split(self.reason, clean=True)
        except Raised as raised:
            pass_on(raised)
            raise CannotCapture(BreakReason("exception", _told(raised.error), raised.where)) from None
        finally:
            self.t.active = False
            self.after = Settings()
            before.restore()
        if self.t.overrides.modes or self.t.overrides.devices:
            assert self.t.overrides.step is not None
            raise BreakBefore(found.reason, self.t.overrides.step)
        if self.t.lock is not None:
            self._break_before_lock("a lock is held, and the trace breaks", self._break_location())
        with self.t.mode, self.t.recorder:
            return self._finish(found, before)

    # ---- starting
    def _start(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Return:
        outside = sys.exc_info()[1]
        if outside is not None:
            self.t.exception_around = self.t.world.bring(outside, HandledSource())
        match self.root:
            case CallableRoot(fn):
                return self._call_root(fn, args, kwargs)
            case ResumeRoot():
                return self._resume_root(self.root, args)

    def _call_root(self, fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Return:
        world = self.t.world
        self._hold(fn, getattr(fn, "__qualname__", type(fn).__name__))
        if is_method(fn):
            world.hold(fn.__func__, fn.__func__.__qualname__)
            self._hold(fn.__self__, "self")
        unread = self.t.unread = UnreadArguments(fn, args, kwargs)
        placed = enumerate(zip(args, argument_sources(fn, len(args)), strict=True))
        traced = tuple(a if unread.leaves(i, a, s) else world.bring(a, s) for i, (a, s) in placed)
        named = ((k, v, KwargSource(k)) for k, v in kwargs.items())
        keywords = {k: v if unread.leaves(k, v, s) else world.bring(v, s) for k, v, s in named}
        return Return(self.t.call(fn, traced, keywords, linked=True))

    def _hold(self, called: Any, name: str) -> None:
        """What the user compiled is always the same object, whose class may be replaced."""
        self.t.world.hold(called, name)
        self.t.world.guard(self.t.world.place_of(called), Kind.TYPE, type(called))

    def _resume_root(self, root: ResumeRoot, args: Sequence[Any]) -> Return:
        t, world, point = self.t, self.t.world, root.point
        world.hold(root.globals, "")
        cells = {}
        for i, (name, cell) in enumerate(zip(resume_freevars(point.code), args[0], strict=True)):
            world.set_origin(cell, ItemSource(ArgSource(0, "cells"), i))
            cells[name] = cell
        values = iter(range(1, len(args)))

        def bring(name: str) -> Any:
            index = next(values)
            return world.bring(args[index], ArgSource(index, name))

        stack = [bring(f"stack{i}") if full else NULL for i, full in enumerate(point.stack)]
        if point.handled:
            t.own_exception = bring("exception")
        local = {name: bring(name) for name in point.locals}
        frame = Frame(t, point.code, root.globals, local, cells, root.name, True)
        frame.stack.extend(stack)
        del stack  # the frame alone holds what is on it
        notice(frame)
        frame.ip = frame.program.index_of(point.offset)
        check_rest(frame)
        suspended = started(frame) if is_generator(frame.code) else None
        if suspended is None:
            return Return(frame.run().value)
        suspended.running = True
        result = frame.run()
        suspended.running = False
        if result.yields:
            return Return(result.value, suspended)
        suspended.finished = True
        return Return((result.value,))

    # ---- breaking
    def _break_location(self) -> SourceLocation | None:
        """The user's frame that broke; if that is a library's, with the place where the program called it."""
        frames = self.t.broken_frames or ()
        places = [frame.location() for frame in reversed(frames) if frame.is_the_users]
        if not places:
            return frames[-1].location() if frames else None
        if not places[0].is_library:
            return places[0]
        caller = next((place for place in places if not place.is_library), None) or user_location(libraries=False)
        return replace(places[0], caller=caller)

    def _broken(self, reason: BreakReason) -> Break:
        frames = self.t.broken_frames
        if not frames or not frames[0].linked:
            raise CannotCapture(reason)
        self._check_casts(reason)
        innermost = frames[-1]
        clean = self.t.steps == innermost.steps_at_op and self.t.recorder.count == innermost.nodes_at_op
        operands = innermost.saved[len(innermost.saved) - effect(innermost.op)[0] :]
        clean = clean and not any(has_method(type(v), "__next__") for v in operands)  # perhaps advanced
        return self._frames_to_split(reason, clean)

    def _break_before_lock(self, detail: str, where: SourceLocation | None) -> NoReturn:
        """An entry holds a lock only as a whole: it ends before the operation that takes it."""
        assert self.t.lock is not None
        raise BreakBefore(BreakReason("side-effect-call", detail, where), self.t.lock.step)

    def _check_casts(self, reason: BreakReason) -> None:
        """Refuse a break at which casts are lost that autocast keeps and code behind it may take."""
        casts = self.t.casts
        if casts.are_mixed:
            mixed = f"casts to several dtypes that autocast keeps, at a graph break ({reason.detail})"
            refused = CastsMeet if casts.meet_others else CastsKept
            raise refused(BreakReason("mutated-global-state", mixed, reason.location))
        if casts.kept and not config.get().capture.breaks_in_autocast:
            one = f"casts that autocast keeps, at a graph break ({reason.detail})"
            raise CastsKept(BreakReason("mutated-global-state", one, reason.location))
        if casts.kept:
            self.kept = [(dtype, one.fake) for one in self.t.inputs.inputs if (dtype := cast_of(one))]

    def _frames_to_split(self, reason: BreakReason, clean: bool) -> Break:
        """The frames that can be cut: from the outermost in, as long as each is all that an operation runs."""
        self.reason = self.reason or reason
        frames = self.t.broken_frames or ()
        depth = 0
        while depth < len(frames) and frames[depth].linked:
            depth += 1
        if depth == 0:
            raise CannotCapture(reason)
        last = frames[depth - 1]
        if depth < len(frames) or not clean:
            raise BreakBefore(reason, last.steps_at_op)
        count_by_turn(self.t, frames)
        return Break(_states(frames, self.t.broken_calls, self.t.current_exception), reason)

    def whole_operation(self) -> int | None:
        """The step of the outermost operation, other than a plain call, in which the trace broke: what was cut there
        cannot be, so the operation is left to Python as a whole."""
        for outer, inner in itertools.pairwise(self.t.broken_frames or ()):
            if not outer.linked:
                break
            is_call = outer.op.name in ("CALL", "CALL_FUNCTION_EX")
            if not is_call or inner.is_polyfill or inner.generator is not None:
                return outer.steps_at_op
        return None

    # ---- finishing
    def _finish(self, end: Return | Break, before: Settings) -> Trace:
        t = self.t
        if t.unread is not None:
            t.unread.check(t)
        check_put_off(t)
        t.world.guard_aliases([one.real for one in t.standing.values()])
        t.inputs.check_fixed()
        t.inputs.take_elements()
        t.world.check_states()
        effects = [*_stepped(t, early=True), *t.world.effects(), *_stepped(t, early=False)]
        effects += map(_advanced, t.revived.values())
        effects += [CallEffect(type(lock).release, (lock,), {}) for lock in t.released]
        after = self.after if end.reason else Settings()
        effects += [CallEffect(setter, arguments, {}) for setter, arguments in after.calls_from(before)]
        effects += on_casts(t.casts, self.kept)
        told = t.inputs.told_last().values()
        effects += [CallEffect(torch.Tensor.requires_grad_, (one, one.requires_grad), {}) for one in told]
        for setter, arguments in before.calls_from(after):
            t.graph.call_function(setter, arguments)
        made = {**t.world.made, **t.world.functions}
        result = Trace(None, t.inputs.inputs, t.world.guards, effects, end, t.world.origins, made=made)
        t.world.give_arguments_back()
        result.origins.update({id(made): t.world.origins[id(real)] for real, made in t.revived.values()})
        result.origins.update({id(made): t.world.origins[id(made.real)] for made in t.standing.values()})
        result.draws, result.codes, result.process_bound = t.draws, t.codes, t.process_bound
        result.answers, result.orders = t.answers, t.orders
        result.told = [source for one in t.inputs.told_first if (source := t.world.source_of(one)) is not None]
        result.lock = t.lock.lock if t.lock is not None else None
        result.forget = t.forget
        try:
            known = {id(made) for _, made in t.revived.values()}
            suspended = [one for one in t.generators if one.gi_suspended and id(one) not in known]
            values, times_reached = collect_values(result, suspended)  # of a break, it marks the iterators to carry
            if end.reason is not None:
                t.world.guard_carried(times_reached)
        except Unsupported as error:
            why = f" (capture stopped: {end.reason.detail})" if end.reason else ""
            raise CannotCapture(BreakReason("cannot-rebuild", str(error) + why, self._break_location())) from error
        stand_ins.check(t, values)
        check_computed(t, values, times_reached)
        check_late_states(t, times_reached)
        result.outputs = {id(value): i for i, value in enumerate(values)}
        try:
            nodes = [t.recorder.to_nodes(value) for value in values]
        except GraphBreak as error:  # a tensor escaped from the part of the program that computed it
            raise CannotCapture(error.reason(None)) from None
        result.output_nodes = nodes
        if t.recorder.count or t.inputs.node_of_symbol or t.shape_env.sources:
            result.graph = self._graph(nodes, before.grad_enabled)
        return result

    def _graph(self, nodes: list[fx.Node], grad: bool) -> CapturedGraph:
        t = self.t
        old = next(n for n in reversed(t.graph.nodes) if n.op == "output")
        t.graph.erase_node(old)
        t.graph.output(tuple(nodes))
        module = LateModule(t.recorder.constants, t.graph)
        moved = frozenset(
            i for i, one in enumerate(t.inputs.inputs) if t.world.slot_get(one.fake, "data") is not MISSING
        )
        attributes = {"moved_inputs": moved} if moved else {}
        if told := frozenset(t.inputs.told_last()):
            attributes["told_inputs"] = told
        if size := t.gradient_bytes or gradient_bytes_at_a_time():
            attributes["gradient_bytes"] = frozenset([size])
        captured = CapturedGraph(module, t.inputs.as_given(), t.shape_env, self.root.name, grad, attributes)
        captured.attributes["draws"] = t.mode.draws
        return captured


def _told(error: BaseException) -> str:
    """What an error says, which may show numbers that only the graph computes."""
    try:
        return f"{type(error).__name__}: {error}"
    except GraphBreak:
        return type(error).__name__


def _advanced(revived: tuple[Any, TracedGenerator]) -> CallEffect:
    """What the trace did with a generator from outside."""
    real, made = revived
    if made.is_broken:
        return CallEffect(running, (real,), {})
    return CallEffect(put, (real, None if made.finished else Carry(made)), {})


def _stepped(t: Tracer, early: bool) -> list[Effect]:
    """What the trace did with iterators from outside. Those over lists take items that the trace has added, so they
    follow its changes; others do not survive these."""
    ones = [one for one in t.standing.values() if early is not isinstance(one.container, list)]
    done = [CallEffect(use_up, (one.real,), {}) for one in ones if one.ended]
    return [*done, *(CallEffect(step, (one.real, one.steps), {}) for one in ones if one.steps and not one.ended)]


def _states(
    frames: tuple[Frame, ...], module_calls: Sequence[tuple[int, int]], handled: BaseException | None
) -> tuple[FrameState, ...]:
    """Frames from the outermost in, each with the exception it handles: the one that its callees found when they were entered."""
    states: list[FrameState] = []
    for outer, frame in itertools.pairwise(frames):
        if frame.is_polyfill:  # each place that does the operation has code of its own behind the break
            frame.name = f"{frame.code.co_name} in {outer.name} at {outer.op.offset}"
    for place, frame in reversed(list(enumerate(frames))):
        through = tuple(count for at, count in reversed(module_calls) if at == place)
        states.append(_state(frame, handled, through, entered=bool(states)))
        index = frame.program.index_of(frame.op.offset)
        layout = layouts(frame.program)[index]
        if layout is not None and layout.handling:
            handled = frame.saved[layout.handling[0]]
        if is_traced_generator(frame.generator):
            handled = frame.generator.exception_around
    return tuple(reversed(states))


def _state(frame: Frame, handled: BaseException | None, through: tuple[int, ...], entered: bool) -> FrameState:
    """The frame without its dead locals, unless they hold what is closed when the frame ends."""
    stack = frame.saved[: len(frame.saved) - operand_count(frame.op)] if entered else frame.saved
    bound = [*(v is not NULL for v in stack), *(True,) * entered]
    index = frame.program.index_of(frame.op.offset)
    try:
        kept = frozenset[str]() if frame.is_polyfill else kept_locals(frame)
        point = point_at(frame.program, index, bound, frame.locals, kept, entered)
        step_code(point)
    except Unsupported as error:
        raise CannotCapture(BreakReason("unsupported-opcode", str(error), frame.location())) from None
    live = {name: frame.locals[name] for name in point.locals}
    return FrameState(
        frame.code,
        frame.globals,
        frame.op.offset,
        tuple(stack),
        live,
        kept_cells(frame, index, kept),
        frame.name,
        handled if point.handled else None,
        entered,
        frame.generator,
        through,
    )
