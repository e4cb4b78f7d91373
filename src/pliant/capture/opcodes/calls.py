"""Calls: operands off the stack, then `tracer.call`."""

from __future__ import annotations

from typing import Any

from pliant.capture.bytecode.decode import Op
from pliant.capture.frame import Frame, Handlers
from pliant.capture.graph_breaks import Raised
from pliant.capture.signatures import Tracer
from pliant.capture.trace import NULL
from pliant.capture.value_kinds import is_iterable, misused, shown_callable

ROWS = Handlers()


@ROWS.opcode("CALL")
def call(frame: Frame, op: Op) -> None:
    shape: Any = op.arg
    args = frame.popn(shape.count)
    high, low = frame.pop(), frame.pop()
    function, leading = (high, ()) if low is NULL else (low, () if high is NULL else (high,))
    split = len(args) - len(shape.names)
    kwargs = dict(zip(shape.names, args[split:], strict=True))
    frame.push(frame.tracer.call(function, (*leading, *args[:split]), kwargs, linked=True))


@ROWS.takes("CALL_FUNCTION_EX")
def call_function_ex(t: Tracer, op: Op, low: Any, high: Any, items: Any, mapping: Any = None) -> Any:
    kwargs = dict(t.mapping(mapping)) if op.arg else {}
    if not all(isinstance(name, str) for name in kwargs):
        raise Raised(TypeError("keywords must be strings"))
    function = high if low is NULL else low
    if not is_iterable(items):
        raise misused(items, f"{shown_callable(function)} argument after * must be an iterable, not {{}}")
    return t.call(function, tuple(t.sequence(items)), kwargs, linked=True)
