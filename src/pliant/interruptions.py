"""Exceptions that the program throws into us from beside: a signal handler's (a time limit), another thread's.

In:     an exception that came out of the compiler, perhaps with others as cause and context.
Out:    `pass_on(error)` raises the program's exception if there is one in it, `suppressed(*kinds)` does so before it
        ignores an error; `Beginning`, the state to go back to.
Holds:  such an exception is no failure of the compiler: what would answer one with a fallback passes it on first.

So it is with a warning of ours that the program wants as an error. Any other is known by its traceback: the frame of a
signal handler has the frame that it interrupted among its arguments; an exception thrown by another thread comes from
where no statement raises it, says nothing, and is of a foreign class.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import opcode
import sys
import threading
import types
from collections.abc import Iterator
from typing import Any

from pliant import gc_pause
from pliant.errors import PliantWarning

_RAISES = {opcode.opmap["RAISE_VARARGS"], opcode.opmap["RERAISE"]}
_NEVER_FOREIGN = {"builtins", "pliant", "torch", "numpy", *sys.stdlib_module_names}


class _Here(threading.local):
    """What the program handled when it called the compiler: no news."""

    outside: BaseException | None = None


_here = _Here()


class Beginning:
    """What holds in this thread when a compilation begins, to go back to: code that is interrupted leaves blocks half-way.

    Made before a `try`, restored in its `finally`: a block of its own could be interrupted as any other.
    """

    __slots__ = ("_outside", "_pauses")

    def __init__(self) -> None:
        self._outside, self._pauses = _here.outside, gc_pause.pauses_here()
        _here.outside = sys.exc_info()[1]

    def restore(self) -> None:
        _here.outside = self._outside
        gc_pause.end_pauses_beyond(self._pauses)


def pass_on(error: BaseException) -> None:
    """Raise the program's exception, if this is one or came of one."""
    found = interruption_in(error)
    if found is None:
        return
    context, cause, quiet = found.__context__, found.__cause__, found.__suppress_context__
    try:
        raise found
    finally:
        found.__context__, found.__cause__, found.__suppress_context__ = context, cause, quiet


class suppressed(contextlib.suppress):
    """`contextlib.suppress`, but for the program's exceptions: a time limit's may be an OSError."""

    def __exit__(self, *given: Any) -> bool:
        ignored = super().__exit__(*given)
        if ignored:
            pass_on(given[1])
        return ignored


def interruption_in(error: BaseException) -> BaseException | None:
    """The program's exception among this one, its causes and contexts."""
    waiting, seen = [error], set[int]()
    while waiting:
        one = waiting.pop()
        if one is _here.outside or id(one) in seen:
            continue
        seen.add(id(one))
        if _is_interruption(one):
            return one
        waiting += [other for other in (one.__context__, one.__cause__) if other is not None]
    return None


def _is_interruption(error: BaseException) -> bool:
    if isinstance(error, (KeyboardInterrupt, PliantWarning)):
        return True
    steps = list(_steps(error.__traceback__))
    if any(_handles_signal(inner.tb_frame, outer.tb_frame) for outer, inner in itertools.pairwise(steps)):
        return True
    return bool(steps) and not error.args and _is_foreign(type(error)) and not _raises(steps[-1])


def _steps(step: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while step is not None:
        yield step
        step = step.tb_next


def _handles_signal(frame: types.FrameType, interrupted: types.FrameType) -> bool:
    """Whether it was called with a signal's number and the frame that runs: nothing else is called so."""
    code, values = frame.f_code, frame.f_locals
    names = code.co_varnames[: code.co_argcount]
    given = [values.get(name) for name in names]
    if code.co_flags & inspect.CO_VARARGS:
        given += values.get(code.co_varnames[code.co_argcount + code.co_kwonlyargcount], ())
    return any(issubclass(type(number), int) and place is interrupted for number, place in itertools.pairwise(given))


def _is_foreign(cls: type) -> bool:
    """Whether neither we raise it nor what we call."""
    return cls is TimeoutError or cls.__module__.partition(".")[0] not in _NEVER_FOREIGN


def _raises(step: types.TracebackType) -> bool:
    """Whether a statement of the frame raised."""
    return step.tb_frame.f_code.co_code[step.tb_lasti] in _RAISES
