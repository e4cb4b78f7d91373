"""Tracebacks of exceptions that the traced program raises and handles, as CPython makes them.

In:     the frames that an exception passes, with the operation that each of them was doing.
Out:    `passed(error, ...)`: one more entry at the front of the exception's traceback.
Holds:  an entry has the program's file, function, line and columns; its frame keeps the program's globals alive and nothing
        else: no locals, no caller. What asks for those is not captured.
"""

from __future__ import annotations

import dis
import functools
import inspect
import os
import types
from typing import Any

from pliant.torch_adapter import module_call, wrapped_module_call

OWN_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
# What the frame of an entry does not have as the program's had it.
LOST = frozenset(("f_locals", "f_back", "f_lasti", "f_lineno", "f_trace", "clear"))


def chain(error: BaseException, context: BaseException | None) -> None:
    """Say what was handled when it was raised. A `__setattr__` of the program's is not asked."""
    vars(BaseException)["__context__"].__set__(error, context)


def context_of(error: BaseException) -> BaseException | None:
    found: BaseException | None = vars(BaseException)["__context__"].__get__(error)
    return found


def passed(error: BaseException, code: types.CodeType, namespace: dict[str, Any], offset: int, line: int) -> None:
    """The exception went through a frame of the code. Frames of ours, which the program does not have, are left out."""
    if not code.co_filename.startswith(OWN_FOLDER):
        longer = types.TracebackType(vars(BaseException)["__traceback__"].__get__(error), unstarted_frame(code, namespace), offset, line)
        BaseException.with_traceback(error, longer)  # a class of the program's may say otherwise


def copied(traceback: types.TracebackType) -> types.TracebackType:
    """The same entries: those of one exception may be changed."""
    following = traceback.tb_next and copied(traceback.tb_next)
    return types.TracebackType(following, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)


def unstarted_frame(code: types.CodeType, namespace: dict[str, Any]) -> types.FrameType:
    """The frame of a generator that did not start."""
    cells = tuple(types.CellType() for _ in code.co_freevars)
    generator = types.FunctionType(_suspended(code), namespace, closure=cells)()
    frame: types.FrameType = generator.gi_frame
    return frame


def live_frame(code: types.CodeType, namespace: dict[str, Any]) -> types.FrameType:
    """A frame that stands for one that runs while it is traced."""
    return unstarted_frame(code.replace(co_consts=(*code.co_consts, _LIVE)), namespace)


def is_live(frame: types.FrameType) -> bool:
    return frame.f_code.co_consts[-1:] == (_LIVE,)


_LIVE = "a frame that is traced"


def _suspended(code: types.CodeType) -> types.CodeType:
    """A code of the same name and places, whose call does nothing but make a generator."""
    flags = code.co_flags | inspect.CO_GENERATOR | inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS
    others = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
    opcodes = [dis.opmap["COPY_FREE_VARS"], len(code.co_freevars)] if code.co_freevars else []
    opcodes += [dis.opmap["RETURN_GENERATOR"], 0]
    opcodes += [dis.opmap["NOP"], 0] * ((len(code.co_code) - len(opcodes)) // 2)
    return code.replace(
        co_code=bytes(opcodes),
        co_flags=flags & ~others,
        co_argcount=0,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_exceptiontable=b"",
    )


@functools.cache
def module_calls() -> tuple[tuple[types.CodeType, int], ...]:
    """From the inside out: where `forward` is called, if a module has no hooks, and where that is called."""
    found = []
    for function, which in ((module_call, 0), (wrapped_module_call, -1)):
        calls = [i for i in dis.get_instructions(function) if i.opname == "CALL_FUNCTION_EX"]
        found.append((function.__code__, calls[which].offset))
    return tuple(found)


@functools.lru_cache(maxsize=4096)
def _line_at(code: types.CodeType, offset: int, identity: int) -> int:
    lines = (line for start, end, line in code.co_lines() if start <= offset < end and line is not None)
    return next(lines, code.co_firstlineno)


def line_at(code: types.CodeType, offset: int) -> int:
    """The line of the operation at the offset."""
    return _line_at(code, offset, id(code))  # equal code objects may differ in lines
