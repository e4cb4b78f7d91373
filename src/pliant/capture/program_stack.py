"""The frames that the program has around the operation that is traced, also as values.

In:     a tracer, whose frames are those that are interpreted; a level above the operation, or a frame and the name of an attribute.
Out:    `places(t)`: the program's frames from the inside out, down to where the trace starts; `frame_of(t, level)`: the frame, or
        the call that finds it; `traced_attribute(t, place, name)`.
Holds:  a frame that is traced is nothing that generated code can make: where it is kept across a break or returned, the
        function runs eagerly. The call of a module, whose own code is not interpreted, has its frames here all the same. Where functions of PyTorch's or
        C code's lie between two frames, which are not known, asking for the outer one breaks the graph.
"""

from __future__ import annotations

import itertools
import logging
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch.nn.modules.module as nn_module

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.protocols import polyfills
from pliant.capture.protocols.tail_calls import TailCall
from pliant.capture.signatures import Frame, Tracer
from pliant.capture.trace import DELETED
from pliant.dispatch.running_frames import frame_at, known_place, place_above
from pliant.dispatch.tracebacks import line_at, live_frame, module_calls
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
