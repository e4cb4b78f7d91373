"""The program's frames as it runs: what asks for them finds them without ours between them, and calls are made from where they stood.

Out:    `called_from(...)`: a call that finds the program's file, function and line where it looks for its caller;
        `through_modules(...)`: one from within PyTorch's calls of modules; what stands in for functions that go from frame to frame.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import threading
import traceback
import types
from collections.abc import Callable
from typing import Any

import torch.nn.modules.module as nn_module

from pliant.bytecode.instructions import encode_locations
from pliant.dispatch.own_frames import program_frames
from pliant.dispatch.tracebacks import line_at, module_calls

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
