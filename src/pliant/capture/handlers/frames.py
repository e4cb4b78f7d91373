"""Calls that look at the frames of the program.

In:     `sys._getframe`, and functions of `inspect` and `traceback` that go from frame to frame; attributes of a frame.
Out:    for a frame that is traced, a frame that stands for it, of which attributes are read here; the others are looked at
        as the program runs, without ours between them.
Holds:  a frame that is traced is nothing that generated code can make: where it is kept across a break or returned, the
        function runs eagerly.
"""

from __future__ import annotations

import functools
import inspect
import sys
import traceback
from types import CodeType
from typing import Any

from pliant.capture.graph_breaks import CannotCapture, GraphBreak
from pliant.capture.handlers.table import Rows
from pliant.capture.program_stack import LOOKS, frame_of, places
from pliant.capture.protocols import polyfills
from pliant.capture.protocols.tail_calls import TailCall
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.trace import BreakReason
from pliant.capture.value_kinds import concrete
from pliant.dispatch.running_frames import (
    current_frames,
    extract_stack,
    format_stack,
    frame_above,
    frame_at,
    print_stack,
    stack,
)

ROWS = Rows()
handles = ROWS.handles


ROWS.refuses(
    (frame_at, frame_above, stack, extract_stack, format_stack, print_stack, current_frames), LOOKS, "frames of the program's callers"
)


@handles(sys._getframe)
def _getframe(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    level = concrete(args[0]) if args else 0
    if kwargs or type(level) not in (int, bool):
        raise GraphBreak("bad-call", "the arguments of sys._getframe")
    return frame_of(t, max(level, 0))


def _looks(function: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    given = inspect.signature(function).bind(*args, **kwargs).arguments
    if given.get("f") is not None:
        raise GraphBreak(LOOKS, "the frames around a given one")
    for _ in places(t):  # each is known
        pass
    return TailCall(polyfills.looked, (function, *args), kwargs)


for _function, _own in (
    (inspect.stack, stack), (traceback.extract_stack, extract_stack), (traceback.format_stack, format_stack),
    (traceback.print_stack, print_stack), (sys._current_frames, current_frames),
):  # fmt: skip
    handles(_function)(functools.partial(_looks, _own))


@handles(inspect.getouterframes)
def _getouterframes(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    given = inspect.signature(inspect.getouterframes).bind(*args, **kwargs).arguments
    frame, context = given["frame"], given.get("context", 1)
    place = t.frame_values.place_of(frame)
    if place is None and t.world.is_foreign(frame):
        return TailCall(polyfills.looked, (stack, context, frame))
    if place is None or not place.is_of(next(places(t))):  # those around the innermost are the stack
        raise GraphBreak(LOOKS, "the frames around a given one")
    return _looks(stack, t, (context,), {})


@handles(traceback.clear_frames)
def _clear_frames(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """Entries that the trace made hold no locals, and one that runs is left alone: nothing is cleared. Only a generator that
    caught the exception and stands at a `yield` would end."""
    known: Any = traceback.clear_frames
    entry = inspect.signature(known).bind(*args, **kwargs).arguments["tb"]
    if t.world.is_foreign(entry):
        return t.inline(known, args, kwargs)
    suspended = {_place(one.frame.code) for one in t.generators if one.gi_suspended}
    while entry is not None and not t.world.is_foreign(entry):
        if _place(entry.tb_frame.f_code) in suspended:
            raise CannotCapture(BreakReason("cannot-rebuild", "the end of a generator in a traceback", t.location()))
        entry = entry.tb_next
    return None if entry is None else t.inline(known, (entry,), {})


def _place(code: CodeType) -> tuple[str, int, str]:
    return code.co_filename, code.co_firstlineno, code.co_qualname
