"""Generators of the traced program: real iterator objects whose steps are interpreted.

Holds:  C code (`list`, `zip`, `sorted`...) may drive them; each step enters the interpreter again. One that is dropped
        while suspended is closed at once, as CPython does.
Source: `Objects/genobject.c` for delegation (`yield from`), `throw` and `close`.
"""

from __future__ import annotations

import gc
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from pliant import peer
from pliant.bytecode.cfg import live_locals
from pliant.bytecode.resume import resume_freevars
from pliant.capture.graph_breaks import Exhausted, GraphBreak, Raised, is_end
from pliant.capture.iterators.carried import BRING, HELD_BY_OTHERS, SHARED, TRACED, Held, shared
from pliant.capture.iterators.endings import ends_itself
from pliant.capture.iterators.standing_iterators import ItsOwnIterator
from pliant.capture.iterators.suspended import Place, StateSource, Suspended, end_of, state_of
from pliant.capture.outside.identity import TracedId
from pliant.capture.signatures import Frame, Tracer
from pliant.capture.structures import reached
from pliant.capture.trace import NULL
from pliant.capture.value_kinds import (
    by_kind,
    concrete,
    derives,
    deriving,
    exactly,
    is_builtin,
    is_class,
    is_exception,
    is_method,
)
from pliant.graph.given_warnings import paused
from pliant.guards.facts import is_own_reference
from pliant.guards.kinds import MISSING, Kind
from pliant.guards.sources import AttributeSource, ItemSource, Source
from pliant.records import dataclass


def _can_be_thrown(error: Any, value: Any, traceback: Any) -> bool:
    """Whether generators take the arguments of `throw`."""
    if traceback is not None and not isinstance(traceback, types.TracebackType):
        return False
    return is_exception(error) and value is None or derives(error, BaseException)


def _made(t: Tracer, cls: Any, args: tuple[Any, ...]) -> BaseException:
    """The exception of a class that was thrown, or the one that is thrown in its place: what the class raised, a complaint."""
    try:
        made = TracedCallable(t, cls, False)(*args)
    except BaseException as error:
        if not t.is_carried(error):
            raise
        return error
    if is_exception(made):
        return made
    return TypeError(f"calling {cls!r} should have returned an instance of BaseException, not {type(made).__name__}")


NAMES = ("__name__", "__qualname__")  # those of the function
_OF_FUNCTIONS = {**dict(zip(NAMES, NAMES)), "gi_code": "__code__"}


def _names_when_called(t: Tracer, function: types.FunctionType) -> dict[str, Any]:
    """Names that a generator keeps, whatever its function is called later. One from outside has others than its code where it
    is wrapped."""
    code = function.__code__
    if t.world.is_foreign(function) and (function.__name__, function.__qualname__) == (code.co_name, code.co_qualname):
        return {}
    return {name: t.get_attr(function, name) for name in NAMES}


UNSTARTED = (place for place in range(0))  # it has what they all have


class TracedGenerator(ItsOwnIterator):
    """A suspended frame with the generator protocol. Exceptions leave as themselves, as C code expects."""

    def __init__(self, frame: Frame, function: types.FunctionType | None = None) -> None:
        self.frame = frame
        self.function = function  # which has been called; None: one that was suspended before
        self.names = {} if function is None else _names_when_called(frame.tracer, function)
        self.started = False
        self.finished = False
        self.running = False
        self.is_broken = False  # a graph break is in its body
        self.is_owned = False  # nothing but an iterator of a loop refers to it, where the trace breaks
        self.handled: BaseException | None = None  # what it was handling when it was suspended
        self.exception_around: BaseException | None = None  # what those handle who asked it for the item
        frame.tracer.open_generators += 1
        frame.tracer.generators.add(self)

    def __getattr__(self, name: str) -> Any:
        if not hasattr(types.GeneratorType, name):
            raise AttributeError(f"'generator' object has no attribute '{name}'")
        if name in self.names:
            return self.names[name]
        if self.function is None or name not in _OF_FUNCTIONS:
            raise GraphBreak("unknown-object", f"`{name}` of a generator")
        return self.frame.tracer.get_attr(self.function, _OF_FUNCTIONS[name])

    def named(self) -> tuple[str, str]:
        """What it is called, and its qualified name."""
        qualified = self.frame.name
        return self.names.get("__name__", qualified.rpartition(".")[2]), self.names.get("__qualname__", qualified)

    @property
    def gi_running(self) -> bool:
        return self.running

    @property
    def gi_suspended(self) -> bool:
        return self.started and not self.finished and not self.running

    @property
    def gi_yieldfrom(self) -> Any:
        return self.frame.delegate() if self.gi_suspended else None

    @property
    def gi_frame(self) -> None:
        if not self.finished:
            raise GraphBreak("unknown-object", "the frame of a generator")

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        if self.finished:
            raise StopIteration
        if self.running:
            raise ValueError("generator already executing")
        if not self.started and value is not None:
            raise TypeError("can't send non-None value to a just-started generator")
        if self.started:
            self.frame.stack.append(value)
        self.started = True
        return self._step()

    def _step(self, error: BaseException | None = None) -> Any:
        self.running = True
        tracer = self.frame.tracer
        outer = tracer.own_exception, tracer.exception_around
        self.exception_around = tracer.current_exception
        tracer.own_exception, tracer.exception_around = self.handled, self.exception_around
        failure: BaseException
        try:
            result = self.frame.run() if error is None else self._throw(error)
        except Raised as raised:
            failure = not_stop_iteration(raised.error)
            self._finish()
        except BaseException:
            self.finished = self.is_broken = True
            raise
        else:
            if result.yields:
                return result.value
            failure = end_of(result.value)
            self._finish()
        finally:
            self.running = False
            self.handled = None if self.finished else tracer.own_exception
            self.exception_around = self.exception_around if self.is_broken else None
            tracer.own_exception, tracer.exception_around = outer
        try:
            raise tracer.carried(failure)
        finally:  # a cycle of the error, its traceback and this frame would keep what the callers hold
            del failure

    def _finish(self) -> None:
        """The generator is at its end, and holds nothing any more: what it alone delegated to is dropped."""
        self.finished = True
        frame = self.frame
        frame.tracer.open_generators -= 1
        frame.check_let_go(kept=())
        frame.forget()

    def _throw(self, error: BaseException) -> Any:
        """Go on with an exception at the suspended `yield`, or in what is delegated to."""
        from pliant.capture.frame import Yielded

        if self.handled is not None and error is not self.handled:
            error.__context__ = self.handled
        receiver = self.frame.delegate()
        if receiver is None:
            return self.frame.throw(error)
        t = self.frame.tracer
        try:
            if isinstance(error, GeneratorExit):
                t.call_if_present(receiver, "close")
                return self.frame.throw(error)
            value = t.call_if_present(receiver, "throw", error)
        except Exhausted as raised:
            return self.frame.end_delegation(raised.error.value)
        except Raised as raised:
            return self.frame.throw(raised.error)
        return self.frame.throw(error) if value is MISSING else Yielded(value)

    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any:
        if not _can_be_thrown(error, value, traceback):
            return (_ for _ in ()).throw(error, value, traceback)  # which complains
        if is_class(error):
            error = value if derives(type(value), error) else _made(self.frame.tracer, error, () if value is None else (value,))
        if self.finished or not self.started:
            self.finished = True
            raise self.frame.tracer.carried(error)  # its context is what it was
        return self._step(error)

    def close(self) -> Any:
        if self.finished or not self.started:
            self.finished = True
            return None
        end = GeneratorExit()
        try:
            self.throw(end)
        except GeneratorExit:
            return None
        except StopIteration as stop:
            return stop.value if sys.version_info >= (3, 13) else None
        finally:
            end.__traceback__ = None  # a cycle of it and the frames that it went through would keep what these hold
        raise RuntimeError("generator ignored GeneratorExit")

    def __del__(self) -> None:
        if self.gi_suspended:
            self.frame.tracer.run_dropped(self.close)


def kept_locals(frame: Frame) -> frozenset[str]:
    """Variables that hold a generator which stands at a `yield`, or an object with a finalizer or weak references: the
    program notices when they are dropped, so they live as long as the frame, dead or not."""
    world = frame.tracer.world
    used = frozenset(id(value) for value in frame.saved if _has_class_of_program(value) and not world.is_foreign(value))
    held = [*frame.locals.items(), *((n, value) for n, cell in _made_cells(frame).items() for value in gc.get_referents(cell))]
    kept = frozenset(name for name, value in held if id(value) in used or _is_missed(value))
    if not frame.tracer.open_generators:
        return kept
    return kept | {name for name, value in held if _holds_suspended(value, world.is_foreign)}


def _made_cells(frame: Frame) -> dict[str, types.CellType]:
    """The cells of the frame that the trace has made: their contents are what they hold now."""
    source_of = frame.tracer.world.source_of
    return {n: frame.cells[n] for n in frame.code.co_cellvars if n in frame.cells and source_of(frame.cells[n]) is None}


def kept_cells(frame: Frame, index: int, kept: frozenset[str]) -> tuple[types.CellType, ...]:
    """The closure of what goes on at an operation: in place of variables that it reads no more, empty cells. Functions
    that share such a variable hold it themselves."""
    dead = _made_cells(frame).keys() - live_locals(frame.program, index) - kept
    return tuple(types.CellType() if n in dead or n not in frame.cells else frame.cells[n] for n in resume_freevars(frame.code))


def _has_class_of_program(value: Any) -> bool:
    """Whether the operation at which a frame stands, given the value, may make a weak reference to it."""
    cls = type(value)
    root = cls.__module__.partition(".")[0]
    return root not in ("builtins", "pliant", "torch") and cls.__weakrefoffset__ != 0


def _is_missed(value: Any) -> bool:
    return _is_reference(value) or ends_noticed(value)


def notice(frame: Frame) -> None:
    """Of what comes from before a break, the frame breaks before it loses what only CPython can end in time."""
    ended = frame.tracer.has_ended
    frame.noticed = {id(value): (value, ended) for value in frame.locals.values() if ends_noticed(value)}
    frame.noticed |= {id(value): (value, ended) for value in frame.stack if end_runs_code(value)}


def notice_arguments(frame: Frame) -> None:
    """The callers hold arguments until the call is done, in Python only the frame does."""
    if frame.tracer.open_generators:
        foreign = frame.tracer.world.is_foreign

        def ended(value: Any) -> bool:
            return not _holds_suspended(value, foreign)

        frame.noticed = {id(value): (value, ended) for value in frame.locals.values() if not ended(value)}


def ends_noticed(value: Any) -> bool:
    """Whether the end of an object runs code of the program, or is seen through a weak reference."""
    if is_builtin(value) or is_method(value):
        value = value.__self__
    return _may_hold(value) and (_is_seen(value) or end_runs_code(value))


def _is_seen(value: Any) -> bool:
    """Whether the program has weak references to the object."""
    if weakref.getweakrefcount(value) == 0:
        return False
    return not all(is_own_reference(one) or peer.is_its_own(one) for one in weakref.getweakrefs(value))


def end_runs_code(value: Any) -> bool:
    """Whether the end of an object, or of what it holds, runs code of the program."""
    return bool(ending_parts(value))


def ending_parts(value: Any) -> list[Any]:
    parts = _parts(value) if _may_hold(value) else ()
    return [part for part in parts if ends_itself(part)]


def _may_hold(value: Any) -> bool:
    """Whether something else may end with it."""
    return not _holds_none(value)


def _parts(value: Any) -> list[Any]:
    """The object and what it holds, the nearest ones: an object that is made of many is taken for one that stays."""
    found, seen = [value], {id(value)}
    for obj in found:
        if gc.is_tracked(obj):
            parts = [p for p in gc.get_referents(obj) if id(p) not in seen and _may_hold(p)]
            seen.update(map(id, parts))
            found += parts
        if len(found) > _NEAREST:
            break
    return found


def _holds_suspended(value: Any, is_foreign: Callable[[Any], bool]) -> bool:
    def behind(obj: Any) -> list[Any]:
        is_last = is_traced_generator(obj) or not gc.is_tracked(obj) or not _may_hold(obj) or is_foreign(obj)
        return [] if is_last else gc.get_referents(obj)

    found = filter(is_traced_generator, reached(value, behind))
    return any(not one.finished or one.is_broken for one in found)  # one that is broken the operation may start


def not_stop_iteration(error: BaseException) -> BaseException:
    """What leaves a generator in which `error` was raised (PEP 479)."""
    if not is_end(error):
        return error
    failure = RuntimeError("generator raised StopIteration")
    failure.__cause__ = failure.__context__ = error
    return failure


is_traced_generator = exactly(TracedGenerator)
TracedGenerator.__name__ = TracedGenerator.__qualname__ = "generator"  # messages name what the program has


def _traced_generator(t: Tracer, value: Any) -> Any:
    known = t.revived.get(id(value))
    if known is None:
        state, source = state_of(value), t.world.source_of(value)
        if state is None or state.place is None or state.generator is not None or source is None:
            return value
        known = t.revived[id(value)] = (value, _resumed(t, state, StateSource(source)))
    return known[1]


def _resumed(t: Tracer, real: Suspended, source: Source) -> TracedGenerator:
    """A generator that was carried over a break, to be interpreted further."""
    from pliant.capture.frame import Frame

    world, place = t.world, real.place
    world.guard(AttributeSource(source, "generator"), Kind.IDENTITY, None)
    if real.generator is not None or place is None:
        raise GraphBreak("unknown-object", "a generator from outside is advanced")
    world.guard(AttributeSource(source, "place"), Kind.IDENTITY, place)
    world.set_origin(real, source)
    if real.live:
        world.slot_set(real, "live", False, "plain")
    point = place.point
    for i, cell in enumerate(real.cells):
        world.set_origin(cell, ItemSource(AttributeSource(source, "cells"), i))
    values = (world.bring(v, ItemSource(AttributeSource(source, "values"), i)) for i, v in enumerate(real.values))
    stack = [next(values) if bound else NULL for bound in point.stack]
    local = dict(zip(point.locals, values, strict=True))
    cells = dict(zip(resume_freevars(point.code), real.cells, strict=True))
    frame = Frame(t, point.code, place.globals, local, cells, place.names[1], False)
    frame.stack.extend(stack[:-1])  # without what was yielded
    notice(frame)
    frame.ip = frame.program.index_of(point.offset) + 1
    frame.op = frame.program.ops[frame.ip - 1]
    made = started(frame)
    made.names = dict(zip(NAMES, place.names, strict=True))
    return made


def started(frame: Frame) -> TracedGenerator:
    """The generator whose frame stands in its body."""
    made = TracedGenerator(frame)
    made.started = True
    return made


def _as_part(t: Tracer, value: Any) -> Any:
    """A generator from outside, from which another iterator takes items."""
    made = _traced_generator(t, value)
    if made is value:
        raise GraphBreak("unknown-object", "a generator from outside is advanced")
    return made


BRING[Suspended] = _resumed
HELD_BY_OTHERS[TracedGenerator] = HELD_BY_OTHERS[types.GeneratorType] = Held(
    lambda one: is_traced_generator(one) and one.gi_suspended, _as_part
)
# The traced form of an iterator or revived generator from outside; any other value is itself.
traced_iterator = by_kind(
    lambda t, value: value, {**dict.fromkeys(SHARED, shared), types.GeneratorType: _traced_generator},
    place=1,
)

# Iterators of our own: C code may drive them, and so may handlers, without interpreting their methods.
OURS: frozenset[type] = frozenset((TracedGenerator, *TRACED, TracedId))


_NEAREST = 64  # how many objects are looked at for what ends with them

_HOLD_NONE: tuple[type, ...] = (
    type, types.FunctionType, types.ModuleType, types.TracebackType, torch.Tensor, Source, *OURS,
    Place,  # its globals are everything
    torch.SymInt, torch.SymFloat, torch.SymBool,  # they lead to all that the trace knows
)  # fmt: skip
_holds_none, _is_reference = deriving(*_HOLD_NONE), deriving(weakref.ref)


@dataclass(eq=False)
class TracedCallable:
    """Given to C code in place of a function of the program."""

    tracer: Tracer
    function: Any
    truth: bool

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.tracer.steps += 1  # what broke in here did not break before the operation did anything
        try:
            with paused():
                result = self.tracer.call(self.function, args, kwargs)
            return bool(concrete(self.tracer.truth(result))) if self.truth else result
        except Raised as raised:
            failure = raised.error
        raise self.tracer.carried(failure)


@dataclass(eq=False)
class TracedCallback:
    """Of a weak reference that the trace made: runs the program's when the referent is dropped."""

    tracer: Tracer
    function: Any

    def __call__(self, reference: weakref.ref[Any]) -> None:
        self.tracer.run_dropped(lambda: self.tracer.call(self.function, (reference,), {}))
