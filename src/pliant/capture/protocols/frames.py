"""Frames of the program as values: those that are traced, and those that it finds as it runs.

In:     a level above the operation that is traced, or a frame and the name of an attribute.
Out:    `frame_of(t, level)`: the frame, or the call that finds it; `traced_attribute(t, place, name)`; what looks at frames as
        the program runs, without ours between them.
Holds:  a frame that is traced is nothing that generated code can make: where it is kept across a break or returned, the
        function runs eagerly.
"""

from __future__ import annotations

import inspect
import itertools
import sys
import threading
import traceback
import types
from typing import TYPE_CHECKING, Any

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.program_stack import LOOKS, Place, place_at, places
from pliant.capture.protocols import polyfills
from pliant.capture.protocols.tail_calls import TailCall
from pliant.capture.trace import DELETED
from pliant.capture.tracebacks import line_at
from pliant.dispatch.own_frames import program_frames
from pliant.guards.kinds import MISSING

if TYPE_CHECKING:
    from pliant.capture.frame import Frame
    from pliant.capture.tracer import Tracer


def frame_of(t: Tracer, level: int) -> Any:
    """The frame so many levels out."""
    found, _ = place_at(t, level)
    if found is not None:
        return t.frame_values.of(found)
    return TailCall(polyfills.looked, (frame_at, level))


def locals_of(t: Tracer, frame: Frame) -> dict[str, Any]:
    """locals() of the frame; of a class statement, the namespace itself."""
    if frame.class_locals is not None:
        return frame.class_locals
    if t.unread is not None:
        t.unread.show(t, frame.code)
    cells = {name: t.world.cell_get(cell) for name, cell in frame.cells.items()}
    return {**frame.locals, **{name: value for name, value in cells.items() if not any(value is one for one in _NO_VALUE)}}


_NO_VALUE = (MISSING, DELETED)


def traced_attribute(t: Tracer, place: Place, name: str) -> Any:
    """An attribute of a frame that is traced, as it stands now."""
    frame, code = place.frame, place.code
    offset = frame.op.offset if place.is_traced else place.offset
    match name:
        case "f_code":
            return t.world.hold(code, code.co_name)
        case "f_lineno":
            return line_at(code, offset)
        case "f_lasti":
            return offset
        case "f_globals":
            return t.world.hold(place.globals, "globals()")
        case "f_back":
            return _caller(t, place)
        case "f_locals" if place.is_traced and frame.class_locals is None:
            return locals_of(t, frame)
    raise GraphBreak(LOOKS, f"`{name}` of a frame")


def _caller(t: Tracer, place: Place) -> Any:
    level = next((level for level, one in enumerate(places(t)) if one.is_of(place)), None)
    if level is None:
        return None  # it has ended
    return frame_of(t, level + 1)


# ---- as the program runs
def frame_at(level: int) -> types.FrameType:
    """sys._getframe(level) of the program's frame that this is called from."""
    found = next(itertools.islice(program_frames(sys._getframe(1)), level, None), None)
    if found is None:
        raise ValueError("call stack is not deep enough")
    return found


def frame_above(frame: types.FrameType) -> types.FrameType | None:
    """frame.f_back"""
    return next(itertools.islice(program_frames(frame), 1, None), None)


def stack(context: int = 1, frame: types.FrameType | None = None) -> list[inspect.FrameInfo]:
    """inspect.stack, or getouterframes(frame)"""
    frame = frame or sys._getframe(1)
    ours_too = inspect.getouterframes(frame, context)
    known = set(map(id, program_frames(frame)))  # all of them are kept by the list
    return [info for info in ours_too if id(info.frame) in known]


def extract_stack(f: None = None, limit: int | None = None) -> traceback.StackSummary:
    """traceback.extract_stack"""
    frames = [(frame, frame.f_lineno) for frame in program_frames(sys._getframe(1))]
    found = traceback.StackSummary.extract(iter(frames), limit=limit)
    found.reverse()
    return found


def format_stack(f: None = None, limit: int | None = None) -> list[str]:
    """traceback.format_stack"""
    return traceback.format_list(extract_stack(f, limit))


def print_stack(f: None = None, limit: int | None = None, file: Any = None) -> None:
    """traceback.print_stack"""
    traceback.print_list(extract_stack(f, limit), file=file)


def current_frames() -> dict[int, types.FrameType]:
    """sys._current_frames, with the program's frame of this thread."""
    found = sys._current_frames()
    found[threading.get_ident()] = next(program_frames(sys._getframe(1)))
    return found
