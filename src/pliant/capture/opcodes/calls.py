"""Calls: operands off the stack, then `tracer.call`."""

from __future__ import annotations

from typing import Any

from pliant.capture.bytecode.decode import Op
from pliant.capture.bytecode.versions import NULL_BELOW_CALLABLE, CallArgs
from pliant.capture.frame import Frame, Handlers
from pliant.capture.graph_breaks import Raised
from pliant.capture.trace import NULL

ROWS = Handlers()
opcode = ROWS.opcode


def _callee(low: Any, high: Any) -> tuple[Any, tuple[Any, ...]]:
    """(callable, leading self) from the two slots under the arguments."""
    if low is NULL:
        return high, ()
    return low, () if high is NULL else (high,)


@opcode("CALL")
def call(frame: Frame, op: Op) -> None:
    shape: Any = op.arg
    count, names = (shape.count, shape.names) if isinstance(shape, CallArgs) else (shape, ())
    args = frame.popn(count)
    high, low = frame.pop(), frame.pop()
    function, leading = _callee(low, high)
    _finish(frame, function, leading, args, names)


@opcode("CALL_KW")
def call_kw(frame: Frame, op: Op) -> None:
    names = frame.pop()
    args = frame.popn(op.arg)  # type: ignore[arg-type]
    high, low = frame.pop(), frame.pop()
    function, leading = _callee(low, high)
    _finish(frame, function, leading, args, names)


def _finish(frame: Frame, function: Any, leading: tuple[Any, ...], args: list[Any], names: tuple[str, ...]) -> None:
    split = len(args) - len(names)
    kwargs = dict(zip(names, args[split:], strict=True))
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
