"""The frames that the program has around the operation that is traced, and calls that have such a frame around them.

In:     a tracer, whose frames are those that are interpreted.
Out:    `places(t)`: the program's frames from the inside out, down to where the trace starts; `called_from(...)`: a call that
        finds the program's file, function and line where it looks for its caller; `through_modules(...)`.
Holds:  the call of a module, whose own code is not interpreted, has its frames here all the same. Where functions of PyTorch's or
        C code's lie between two frames, which are not known, asking for the outer one breaks the graph.
"""

from __future__ import annotations

import functools
import itertools
import logging
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch.nn.modules.module as nn_module

from pliant.bytecode.instructions import encode_locations
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.signatures import Frame, Tracer
from pliant.capture.tracebacks import line_at, live_frame, module_calls
from pliant.dispatch.own_frames import program_frames
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
