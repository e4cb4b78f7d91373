"""A frame that stands at a call, made to call something else.

In:     the frame, Python texts of its stack values, and the text of a function that takes any arguments.
Out:    the texts with the callee replaced by that function and the arguments by placeholders.
Holds:  the operation then calls exactly that function, once, and pushes what it returns. Operations other than calls raise
        `CannotReconstruct`, so that capture breaks in the outer frame instead.
"""
from __future__ import annotations

import dis
from typing import Any

from pliant.capture.reconstruct import CannotReconstruct
from pliant.capture.trace import NULL, FrameState


def with_continuation(frame: FrameState, stack: list[Any], continuation: str) -> list[Any]:
    """The stack (texts, NULL where there is none) with the callee replaced."""
    op, arg = _operation(frame)
    out = list(stack)
    match op:
        case "CALL" | "PRECALL" | "CALL_KW":
            names = 1 if op == "CALL_KW" else 0
            first = len(out) - names - arg  # where the arguments start; before them: callee and NULL or self
            for i in range(first, first + arg):
                out[i] = "None"
            callee, other = _callee_slots(frame, first)
            out[callee] = f"({continuation})"
            if out[other] is not NULL:
                out[other] = "None"
        case "CALL_FUNCTION_EX":
            has_keywords = arg & 1
            first = len(out) - 1 - has_keywords
            out[first] = "()"
            if has_keywords:
                out[first + 1] = "{}"
            out[_ex_callee(frame, first)] = f"({continuation})"
        case _:
            raise CannotReconstruct("call-operation", frame.code)
    return out


def _operation(frame: FrameState) -> tuple[str, int]:
    """Name and argument of the operation at the frame's offset (EXTENDED_ARG included)."""
    for instruction in dis.get_instructions(frame.code):
        if instruction.offset >= frame.offset and instruction.opname not in ("EXTENDED_ARG", "CACHE"):
            return instruction.opname, instruction.arg or 0
    raise CannotReconstruct("call-operation", frame.code)


def _callee_slots(frame: FrameState, first: int) -> tuple[int, int]:
    """(index of the callee, index of the slot beside it: NULL or the receiver)."""
    below, above = first - 2, first - 1
    if frame.stack[below] is NULL:  # up to CPython 3.12: NULL, callee
        return above, below
    return below, above  # method, receiver; from 3.13 on: callee, NULL or receiver


def _ex_callee(frame: FrameState, first: int) -> int:
    """The callee lies directly below the arguments, or below a NULL (3.13)."""
    return first - 2 if frame.stack[first - 1] is NULL else first - 1
