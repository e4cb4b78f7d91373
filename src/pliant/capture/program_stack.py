"""The frames that the program has around the operation that is traced, also as values, and calls that have such a frame around them.

In:     a tracer, whose frames are those that are interpreted; a level above the operation, or a frame and the name of an attribute.
Out:    `places(t)`: the program's frames from the inside out, down to where the trace starts; `frame_of(t, level)`: the frame, or
        the call that finds it; `traced_attribute(t, place, name)`; `called_from(...)`: a call that
        finds the program's file, function and line where it looks for its caller; `through_modules(...)`.
Holds:  a frame that is traced is nothing that generated code can make: where it is kept across a break or returned, the
        function runs eagerly. The call of a module, whose own code is not interpreted, has its frames here all the same. Where functions of PyTorch's or
        C code's lie between two frames, which are not known, asking for the outer one breaks the graph.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import logging
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch.nn.modules.module as nn_module

from pliant.bytecode.instructions import encode_locations
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.protocols import polyfills
from pliant.capture.protocols.tail_calls import TailCall
from pliant.capture.signatures import Frame, Tracer
from pliant.capture.trace import DELETED
from pliant.capture.tracebacks import line_at, live_frame, module_calls
from pliant.dispatch.own_frames import program_frames
from pliant.guards.kinds import MISSING
from pliant.records import dataclass

LOOKS = "looks-at-frames"


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where a frame of the program stands. `frame`: the one that is traced; for PyTorch's frames of the call of a module the one
    inside them, and `number` counts these."""

    code: types.CodeType
    offset: int
    globals: dict[str, Any]
    frame: Frame
    number: int = 0

    @property
    def is_traced(self) -> bool:
        return self.number == 0

    def is_of(self, other: Place) -> bool:
        """Whether both are of one frame."""
        return self.frame is other.frame and self.number == other.number


def places(t: Tracer) -> Iterator[Place]:
    """From the inside out. GraphBreak where the caller of a frame is not known."""
    t.world.log_unlike()
    for index in range(len(t.frames) - 1, -1, -1):
        frame = t.frames[index]
        if not frame.is_polyfill:
            yield Place(frame.code, frame.op.offset, frame.globals, frame)
        for number, (code, offset) in enumerate(_called_through(t, index), 1):
            yield Place(code, offset, vars(nn_module), frame, number)
        if index and not frame.linked:
            for outer in itertools.takewhile(lambda one: one.is_polyfill, reversed(t.frames[:index])):
                outer.linked = False  # Python does the operation as a whole
            raise GraphBreak(LOOKS, f"what called {frame.code.co_name} is looked at, which C code or PyTorch calls")


def is_of_logging(place: Place) -> bool:
    """Whether loggers pass over the place as they look for their caller: one of their own, as in `Logger.exception`."""
    return place.globals is logging.getLogger.__globals__


def place_at(t: Tracer, level: int, but: Callable[[Place], bool] | None = None) -> tuple[Place | None, int]:
    """The place so many frames out, `but` some not counted; None where the trace starts before it, and how many frames
    remain then."""
    for place in itertools.filterfalse(but or (lambda place: False), places(t)):
        if level == 0:
            return place, 0
        level -= 1
    return None, level


def held_place(t: Tracer, level: int, but: Callable[[Place], bool] | None = None) -> tuple[Any, ...]:
    """What an effect is given of the place so many frames out: how it finds its code, offset and globals as it runs."""
    place, left = place_at(t, level, but)
    if place is None:
        return t.world.hold(place_above, "place_above"), (left,)
    return held_as(t, place.code, place.offset, place.globals)


def held_as(t: Tracer, code: types.CodeType, offset: int, namespace: dict[str, Any]) -> tuple[Any, ...]:
    """The same of a place that is known as it is."""
    held = t.world.hold(code, code.co_name), offset, t.world.hold(namespace, str(namespace.get("__name__")))
    return t.world.hold(known_place, "known_place"), held


def _called_through(t: Tracer, index: int) -> tuple[tuple[types.CodeType, int], ...]:
    """From the inside out: PyTorch's frames between a frame and its caller's."""
    return tuple(one for at, count in reversed(t.module_calls) if at == index for one in module_calls()[-count:])


class FrameValues:
    """The frames that stand for those that are traced: each is a frame that runs nothing, of the same code."""

    def __init__(self) -> None:
        self._made: list[tuple[types.FrameType, Place]] = []

    def of(self, place: Place) -> types.FrameType:
        for made, known in self._made:
            if place.is_of(known):
                return made
        made = live_frame(place.code, place.globals)
        self._made.append((made, place))
        return made

    def place_of(self, value: Any) -> Place | None:
        """Where the frame stands that a value stands for."""
        return next((place for made, place in self._made if made is value), None)

    def forget(self) -> None:
        self._made.clear()


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


# ---- as it runs
RunningPlace = tuple[types.CodeType, int, dict[str, Any]]


def known_place(*place: Any) -> RunningPlace:
    """Of a frame that was traced."""
    return place


def place_above(levels: int) -> RunningPlace:
    """Of the frame so many levels above the caller of the captured function."""
    *_, frame = itertools.islice(program_frames(sys._getframe(1)), levels + 1)
    return frame.f_code, frame.f_lasti, frame.f_globals


def called_from(
    find: Callable[..., RunningPlace], given: tuple[Any, ...], function: Callable[..., Any], /, *args: Any, **kwargs: Any
) -> Any:
    """function(*args, **kwargs), called where the operation at the place is that `find(*given)` finds."""
    code, offset, namespace = find(*given)
    return types.FunctionType(_calling(code, line_at(code, offset), id(code)), namespace)(function, args, kwargs)


def through_modules(counts: tuple[int, ...], call: Callable[[], Any]) -> Callable[[], Any]:
    """The call, made from PyTorch's frames of calls of modules: of each so many, the outer ones."""
    for count in counts:
        for function in _module_frames()[-count:]:
            call = functools.partial(function, call, (), _NOTHING)
    return call


_NOTHING: dict[str, Any] = {}


@functools.cache
def _module_frames() -> tuple[types.FunctionType, ...]:
    """Functions that call another from where PyTorch's call of a module does, from the inside out."""
    calls = ((_calling(code, line_at(code, offset), id(code)), vars(nn_module)) for code, offset in module_calls())
    return tuple(types.FunctionType(code, namespace) for code, namespace in calls)


def _call(function: Any, args: Any, kwargs: Any) -> Any:
    return function(*args, **kwargs)


@functools.lru_cache(maxsize=4096)
def _calling(code: types.CodeType, line: int, identity: int) -> types.CodeType:
    own = _call.__code__
    return own.replace(
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=code.co_firstlineno,
        co_linetable=encode_locations(code.co_firstlineno, [(len(own.co_code) // 2, (line, line, None, None))]),
    )


# ---- what looks at frames as the program runs, without ours between them
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
