"""Capture: interpret a call on fake tensors, recording a graph, guards and effects. Read this first in this folder.

In:     a root (a call, or a frame to resume), the real arguments, the policy for dynamic sizes.
Out:    a `Trace` (`capture.trace`), or `CannotCapture`.
Holds:  values are ordinary Python objects; only tensors are fake and varying numbers symbolic. So C code of Python itself can work on
        them; what it may not see are unguarded objects from outside. Nothing outside changes during a trace.
        A graph break that is met in the middle of an operation restarts the trace, which then stops before that operation.
Reads on: `frame.py` (the loop), `opcodes/`, `calls.py`, `handlers/` (tables), `attributes.py`, `operators.py`, `world.py`, `inputs.py`, `recorder.py`.
"""

from __future__ import annotations

import itertools
import re
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from pliant import config
from pliant.capture import attributes, calls, carried, class_statements, entering, opcodes, operators
from pliant.capture.autodiff import TABLES
from pliant.capture.bytecode.cfg import layouts
from pliant.capture.bytecode.decode import Op, Program
from pliant.capture.bytecode.ops import FORMS, effect, operand_count
from pliant.capture.bytecode.resume import is_generator, point_at, resume_freevars, step_code
from pliant.capture.collect import collect_values
from pliant.capture.dynamic_policy import DynamicPolicy
from pliant.capture.frame import HANDLERS, Frame, Handler, Yielded
from pliant.capture.generators import TracedCallable, TracedGenerator, ends_noticed, kept_locals, started
from pliant.capture.graph_breaks import CannotCapture, GraphBreak, Raised, StartAgain, needs_value
from pliant.capture.handlers.data_dependent import Message
from pliant.capture.handlers.threads import UsedLock
from pliant.capture.inputs import Inputs
from pliant.capture.overrides import Overrides, call_override
from pliant.capture.plain_methods import computes_plainly
from pliant.capture.recorder import Recorder
from pliant.capture.roots import CallableRoot, ResumeRoot, Root, argument_sources
from pliant.capture.settings import Settings
from pliant.capture.tensor_errors import error_of_eager
from pliant.capture.trace import (
    NULL,
    TRACEBACK,
    Break,
    BreakReason,
    CallEffect,
    Draw,
    Effect,
    FrameState,
    Return,
    Trace,
)
from pliant.capture.value_kinds import (
    MUTABLE_CONTAINERS,
    SYMBOLIC_TYPES,
    concrete,
    is_numpy_scalar,
    standard_globals,
    tuple_of,
)
from pliant.capture.world import World
from pliant.errors import ConstraintError, DataDependentError, Unsupported
from pliant.graph.contracts import CapturedGraph
from pliant.graph.fake_tensor import FakeMode, FakeTensor
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import ArgSource, HandledSource, ItemSource, KwargSource, Source, held
from pliant.source import SourceLocation
from pliant.symbolic.shape_env import ShapeEnv

assert opcodes and TABLES  # importing them fills the tables of handlers


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """Options of one capture."""

    max_restarts: int = 16


@dataclass(frozen=True, slots=True)
class Stop:
    """The step of an operation in which an earlier attempt broke. `enter`: it is done as a call of one function, whose
    frame can be cut."""

    step: int
    enter: bool


class _Stopped(BaseException):
    """The trace reached the operation at which an earlier attempt broke."""


_handlers: dict[int, tuple[Program, tuple[Handler, ...]]] = {}


class Tracer:
    """One attempt at a capture: the frames, and what every handler needs."""

    get_attr = attributes.get_attr
    set_attr = attributes.set_attr
    delete_attr = attributes.delete_attr
    super_attr = attributes.super_attr
    binary = operators.binary
    unary = operators.unary
    compare = operators.compare
    identical = operators.identical
    contains = operators.contains
    truth = operators.truth
    negation = operators.negation
    subscript = operators.subscript
    store_subscript = operators.store_subscript
    delete_subscript = operators.delete_subscript
    iterate = operators.iterate
    next = operators.next_value
    send = operators.send
    iterable = operators.iterable
    sequence = operators.sequence
    mapping = operators.mapping
    special_method = operators.special_method
    call = calls.call
    inline = calls.inline
    new_object = calls._new_object
    instantiate = calls.instantiate
    build_class = class_statements.build_class

    def __init__(self, policy: DynamicPolicy, stops: tuple[Stop, ...] = ()) -> None:
        options = config.get()
        shapes = options.shapes
        self.shape_env = ShapeEnv(duck_shape=shapes.duck_sizing, specialize_zero_one=shapes.specialize_zero_one)
        self.inline_depth = options.capture.inline_depth
        self.shape_env.origin_callback = self.location
        self.graph = fx.Graph()
        self.graph.output(())  # replaced at the end; placeholders and calls go before it
        self.mode = FakeMode(self.shape_env, config.get().capture.data_dependent)
        self.inputs = Inputs(self.graph, self.mode, self.shape_env, policy)
        self.world = World(self.inputs, self.location)
        self.inputs.world = self.world
        self.world.bring_carried = lambda value, source: carried.bring_back(self, value, source)
        self.recorder = Recorder(self.graph, self.inputs, self.location)
        self.frames: list[Frame] = []
        self.guarded_leaves: set[Source] = set()
        self.steps = 0
        self.stops = stops
        self.stop_at = stops[0].step if stops else -1
        self.current_exception: BaseException | None = None
        self.broken_frames: tuple[Frame, ...] | None = None
        self.lock: UsedLock | None = None
        self.draws: list[Draw] = []
        self.revived: dict[int, tuple[Any, TracedGenerator]] = {}  # by id: a generator from outside, its traced form
        self.open_generators = 0  # that were started and have not reached their end
        self.overrides = Overrides()
        self.recorder.handle_override = lambda function, args, kwargs: call_override(self, function, args, kwargs)
        self.recorder.overrides = self.inputs.overrides = self.overrides
        self.inference: list[Any] = []  # the blocks of `torch.inference_mode` that are open
        self.questions: dict[Any, Source] = {}  # sources of what a thread is asked
        self.warning_blocks: list[Any] = []  # the `catch_warnings` blocks that are open
        self.caches: dict[int, tuple[Any, Any]] = {}  # by id: a function with a cache, and its cache within the trace
        self.hook_ids = 0  # keys of hooks that were taken
        self.message: Message | None = None  # of a check, while it is made
        self.carrying: tuple[BaseException, BaseException | None, bool] | None = None
        self.failure: CannotCapture | None = None
        self.active = True  # whether what the program does still counts

    def forget(self) -> None:
        """Let go of what the program knows, too: the tracer itself lives until garbage is collected.

        Garbage collection does not see the tensors that autograd's nodes save: those must not lead back here.
        """
        self.active = False
        self.shape_env.origin_callback = None
        for node in self.graph.nodes:
            for value in tree_leaves(node.meta.get("val")):
                if type(value) is FakeTensor:
                    value.node = None
        self.frames.clear()
        self.revived.clear()
        self.broken_frames = self.current_exception = self.carrying = self.failure = None
        self.world.forget()

    # ---- frames
    def handlers(self, program: Program) -> tuple[Handler, ...]:
        """The handler of each operation of a program."""
        found = _handlers.get(id(program))
        if found is None or found[0] is not program:
            found = (program, tuple(HANDLERS.get(op.name, _no_handler) for op in program.ops))
            _handlers[id(program)] = found
        return found[1]

    def enter(self, frame: Frame) -> None:
        self.frames.append(frame)

    def leave(self, frame: Frame) -> None:
        self.frames.pop()

    def stop(self, frame: Frame) -> Handler:
        """The operation at which an earlier attempt broke: how it is entered, else keep the frames and end."""
        if self.failure is not None:
            raise self.failure
        stop, *rest = self.stops
        found = entering.call_of(frame) if stop.enter else None
        if found is None:
            self.note_break()
            raise _Stopped
        self.stops = tuple(rest)
        self.stop_at = rest[0].step if rest else -1
        return entering.handler(found)

    def note_break(self) -> None:
        """Remember the frames as they are at the innermost point of a break."""
        self.active = False
        if self.broken_frames is None:
            self.broken_frames = tuple(self.frames)

    def location(self) -> SourceLocation | None:
        """The innermost line of code that is not PyTorch's."""
        for frame in reversed(self.frames):
            if frame.is_the_users:
                return frame.location()
        return self.frames[-1].location() if self.frames else None

    # ---- running C code on traced values
    def native(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call C code; its exceptions are the program's, except that errors of tensor operations are left to eager."""
        try:
            result = function(*args, **kwargs)
            self.carrying = None  # C code was done with it; its traceback holds the frames, and these what they work on
            return result
        except (Raised, CannotCapture, ConstraintError):
            raise
        except DataDependentError as error:
            raise needs_value(error) from None
        except Unsupported as error:
            raise GraphBreak("unsupported-operator", str(error).splitlines()[0]) from None
        except AssertionError as error:  # never C code's own: a check inside torch or Pliant, not the program's
            raise GraphBreak("unsupported-operator", f"an internal check failed: {error}") from error
        except BaseException as error:
            if self.is_carried(error):  # the program raised it
                raise self.raised(error) from None
            if not isinstance(error, (Exception, GeneratorExit)):
                raise
            missing = isinstance(error, AttributeError) and function is getattr
            if any(isinstance(a, FakeTensor) for a in args) and not (missing or isinstance(error, StopIteration)):
                if (worded := error_of_eager(function, args, kwargs)) is not None:
                    error.__traceback__ = None  # its frames hold what the program's frames hold
                    raise self.raised(worded) from None
                name = getattr(function, "__name__", str(function))
                raise GraphBreak("tensor-error", f"{name}: {type(error).__name__}: {error}") from error
            if any(type(a) in SYMBOLIC_TYPES for a in (*args, *kwargs.values())):  # they complain as Python's own
                return self.native(function, *map(concrete, args), **{k: concrete(v) for k, v in kwargs.items()})
            if _SYMBOLIC_NAME.search(str(error)):
                raise GraphBreak("unknown-object", "C code would look into a symbolic number") from None
            raise self.raised(error) from None

    def raised(self, error: BaseException) -> Raised:
        """An exception that comes out of C code: raised there, or carried through it."""
        error.__traceback__ = None
        carried, self.carrying = self.carrying, None
        if carried is not None and carried[0] is error:
            error.__context__, error.__suppress_context__ = carried[1:]
            error.__traceback__ = TRACEBACK  # where it was raised it got its context
        elif error is not self.current_exception:
            error.__context__ = self.current_exception if isinstance(error, StopIteration) else self.handling()
        return Raised(error)

    def carried(self, error: BaseException) -> BaseException:
        """The exception for C code to carry. Python chains it to what the interpreter itself handles, so its context is kept."""
        self.carrying = error, error.__context__, error.__suppress_context__
        return error

    def handling(self) -> BaseException | None:
        """The exception that is being handled, by the program here or by what called it."""
        if self.current_exception is None:
            self.world.guard(HandledSource(), Kind.IDENTITY, None)
        return self.current_exception

    def is_carried(self, error: BaseException) -> bool:
        return self.carrying is not None and self.carrying[0] is error

    def call_if_present(self, obj: Any, name: str, *args: Any) -> Any:
        """obj.name(*args), or MISSING if it has no such attribute."""
        try:
            method = self.get_attr(obj, name)
        except Raised as raised:
            if isinstance(raised.error, AttributeError):
                return MISSING
            raise
        return self.call(method, args, {})

    def run_dropped(self, run: Callable[[], Any]) -> None:
        """Nobody holds a suspended generator any more, whose `finally` blocks run now, or what a weak reference with a
        callback refers to. An error there is nobody's."""
        if not self.active:
            return
        try:
            run()
        except GraphBreak as stop:
            self.failure = CannotCapture(stop.reason(self.location()))
            self.stop_at = self.steps + 1
        except _Stopped:
            self.failure = CannotCapture(
                BreakReason("unsupported-opcode", "a break in what runs when an object is dropped", None)
            )
            self.stop_at = self.steps + 1
        except Exception:
            pass

    def raise_(self, error: BaseException) -> NoReturn:
        """The program's `raise error`."""
        if error is not self.current_exception and error.__context__ is None:
            error.__context__ = self.handling()
        raise Raised(error)

    def hashable(self, key: Any) -> Any:
        """A value as a dict key or set element: symbolic numbers become concrete; user-defined hashing is refused."""
        if type(key) in SYMBOLIC_TYPES:
            return concrete(key)
        if type(key) is tuple:
            return tuple(self.hashable(k) for k in key)
        if isinstance(key, (str, int, float, FakeTensor, type, types.FunctionType)) or key is None:
            self.world.pin(key)
            return key
        if type(key).__hash__ is None:
            raise Raised(TypeError(f"unhashable type: '{type(key).__name__}'"))
        for name in ("__hash__", "__eq__"):
            method = operators.python_method(self, key, name)
            if method is not None and not standard_globals(method.__globals__) and not _generated_eq(type(key)):
                if computes_plainly(self, key):
                    break
                raise GraphBreak("unknown-object", f"a {type(key).__name__} with its own {name} as a key")
        return key

    def internalize(self, value: Any, within: frozenset[int] = frozenset()) -> Any:
        """The value with every outside container in it replaced by the trace's own copy."""
        value = self.world.adopt(value)
        cls = type(value)
        if id(value) in within:  # it holds itself
            return value
        if cls is list:
            inner = within | {id(value)}
            for i, item in enumerate(value):
                if type(item) in MUTABLE_CONTAINERS or type(item) is tuple:
                    value[i] = self.internalize(item, inner)
        elif cls is tuple or cls is torch.Size:
            items = [self.internalize(v, within) for v in value]
            if any(a is not b for a, b in zip(items, value, strict=True)):
                return tuple(items)
        elif cls is dict:
            inner = within | {id(value)}
            for key, item in value.items():
                if type(item) in MUTABLE_CONTAINERS or type(item) is tuple:
                    value[key] = self.internalize(item, inner)
        elif cls is slice:
            return slice(*(self.internalize(v, within) for v in (value.start, value.stop, value.step)))
        return value

    def concrete_tree(self, value: Any, within: frozenset[int] = frozenset()) -> Any:
        """The value with symbolic numbers in it specialized."""
        if type(value) in SYMBOLIC_TYPES:
            return concrete(value)
        if id(value) in within:
            raise GraphBreak("unknown-object", f"C code would look into a {type(value).__name__} that holds itself")
        if type(value) is list or isinstance(value, tuple):
            inner = within | {id(value)}
            items = [self.concrete_tree(v, inner) for v in value]
            if all(a is b for a, b in zip(items, value, strict=True)):
                return value
            return items if type(value) is list else tuple_of(type(value), items)
        if type(value) is dict:
            inner = within | {id(value)}
            return {k: self.concrete_tree(v, inner) for k, v in value.items()}
        return value

    def refuse_opaque(self, *values: Any, within: frozenset[int] = frozenset()) -> None:
        """Break if C code would look into an object from outside, or run a method written in Python."""
        for value in values:
            if isinstance(value, (FakeTensor, str, int, float, type)) or value is None or id(value) in within:
                continue
            if is_numpy_scalar(value):
                continue
            if type(value) in (list, tuple, set, frozenset, dict):
                parts = (*value, *value.values()) if type(value) is dict else value
                self.refuse_opaque(*parts, within=within | {id(value)})
            elif operators.python_method(self, value, "__eq__") is not None and computes_plainly(self, value):
                continue
            elif self.world.is_opaque(value) and not _safe_outside(value):
                raise GraphBreak("unknown-object", f"a {type(value).__name__} from outside is used by C code")
            elif operators.python_method(self, value, "__eq__") is not None and not _generated_eq(type(value)):
                raise GraphBreak("unknown-object", f"C code would call methods of {type(value).__name__}")
            elif any(operators.python_method(self, value, name) is not None for name in ("__index__", "__float__")):
                raise GraphBreak("unknown-object", f"C code would make a number of a {type(value).__name__}")

    def opaque_truth(self, value: Any) -> Any:
        raise GraphBreak("unknown-object", f"the truth of a {type(value).__name__} from outside")

    def reentrant(self, function: Any, truth: bool = False) -> TracedCallable:
        """A callable for C code that comes back into the interpreter."""
        return TracedCallable(self, function, truth)


_SYMBOLIC_NAME = re.compile(r"\bSym(Int|Float|Bool)\b")  # in the message of an error


def _no_handler(frame: Frame, op: Op) -> NoReturn:
    raise GraphBreak("unsupported-opcode", f"the operation {op.name}")


def _generated_eq(cls: type) -> bool:
    """Comparison written by dataclasses or by PyTorch: reads only its own fields."""
    return hasattr(cls, "__dataclass_fields__") or cls.__module__.partition(".")[0] in ("torch", "enum", "collections")


def _safe_outside(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] in (
        "torch",
        "builtins",
        "enum",
        "functools",
        "types",
        "re",
    ) and not isinstance(value, tuple(MUTABLE_CONTAINERS))


# ---- one capture
def trace(
    root: Root, args: Sequence[Any], kwargs: dict[str, Any], policy: DynamicPolicy, options: TraceOptions
) -> Trace:
    """Capture a call. Nothing observable has happened when this returns or raises, but that lazy modules were made."""
    while True:
        try:
            return _trace(root, args, kwargs, policy, options)
        except StartAgain:
            continue


def _trace(
    root: Root, args: Sequence[Any], kwargs: dict[str, Any], policy: DynamicPolicy, options: TraceOptions
) -> Trace:
    stops, reason = tuple[Stop, ...](), None
    for _ in range(options.max_restarts):
        attempt = _Attempt(Tracer(policy, stops), root, reason)
        found = None
        try:
            found = attempt.run(args, kwargs)
        except CannotCapture as failure:
            entered = next((stop for stop in stops if stop.enter), None)
            if entered is None or failure.reason.kind == "exception":
                raise
            found = _Restart(Stop(entered.step, False), reason or failure.reason)
        finally:
            if not isinstance(found, Trace):
                attempt.t.forget()
        if isinstance(found, Trace):
            return found
        stops = (*(stop for stop in stops if stop.step < found.stop.step), found.stop)
        reason = found.reason
    assert reason is not None
    raise CannotCapture(reason)


@dataclass(frozen=True, slots=True)
class _Restart:
    """Trace again with this stop."""

    stop: Stop
    reason: BreakReason


class _Attempt:
    """Runs a tracer over a root and makes the `Trace`."""

    def __init__(self, tracer: Tracer, root: Root, reason: BreakReason | None) -> None:
        self.t = tracer
        self.root = root
        self.reason = reason
        self.entered = frozenset(stop.step for stop in tracer.stops)

    def run(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Trace | _Restart:
        before = Settings()
        try:
            with self.t.mode, self.t.recorder:
                try:
                    result = self._start(args, kwargs)
                finally:
                    self.t.active = False
                    self.t.overrides.disabled += 1
                    for _ in range(self.t.overrides.devices):  # blocks that a break is in
                        torch._C._pop_torch_function_stack()
                if self.t.failure is not None:
                    raise self.t.failure
                return self._finish(result if isinstance(result, Return) else Return(result), before)
        except GraphBreak as stop:
            found = self._broken(stop.reason(self._break_location()))
        except _Stopped:
            assert self.reason is not None
            found = self._frames_to_split(self.reason, clean=True)
        except Raised as raised:
            raise CannotCapture(
                BreakReason("exception", f"{type(raised.error).__name__}: {raised.error}", raised.where)
            ) from None
        finally:
            self.t.active = False
            self.after = Settings()
            before.restore()
        if isinstance(found, _Restart):
            return found
        if self.t.overrides.modes or self.t.overrides.devices:
            assert self.t.overrides.step is not None
            return _Restart(Stop(self.t.overrides.step, False), found.reason)
        if self.t.lock is not None:
            why = BreakReason("side-effect-call", "a lock is held, and the trace breaks", self._break_location())
            return _Restart(Stop(self.t.lock.step, False), why)
        with self.t.mode, self.t.recorder:
            return self._finish(found, before)

    # ---- starting
    def _start(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        outside = sys.exc_info()[1]
        if outside is not None:
            self.t.current_exception = self.t.world.bring(outside, HandledSource())
        match self.root:
            case CallableRoot(fn):
                return self._call_root(fn, args, kwargs)
            case ResumeRoot():
                return self._resume_root(self.root, args)

    def _call_root(self, fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        world = self.t.world
        world.set_origin(fn, held(fn, getattr(fn, "__qualname__", type(fn).__name__)))
        if isinstance(fn, types.MethodType):
            world.set_origin(fn.__func__, held(fn.__func__, fn.__func__.__qualname__))
            world.set_origin(fn.__self__, held(fn.__self__, "self"))
        traced = tuple(world.bring(a, s) for a, s in zip(args, argument_sources(fn, len(args)), strict=True))
        keywords = {k: world.bring(v, KwargSource(k)) for k, v in kwargs.items()}
        return self.t.call(fn, traced, keywords, linked=True)

    def _resume_root(self, root: ResumeRoot, args: Sequence[Any]) -> Any:
        t, world, point = self.t, self.t.world, root.point
        world.set_origin(root.globals, held(root.globals, ""))
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
            t.current_exception = bring("exception")
        local = {name: bring(name) for name in point.locals}
        frame = Frame(t, point.code, root.globals, local, cells, root.name, True)
        frame.noticed = {id(value): value for value in local.values() if ends_noticed(value)}
        frame.noticed |= {id(value): value for value in stack if type(value) is types.GeneratorType}
        frame.stack.extend(stack)
        del stack  # the frame alone holds what is on it
        frame.ip = frame.program.index_of(point.offset)
        suspended = started(frame) if is_generator(frame.code) else None
        if suspended is None:
            return frame.run().value
        suspended.running = True
        result = frame.run()
        suspended.running = False
        if isinstance(result, Yielded):
            return Return(result.value, suspended)
        suspended.finished = True
        return (result.value,)

    # ---- breaking
    def _break_location(self) -> SourceLocation | None:
        frames = self.t.broken_frames or ()
        for frame in reversed(frames):
            if frame.is_the_users:
                return frame.location()
        return frames[-1].location() if frames else None

    def _broken(self, reason: BreakReason) -> Break | _Restart:
        frames = self.t.broken_frames
        if not frames or not frames[0].linked:
            raise CannotCapture(reason)
        innermost = frames[-1]
        clean = self.t.steps == innermost.steps_at_op and self.t.recorder.count == innermost.nodes_at_op
        operands = innermost.saved[len(innermost.saved) - effect(innermost.op)[0] :]
        clean = clean and not any(isinstance(v, Iterator) for v in operands)  # perhaps advanced
        return self._frames_to_split(reason, clean)

    def _frames_to_split(self, reason: BreakReason, clean: bool) -> Break | _Restart:
        """The frames that can be cut: from the outermost in, as long as each is all that an operation runs."""
        frames = self.t.broken_frames or ()
        depth = 0
        while depth < len(frames) and frames[depth].linked:
            depth += 1
        depth = self._without_torch_frames(frames[:depth])
        if depth == 0:
            raise CannotCapture(reason)
        last = frames[depth - 1]
        if depth < len(frames) or not clean:
            enter = depth < len(frames) and last.op.name in FORMS and last.steps_at_op not in self.entered
            return _Restart(Stop(last.steps_at_op, enter), reason)
        return Break(_states(frames, self.t.current_exception), reason)

    def _without_torch_frames(self, frames: tuple[Frame, ...]) -> int:
        return len(frames)

    # ---- finishing
    def _finish(self, end: Return | Break, before: Settings) -> Trace:
        t = self.t
        t.world.guard_aliases()
        effects: list[Effect] = [*t.world.effects(), *map(_advanced, t.revived.values())]
        after = self.after if isinstance(end, Break) else Settings()
        effects += [CallEffect(setter, arguments, {}) for setter, arguments in after.calls_from(before)]
        for setter, arguments in before.calls_from(after):
            t.graph.call_function(setter, arguments)
        result = Trace(None, t.inputs.inputs, t.world.guards, effects, end, t.world.origins, made=t.world.made)
        result.origins.update({id(made): t.world.origins[id(real)] for real, made in t.revived.values()})
        result.draws = t.draws
        result.lock = t.lock.lock if t.lock is not None else None
        result.forget = t.forget
        try:
            values = collect_values(result)  # of a break, it marks the iterators to carry
        except Unsupported as error:
            why = f" (capture stopped: {end.reason.detail})" if isinstance(end, Break) else ""
            raise CannotCapture(BreakReason("cannot-rebuild", str(error) + why, self._break_location())) from error
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
        module = fx.GraphModule(t.recorder.constants, t.graph)
        moved = frozenset(
            i for i, one in enumerate(t.inputs.inputs) if t.world.slot_get(one.fake, "data") is not MISSING
        )
        attributes = {"moved_inputs": moved} if moved else {}
        captured = CapturedGraph(module, t.inputs.inputs, t.shape_env, self.root.name, grad, attributes)
        captured.attributes["draws"] = t.mode.draws
        return captured


def _advanced(revived: tuple[Any, TracedGenerator]) -> CallEffect:
    """What the trace did with a generator from outside."""
    real, made = revived
    if made.is_broken:
        return CallEffect(carried.running, (real,), {})
    return CallEffect(carried.put, (real, None if made.finished else carried.Carry(made)), {})


def _states(frames: tuple[Frame, ...], handled: BaseException | None) -> tuple[FrameState, ...]:
    """Frames from the outermost in, each with the exception it handles: the one that its callees found when they were entered."""
    states: list[FrameState] = []
    for outer, frame in itertools.pairwise(frames):
        if frame.is_spelled_out:  # each place that does the operation has code of its own behind the break
            frame.name = f"{frame.code.co_name} in {outer.name} at {outer.op.offset}"
    for frame in reversed(frames):
        states.append(_state(frame, handled, entered=bool(states)))
        index = frame.program.index_of(frame.op.offset)
        layout = layouts(frame.program)[index]
        if layout is not None and layout.handling:
            handled = frame.saved[layout.handling[0]]
    return tuple(reversed(states))


def _state(frame: Frame, handled: BaseException | None, entered: bool) -> FrameState:
    """The frame without its dead locals, unless they hold what is closed when the frame ends."""
    names = resume_freevars(frame.code)
    cells = tuple(frame.cells.get(n) or types.CellType() for n in names)
    stack = frame.saved[: len(frame.saved) - operand_count(frame.op)] if entered else frame.saved
    bound = [*(v is not NULL for v in stack), *(True,) * entered]
    index = frame.program.index_of(frame.op.offset)
    try:
        kept = frozenset[str]() if frame.is_spelled_out else kept_locals(frame)
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
        cells,
        frame.name,
        handled if point.handled else None,
        entered,
        frame.generator,
    )
