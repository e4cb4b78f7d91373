"""Jumps, loops, returns, generators."""

from __future__ import annotations

from typing import Any

from pliant.bytecode.decode import Op
from pliant.capture.frame import Frame, Handlers, Returned, Yielded
from pliant.capture.graph_breaks import Exhausted, GraphBreak, Raised, is_end
from pliant.capture.handlers.data_dependent import decide
from pliant.capture.idle_runs import note_turn
from pliant.capture.iterators import carried
from pliant.capture.iterators.generators import traced_iterator
from pliant.capture.numbers import marked_rows, progressions, selections
from pliant.capture.protocols import iteration, operators, polyfills
from pliant.capture.protocols.tail_calls import ended, is_tail_call, steps_of
from pliant.capture.value_kinds import concrete, is_function

ROWS = Handlers()
opcode = ROWS.row


@opcode("JUMP")
def jump(frame: Frame, op: Op) -> None:
    _go_to(frame, op)


def _go_to(frame: Frame, op: Op) -> None:
    target: Any = op.target
    if target < frame.ip:
        note_turn(frame)
    frame.ip = target


@opcode("POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE")
def pop_jump(frame: Frame, op: Op) -> Returned | None:
    value = frame.pop()
    if selections.can_be(frame, op, value):
        return selections.select(frame, op, value)
    if decide(frame, op, value) is (op.name == "POP_JUMP_IF_TRUE"):
        _go_to(frame, op)
    return None


@opcode("POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE")
def pop_jump_if_none(frame: Frame, op: Op) -> None:
    if (frame.pop() is None) is (op.name == "POP_JUMP_IF_NONE"):
        _go_to(frame, op)


@opcode("JUMP_IF_TRUE_OR_POP", "JUMP_IF_FALSE_OR_POP")
def jump_or_pop(frame: Frame, op: Op) -> None:
    wanted = op.name == "JUMP_IF_TRUE_OR_POP"
    t, value = frame.tracer, frame.stack[-1]
    truth = steps_of(operators.truth)(t, value)
    if is_tail_call(truth):
        truth, _ = t.call(polyfills.truth_and_value, (value,), {}, linked=True)
    if concrete(truth) == wanted:
        frame.ip = op.target  # type: ignore[assignment]
    else:
        frame.pop()


@opcode("GET_ITER")
def get_iter(frame: Frame, op: Op) -> None:
    t = frame.tracer
    value = t.world.resolve(progressions.items(frame.stack[-1]))
    if marked_rows.take_turns(frame, value):
        return
    carried.refuse_varying_rows(frame, value)
    frame.stack[-1] = t.iterate(carried.by_turns(frame, value), linked=True)


@opcode("FOR_ITER")
def for_iter(frame: Frame, op: Op) -> None:
    t, iterator = frame.tracer, frame.stack[-1]
    note_turn(frame)
    if carried.has_had_its_turn(t, traced_iterator(t, iterator)):
        raise GraphBreak("varying-length", "the next turn of a loop over a list whose length varies")
    try:
        value = steps_of(iteration.next_value)(t, iterator)
        if is_tail_call(value) and is_function(value.function):
            value, _ = t.call(polyfills.step, (iterator,), {}, linked=True)
        else:
            value = ended(t, value, linked=True)
    except Exhausted:
        frame.pop()
        frame.ip = op.target  # type: ignore[assignment]
        return
    frame.push(value)


@opcode("RETURN_VALUE")
def return_value(frame: Frame, op: Op) -> Returned:
    return Returned(frame.pop())


# ---- generators
ROWS.on_operands(
    {
        "RETURN_GENERATOR": lambda t, op: None,  # the frame runs inside a traced generator already; a POP_TOP follows
        "GET_YIELD_FROM_ITER": lambda t, op, value: t.iterate(value),
        "END_SEND": lambda t, op, receiver, value: value,
    }
)


@opcode("YIELD_VALUE")
def yield_value(frame: Frame, op: Op) -> Yielded:
    return Yielded(frame.pop())


@opcode("SEND")
def send(frame: Frame, op: Op) -> None:
    """One step of `yield from`: the sub-iterator's value to yield, or its return value and a jump."""
    value = frame.pop()
    receiver = frame.stack[-1]
    try:
        sent = frame.tracer.send(receiver, value)
    except Exhausted as raised:
        if not op.arg:  # 3.11 pops the iterator here, later versions with END_SEND
            frame.pop()
        frame.push(raised.error.value)
        frame.ip = op.target  # type: ignore[assignment]
        return
    frame.push(sent)


@opcode("CLEANUP_THROW")
def cleanup_throw(frame: Frame, op: Op) -> None:
    """An exception thrown in at `yield from`: StopIteration ends the sub-iterator with its value."""
    error = frame.stack[-1]
    if not is_end(error):
        raise Raised(error)
    frame.popn(3)
    frame.stack.extend((None, error.value))
