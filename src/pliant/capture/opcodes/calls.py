"""Calls: operands off the stack, then `tracer.call`."""

from __future__ import annotations

from typing import Any

from pliant.capture.bytecode.decode import Op
from pliant.capture.bytecode.versions import NULL_BELOW_CALLABLE
from pliant.capture.frame import Frame, Handlers
from pliant.capture.graph_breaks import Raised
from pliant.capture.trace import NULL

ROWS = Handlers()
opcode = ROWS.opcode


@opcode("CALL")
def call(frame: Frame, op: Op) -> None:
    shape: Any = op.arg
    args = frame.popn(shape.count)
    high, low = frame.pop(), frame.pop()
    function, leading = (high, ()) if low is NULL else (low, () if high is NULL else (high,))
    split = len(args) - len(shape.names)
    kwargs = dict(zip(shape.names, args[split:], strict=True))
    frame.push(frame.tracer.call(function, (*leading, *args[:split]), kwargs, linked=True))


@opcode("CALL_FUNCTION_EX")
def call_function_ex(frame: Frame, op: Op) -> None:
    kwargs = dict(frame.tracer.mapping(frame.pop())) if op.arg else {}
    if not all(isinstance(name, str) for name in kwargs):
        raise Raised(TypeError("keywords must be strings"))
    args = tuple(frame.tracer.sequence(frame.pop()))
    function = frame.pop()
    if NULL_BELOW_CALLABLE:
        frame.pop()
    elif function is NULL:
        function = frame.pop()
    frame.push(frame.tracer.call(function, args, kwargs, linked=True))
