"""A frame that stands at a call, made to call something else.

In:     the frame, Python texts of its stack values, and the text of a function that takes any arguments.
Out:    the texts with the callee replaced by that function and the arguments by placeholders.
Holds:  the operation then calls exactly that function, once, and pushes what it returns. Operations other than calls
        raise
        `CannotReconstruct`, so that capture breaks in the outer frame instead.
"""

from __future__ import annotations

from typing import Any

from pliant.capture.bytecode.decode import decode
from pliant.capture.bytecode.versions import CallArgs
from pliant.capture.reconstruct.statements import CannotReconstruct
from pliant.capture.trace import NULL, FrameState


def with_continuation(frame: FrameState, stack: list[Any], continuation: str) -> list[Any]:
    """The stack (texts, NULL where there is none) with the callee replaced."""
    program = decode(frame.code)
    op = program.ops[program.index_of(frame.offset)]
    out = list(stack)
    match op.name, op.arg:
        case "CALL", CallArgs(count, _):
            first = len(out) - count  # where the arguments start; below them: callee and NULL or receiver
            out[first:] = ["None"] * count
            callee = first - 1 if out[first - 2] is NULL else first - 2
            other = 2 * first - 3 - callee
            out[callee] = f"({continuation})"
            if out[other] is not NULL:
                out[other] = "None"
        case "CALL_FUNCTION_EX", has_keywords:
            first = len(out) - (2 if has_keywords else 1)
            out[first:] = ["()", "{}"][: len(out) - first]
            callee = first - 2 if out[first - 1] is NULL else first - 1
            out[callee] = f"({continuation})"
        case _:
            raise CannotReconstruct("call-operation", frame.code)
    return out
