"""Frames of ours among those of the program: in tracebacks of its exceptions, and where it looks at what called it.

In:     the codes and files that the program does not have.
Out:    `tail_of(resume)`; `hide_frames(error)`: the traceback without them; `hiding(call)`: a call whose errors have none;
        `program_frames(frame)`: a frame and those around it, without ours.
"""

from __future__ import annotations

import contextlib
import functools
import os
import types
from collections.abc import Callable, Iterator
from typing import Any

from pliant.guards.generated import GENERATED

# Frames that the program does not have.
RESUMES: set[types.CodeType] = set()  # what calls these stands for the same frame of the program
OWN_CODE: set[types.CodeType] = set()
OWN_FILES: set[str] = set()  # all code of which is ours
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


IN_TAIL = "__pliant_in_tail__"  # where a resume function has the class that says that it goes on


def tail_of(resume: Callable[..., Any]) -> Callable[..., Any]:
    """What an entry that a resume function runs calls at its end instead of the resume function: it only says what goes on."""
    says = resume.__dict__.get(IN_TAIL)
    return resume if says is None else functools.partial(says, resume)


def hide_frames(error: BaseException) -> None:
    """Take frames of ours out of the traceback: they hold what the program no longer holds, perhaps the error itself."""
    last = error.__traceback__
    while last is not None and (step := last.tb_next) is not None:
        if _is_ours(step) or step.tb_next is not None and step.tb_next.tb_frame.f_code in RESUMES:
            last.tb_next = step.tb_next
            with contextlib.suppress(RuntimeError):  # it handles the error just now
                step.tb_frame.clear()
        else:
            last = step


def _is_ours(step: types.TracebackType) -> bool:
    code = step.tb_frame.f_code
    return code in OWN_CODE or code.co_filename.startswith(GENERATED) or code.co_filename in OWN_FILES


def hiding(call: Callable[[], Any]) -> Callable[[], Any]:
    """Calls what lies behind a break, for a frame of the program that handles exceptions."""

    def hidden() -> Any:
        try:
            return call()
        except BaseException as error:
            hide_frames(error)
            error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next
            raise

    return hidden


def program_frames(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """The frame and those around it, without ours. A frame that a resume function has been called from is the same frame of
    the program as that function's."""
    inner: types.CodeType | None = None
    while frame is not None:
        code = frame.f_code
        if inner not in RESUMES and not code.co_filename.startswith((_PACKAGE, GENERATED)):
            yield frame
        inner, frame = code, frame.f_back
