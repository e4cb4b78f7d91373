"""Generators of the traced program: real iterator objects whose steps are interpreted.

Holds:  C code (`list`, `zip`, `sorted`...) may drive them; each step enters the interpreter again.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

from pliant.capture.bytecode.resume import resume_freevars
from pliant.capture.carried import BRING, CarriedItems, Numbered, Suspended
from pliant.capture.graph_breaks import GraphBreak, Raised
from pliant.capture.trace import NULL
from pliant.capture.world import concrete
from pliant.guards.kinds import Kind
from pliant.guards.sources import AttributeSource, ItemSource, Source

if TYPE_CHECKING:
    from pliant.capture.frame import Frame
    from pliant.capture.tracer import Tracer


class TracedGenerator:
    """A suspended frame with the generator protocol. Exceptions leave as themselves, as C code expects."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.started = False
        self.finished = False
        self.running = False

    def __iter__(self) -> TracedGenerator:
        return self

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
        from pliant.capture.frame import Yielded

        self.running = True
        tracer = self.frame.tracer
        outer, tracer.current_exception = tracer.current_exception, tracer.current_exception
        try:
            result = self.frame.run() if error is None else self.frame.throw(error)
        except Raised as raised:
            self.finished = True
            if isinstance(raised.error, StopIteration):
                failure = RuntimeError("generator raised StopIteration")
                failure.__cause__ = raised.error
                raise failure from raised.error
            raise raised.error from raised.error.__cause__
        except BaseException:
            self.finished = True
            raise
        finally:
            self.running = False
            tracer.current_exception = outer
        if isinstance(result, Yielded):
            return result.value
        self.finished = True
        raise StopIteration(result.value)

    def throw(self, error: Any, value: Any = None, traceback: Any = None) -> Any:
        if isinstance(error, type):
            error = error() if value is None else (value if isinstance(value, error) else error(value))
        if self.finished or not self.started:
            self.finished = True
            raise error
        return self._step(error)

    def close(self) -> None:
        if self.finished or not self.started:
            self.finished = True
            return
        try:
            self.throw(GeneratorExit())
        except (GeneratorExit, StopIteration):
            return
        raise RuntimeError("generator ignored GeneratorExit")


class TracedIterator:
    """An iterator written as one of our own generators, whose `Raised` become plain exceptions for C code."""

    def __init__(self, steps: Generator[Any, Any, Any]) -> None:
        self.steps = steps

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            return next(self.steps)
        except Raised as raised:
            raise raised.error from raised.error.__cause__


def _resumed(t: Tracer, real: Suspended, source: Source) -> TracedGenerator:
    """A generator that was carried over a break, to be interpreted further."""
    from pliant.capture.frame import Frame

    world, place, point = t.world, real.place, real.place.point
    world.guard(AttributeSource(source, "generator"), Kind.IDENTITY, None)
    if real.generator is not None:
        raise GraphBreak("unknown-object", "a generator from outside is advanced")
    world.guard(AttributeSource(source, "place"), Kind.IDENTITY, place)
    for i, cell in enumerate(real.cells):
        world.set_origin(cell, ItemSource(AttributeSource(source, "cells"), i))
    values = (world.bring(v, ItemSource(AttributeSource(source, "values"), i)) for i, v in enumerate(real.values))
    stack = [next(values) if bound else NULL for bound in point.stack]
    local = dict(zip(point.locals, values, strict=True))
    cells = dict(zip(resume_freevars(point.code), real.cells, strict=True))
    frame = Frame(t, point.code, place.globals, local, cells, place.name, False)
    frame.stack.extend(stack[:-1])  # without what was yielded
    frame.ip = frame.program.index_of(point.offset) + 1
    frame.op = frame.program.ops[frame.ip - 1]
    made = TracedGenerator(frame)
    made.started = True
    return made


BRING[Suspended] = _resumed

# Iterators of our own: C code may drive them, and so may handlers, without interpreting their methods.
OURS: frozenset[type] = frozenset((TracedGenerator, TracedIterator, CarriedItems, Numbered))


class TracedCallable:
    """Given to C code in place of a function of the program."""

    def __init__(self, tracer: Tracer, function: Any, truth: bool) -> None:
        self.tracer = tracer
        self.function = function
        self.truth = truth

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.tracer.steps += 1  # what broke in here did not break before the operation did anything
        try:
            result = self.tracer.call(self.function, args, kwargs)
            return bool(concrete(self.tracer.truth(result))) if self.truth else result
        except Raised as raised:
            raise raised.error from raised.error.__cause__
