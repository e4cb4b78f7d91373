"""Operators, subscripts, attributes, comparisons: each asks the tracer, which knows the object model."""

from __future__ import annotations

from pliant.capture import selections
from pliant.capture.bytecode.decode import Op
from pliant.capture.bytecode.ops import call_pair
from pliant.capture.frame import Frame, Handlers, Returned
from pliant.capture.handlers.data_dependent import for_test
from pliant.capture.trace import NULL

ROWS = Handlers()
opcode = ROWS.opcode


@opcode("BINARY_OP")
def binary_op(frame: Frame, op: Op) -> None:
    left, right = frame.popn(2)
    frame.push(frame.tracer.binary(op.arg, left, right, linked=True))


@opcode("UNARY_NEGATIVE", "UNARY_INVERT", "UNARY_POSITIVE")
def unary(frame: Frame, op: Op) -> None:
    frame.push(frame.tracer.unary(op.name, frame.pop(), linked=True))


@opcode("UNARY_NOT")
def unary_not(frame: Frame, op: Op) -> None:
    frame.push(frame.tracer.negation(frame.pop(), linked=True))


@opcode("TO_BOOL")
def to_bool(frame: Frame, op: Op) -> Returned | None:
    value, jump = frame.pop(), frame.program.ops[op.index + 1]
    if selections.can_be(frame, jump, value):
        return selections.select(frame, jump, value)
    frame.push(frame.tracer.truth(for_test(frame, jump, value), linked=True))
    return None


@opcode("COMPARE_OP")
def compare_op(frame: Frame, op: Op) -> None:
    left, right = frame.popn(2)
    frame.push(frame.tracer.compare(op.arg, left, right, linked=True))


@opcode("IS_OP")
def is_op(frame: Frame, op: Op) -> None:
    left, right = frame.popn(2)
    same = frame.tracer.identical(left, right)
    frame.push(not same if op.arg == "is not" else same)


@opcode("CONTAINS_OP")
def contains_op(frame: Frame, op: Op) -> None:
    item, container = frame.popn(2)
    frame.push(frame.tracer.contains(container, item, op.arg == "in", linked=True))


@opcode("BINARY_SUBSCR")
def binary_subscr(frame: Frame, op: Op) -> None:
    container, key = frame.popn(2)
    frame.push(frame.tracer.subscript(container, key, linked=True))


@opcode("STORE_SUBSCR")
def store_subscr(frame: Frame, op: Op) -> None:
    value, container, key = frame.popn(3)
    frame.tracer.store_subscript(container, key, value, linked=True)


@opcode("DELETE_SUBSCR")
def delete_subscr(frame: Frame, op: Op) -> None:
    container, key = frame.popn(2)
    frame.tracer.delete_subscript(container, key, linked=True)


@opcode("BINARY_SLICE")
def binary_slice(frame: Frame, op: Op) -> None:
    container, start, stop = frame.popn(3)
    frame.push(frame.tracer.subscript(container, slice(start, stop), linked=True))


@opcode("STORE_SLICE")
def store_slice(frame: Frame, op: Op) -> None:
    value, container, start, stop = frame.popn(4)
    frame.tracer.store_subscript(container, slice(start, stop), value, linked=True)


# ---- attributes
@opcode("LOAD_ATTR")
def load_attr(frame: Frame, op: Op) -> None:
    frame.push(frame.tracer.get_attr(frame.pop(), op.arg, linked=True))  # type: ignore[arg-type]


@opcode("LOAD_METHOD")
def load_method(frame: Frame, op: Op) -> None:
    """Always pushes the bound attribute with a NULL: both layouts of CALL accept it."""
    value = frame.tracer.get_attr(frame.pop(), op.arg, linked=True)  # type: ignore[arg-type]
    frame.stack.extend(call_pair(value, NULL))


@opcode("STORE_ATTR")
def store_attr(frame: Frame, op: Op) -> None:
    value, obj = frame.popn(2)
    frame.tracer.set_attr(obj, op.arg, value, linked=True)


@opcode("DELETE_ATTR")
def delete_attr(frame: Frame, op: Op) -> None:
    frame.tracer.delete_attr(frame.pop(), op.arg, linked=True)


@opcode("LOAD_SUPER_ATTR", "LOAD_SUPER_METHOD")
def load_super_attr(frame: Frame, op: Op) -> None:
    _function, cls, receiver = frame.popn(3)
    value = frame.tracer.super_attr(cls, receiver, op.arg.name, linked=True)  # type: ignore[attr-defined]
    if op.name == "LOAD_SUPER_ATTR":
        frame.push(value)
    else:
        frame.stack.extend(call_pair(value, NULL))
