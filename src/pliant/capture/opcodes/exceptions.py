"""Raising, catching, `with`."""

from __future__ import annotations

from typing import Any

from pliant.capture.bytecode.decode import Op
from pliant.capture.frame import Frame, opcode
from pliant.capture.graph_breaks import GraphBreak, Raised


@opcode("RAISE_VARARGS")
def raise_varargs(frame: Frame, op: Op) -> None:
    count: Any = op.arg
    if count == 0:
        current = frame.tracer.current_exception
        if current is None:
            raise Raised(RuntimeError("No active exception to reraise"))
        raise Raised(current)
    values = frame.popn(count)
    error = _instance(frame, values[0])
    if count == 2:
        cause = values[1]
        error.__cause__ = None if cause is None else _instance(frame, cause)
        error.__suppress_context__ = True
    frame.tracer.raise_(error)


def _instance(frame: Frame, value: Any) -> BaseException:
    if isinstance(value, type) and issubclass(value, BaseException):
        value = frame.tracer.call(value, (), {})
    if not isinstance(value, BaseException):
        raise Raised(TypeError("exceptions must derive from BaseException"))
    return value


@opcode("PUSH_EXC_INFO")
def push_exc_info(frame: Frame, op: Op) -> None:
    error = frame.pop()
    frame.push(frame.tracer.current_exception)
    frame.push(error)
    frame.tracer.current_exception = error


@opcode("POP_EXCEPT")
def pop_except(frame: Frame, op: Op) -> None:
    frame.tracer.current_exception = frame.pop()


@opcode("CHECK_EXC_MATCH")
def check_exc_match(frame: Frame, op: Op) -> None:
    wanted = frame.pop()
    error = frame.stack[-1]
    try:
        frame.push(issubclass(type(error), wanted))
    except TypeError as wrong:
        raise Raised(wrong) from None


@opcode("RERAISE")
def reraise(frame: Frame, op: Op) -> None:
    error = frame.pop()
    if not isinstance(error, BaseException):
        raise GraphBreak("unsupported-opcode", "re-raising what is no exception")
    raise Raised(error)


@opcode("BEFORE_WITH")
def before_with(frame: Frame, op: Op) -> None:
    manager = frame.stack[-1]
    leave = frame.tracer.special_method(manager, "__exit__")
    enter = frame.tracer.special_method(manager, "__enter__")
    if leave is None or enter is None:
        raise Raised(TypeError(f"'{type(manager).__name__}' object does not support the context manager protocol"))
    result = frame.tracer.call(enter, (), {})
    frame.pop()
    frame.push(leave)
    frame.push(result)


@opcode("WITH_EXCEPT_START")
def with_except_start(frame: Frame, op: Op) -> None:
    """Stack: exit function, lasti, previous exception, exception."""
    error = frame.stack[-1]
    leave = frame.stack[-4]
    frame.push(frame.tracer.call(leave, (type(error), error, error.__traceback__), {}))
