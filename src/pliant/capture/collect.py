"""Which values computed by the graph are alive at the end of a trace: they become its outputs.

Holds:  found by a dry run of the code that rebuilds values, so both always agree; CannotReconstruct comes up here first.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from typing import Any

from pliant.bytecode.cfg import ITERATOR, layouts, looks_at_locals
from pliant.bytecode.decode import Program, decode
from pliant.capture.iterators.carried import can_be_carried, parts_of
from pliant.capture.iterators.generators import TracedGenerator, is_traced_generator
from pliant.capture.iterators.suspended import Carry
from pliant.capture.reconstruct.effects import effect_lines
from pliant.capture.reconstruct.objects import Rebuilder
from pliant.capture.trace import NULL, Break, FrameState, Return, Trace
from pliant.capture.value_kinds import is_symbolic
from pliant.errors import Unsupported
from pliant.graph.fake_tensor import is_fake
from pliant.graph.unbacked import is_unbacked
from pliant.guards.codegen import GuardWriter
from pliant.guards.names import Names


class _Collector(Rebuilder):
    """Notes values instead of naming graph outputs."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace, GuardWriter(Names(), {}), [])
        self.values: list[Any] = []
        self._seen: set[int] = set()
        self.reached: collections.Counter[int] = collections.Counter()

    def value(self, obj: Any) -> str:
        self.reached[id(obj)] += 1
        return super().value(obj)

    def times_reached(self, obj: Any) -> int:
        return self.reached[id(obj)]

    def check_reached(self, suspended: Iterable[TracedGenerator]) -> None:
        if any(not self.reached[id(one)] for one in suspended):
            raise Unsupported("a generator stands at a `yield` and is not held by the program any more")

    def _existing(self, obj: Any) -> str | None:
        if id(obj) in self.trace.origins:
            return "origin"
        is_number = is_symbolic(obj)
        if is_fake(obj) or is_unbacked(obj) and not _is_given(obj):
            if id(obj) not in self._seen:
                self._seen.add(id(obj))
                self.values.append(obj)
            return "value"
        return "number" if is_number else None


def _is_given(number: Any) -> bool:
    """Whether the entry knows the number before the graph runs: a drawn one, or made of such."""
    env = number.node.shape_env
    return all(symbol in env.sources for symbol in env.simplify(number.node.expr).free)


def collect_values(trace: Trace, suspended: Iterable[TracedGenerator]) -> tuple[list[Any], Callable[[Any], int]]:
    """Tensors, and numbers computed from their elements, to return from the graph in the order in which the entry needs them;
    and how often the entry makes or gives back a value.

    Unsupported if nothing that is left leads to one of the generators that stand at a `yield`: its end is lost.
    """
    collector = _Collector(trace)
    for effect in trace.effects:
        effect_lines(collector, effect)
    match trace.end:
        case Return(value, generator):
            collector.value(value)
            if generator is not None:
                collector.value(generator)
            collector.check_reached(suspended)
            if generator is not None:
                trace.end = Return(value, _carry(generator, collector.times_reached))
        case Break(frames):
            for frame in frames:
                for value in (*frame.stack, frame.handled, *frame.locals.values(), *frame.cells):
                    if value is not NULL:
                        collector.value(value)
            collector.check_reached(suspended)
            trace.end = replace(
                trace.end, frames=tuple(_with_carried(f, collector.times_reached, trace.origins) for f in frames)
            )
    return collector.values, collector.times_reached


def _with_carried(frame: FrameState, times_reached: Callable[[Any], int], origins: Container[int]) -> FrameState:
    """The frame with its loops' iterators and its generators marked as such, where nothing else refers to them."""
    program = decode(frame.code)
    stack = tuple(_marked(program, frame.offset, frame.stack, times_reached))
    generator = frame.generator if times_reached(frame.generator) or id(frame.generator) in origins else None
    return replace(frame, stack=stack, locals=_marked_locals(program, frame.locals, times_reached), generator=generator)


def _marked(program: Program, offset: int, stack: Sequence[Any], times_reached: Callable[[Any], int]) -> Sequence[Any]:
    layout = layouts(program)[program.index_of(offset)]
    if layout is None or ITERATOR not in layout.stack:
        return stack
    kinds = list(zip(layout.stack, stack))  # a generator's frame lacks the value that it yielded
    at_loop = program.ops[program.index_of(offset)].name == "FOR_ITER"
    return [
        _carry(value, times_reached, at_loop and place == len(kinds)) if kind == ITERATOR else value
        for place, (kind, value) in enumerate(kinds, 1)
    ]


def _marked_locals(program: Program, values: dict[str, Any], times_reached: Callable[[Any], int]) -> dict[str, Any]:
    """Only generators are carried in locals; not where the program could look at all of them."""
    if looks_at_locals(program):
        return values
    return {k: _carry_generator(v, times_reached) for k, v in values.items()}


def _carry(value: Any, times_reached: Callable[[Any], int], is_next: bool = False) -> Any:
    if not can_be_carried(value, times_reached, is_next):
        return _carry_generator(value, times_reached)
    _own_parts(value, times_reached)
    return Carry(value, is_next)


def _own_parts(iterator: Any, times_reached: Callable[[Any], int]) -> None:
    """Mark the generators from which it alone takes items: they end with it."""
    for part in parts_of(iterator):
        if _carry_generator(part, times_reached) is not part:
            part.is_owned = True
        _own_parts(part, times_reached)


def _carry_generator(value: Any, times_reached: Callable[[Any], int]) -> Any:
    started = is_traced_generator(value) and value.started and not value.finished
    if not started or times_reached(value) != 1:
        return value
    frame = value.frame
    delegate = frame.delegate()
    frame.stack[:] = _marked(frame.program, frame.op.offset, frame.stack, times_reached)
    if (carried := _carry_generator(delegate, times_reached)) is not delegate:
        frame.stack[-1] = carried
    frame.locals = _marked_locals(frame.program, frame.locals, times_reached)
    return Carry(value)
