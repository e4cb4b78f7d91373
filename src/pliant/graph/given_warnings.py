"""Warnings that functions of PyTorch give while they are called on fakes.

In:     a block in which such functions are called: `with collected() as found`.
Out:    what they warned of, each with the frame that the warning is about: one of theirs, or how many frames of the program
        lie between. Nothing of it was shown, and no filter was asked.
Holds:  filters that a function itself sets are followed. Warnings of other threads go where they would go anyway. The
        `warnings` module is as the program knows it outside of such blocks, and inside `paused()`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import types
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch.overrides import handle_torch_function

from pliant import background
from pliant.records import dataclass
from pliant.symbolic.sym_node import PRINTED, SymNode

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_WARN = warnings.warn
_EVERY: list[Any] = [("always", None, Warning, None, 0)]
_OF_CPP = "(Triggered internally at "  # `TORCH_WARN` says so, and perhaps it does once a process
_OF_EACH_CALL = ("degrees of freedom is <= 0", "indexing with dtype torch.uint8")  # of those that it says, these it does not


@dataclass(frozen=True, slots=True, eq=False)
class GivenWarning:
    """A warning that was not shown yet. `place`: code, offset and globals of the frame of PyTorch's that it is about; None:
    it is about a frame of the program, `level` frames out."""

    message: Any
    category: type[Warning]
    place: tuple[types.CodeType, int, dict[str, Any]] | None
    level: int
    printed: tuple[SymNode, ...]  # numbers that texts were made of until then

    @property
    def may_be_once(self) -> bool:
        """Whether C++ may not give it a second time."""
        text = str(self.message)
        return _OF_CPP in text and not any(one in text for one in _OF_EACH_CALL)


class _Here(threading.local):
    found: list[GivenWarning] | None = None
    base: types.FrameType | None = None  # what lies outside of it is the program
    taken: int = 0  # how often this thread has taken the module


class _Kept:
    """The warnings module as it was, while some thread collects."""

    def __init__(self) -> None:
        self.lock = background.lock()
        self.users = 0
        self.filters: Any = None  # None: they were not replaced
        self.during: Any = None  # those that hold where no function of PyTorch's sets others
        self.shows: Any = warnings.showwarning
        self.always = False

    def take(self) -> None:
        with self.lock:
            _here.taken += 1  # first: where the stack is too short, neither changes
            self.users += 1
            if self.users == 1:
                if _is_alone():
                    self._replace_filters()
                self.during = warnings.filters
                if warnings.warn is _WARN:
                    warnings.warn = _warned

    def _replace_filters(self) -> None:
        self.filters, self.shows, self.always = warnings.filters, warnings.showwarning, torch.is_warn_always_enabled()
        warnings.filters, warnings.showwarning = _EVERY, _shown
        torch.set_warn_always(True)  # what C++ gives once a process is not given by a capture, which may fail

    def give_back(self) -> None:
        with self.lock:
            _here.taken -= 1
            self.users -= 1
            if self.users == 0:
                if self.filters is not None:
                    warnings.filters, warnings.showwarning = self.filters, self.shows
                    torch.set_warn_always(self.always)
                self.filters = self.during = None
                if warnings.warn is _warned:
                    warnings.warn = _WARN


_here = _Here()
_kept = _Kept()


class collected:
    """Inside, warnings of this thread are collected. A class: each operator that is traced is called in such a block."""

    __slots__ = ("_base", "_outer")

    def __enter__(self) -> list[GivenWarning]:
        self._outer, self._base = _here.found, _here.base
        found: list[GivenWarning] = []
        if self._outer is None:
            _kept.take()
            _here.base, PRINTED.nodes = sys._getframe(1), []
        _here.found = found
        return found

    def __exit__(self, *_: object) -> None:
        _here.found, _here.base = self._outer, self._base
        if self._outer is None:
            PRINTED.nodes = None
            _kept.give_back()


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """Inside, the program is followed, and finds the module as it is."""
    found, base, nodes = _here.found, _here.base, PRINTED.nodes
    if found is None:
        yield
        return
    _here.found = _here.base = PRINTED.nodes = None
    _kept.give_back()
    try:
        yield
    finally:
        _kept.take()
        _here.found, _here.base, PRINTED.nodes = found, base, nodes


def state() -> tuple[Any, ...]:
    """Of this thread, for `bring_back`."""
    return _here.taken, _here.found, _here.base, PRINTED.nodes


def bring_back(before: tuple[Any, ...]) -> None:
    """The state as it was, where the interpreter's stack may have been too short to end what was begun since."""
    taken, _here.found, _here.base, PRINTED.nodes = before
    while _here.taken > taken:
        _kept.give_back()
    while _here.taken < taken:
        _kept.take()


def mark() -> int:
    """How many were collected: what comes after can be forgotten."""
    return len(_here.found or ())


def forget(since: int) -> None:
    """Those of a call that is made again."""
    if _here.found is not None:
        del _here.found[since:]


def are_collected() -> bool:
    """Whether warnings of C code are, here and now."""
    return _here.found is not None and _kept.filters is not None


def _is_alone() -> bool:
    """Whether no other thread of the program can meet filters that are not its own, and bring them back later. Where one can,
    warnings of C code go where they would go anyway."""
    here = threading.current_thread()
    return all(one is here or one.name.startswith("pliant") for one in threading.enumerate())


# ---- in the place of functions of the warnings module
def _warned(message: Any, category: Any = None, stacklevel: int = 1, source: Any = None, **rest: Any) -> None:
    found = _here.found
    if found is None or warnings.filters is not _kept.during or rest or source is not None:
        _WARN(message, category, stacklevel + 1, source, **rest)
        return
    category = type(message) if isinstance(message, Warning) else category or UserWarning
    found.append(_given(message, category, sys._getframe(1), max(stacklevel, 1) - 1))


def _shown(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
    """A warning of C code, or one that filters of PyTorch's own let through."""
    if _here.found is not None:
        _here.found.append(_given(message, category, _giver(), 0))
        return
    action = next((one[0] for one in _kept.filters or () if _takes(one, message, category, lineno)), "default")
    if action == "error":
        raise message
    if action != "ignore":
        _kept.shows(message, category, filename, lineno, file, line)


def _given(message: Any, category: Any, frame: types.FrameType, level: int) -> GivenWarning:
    return GivenWarning(message, category, *_place(frame, level), tuple(PRINTED.nodes or ()))


def _takes(one: Any, message: Any, category: Any, lineno: int) -> bool:
    _, pattern, kind, _, line = one
    text = str(message)
    fits = pattern is None or (text == pattern if isinstance(pattern, str) else pattern.match(text))
    return bool(fits) and issubclass(category, kind) and line in (0, lineno)


def _giver() -> types.FrameType:
    """The innermost frame outside of this module and of the one that shows warnings."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename in (__file__, warnings.__file__):
        frame = frame.f_back
    return frame


def _place(frame: types.FrameType, level: int) -> tuple[tuple[types.CodeType, int, dict[str, Any]] | None, int]:
    for one in _frames_of_eager(frame):
        if level == 0:
            return (one.f_code, one.f_lasti, one.f_globals), 0
        level -= 1
    return None, level


def _frames_of_eager(inner: types.FrameType) -> Iterator[types.FrameType]:
    """PyTorch's frames from the inside out, up to the program's. A function that is recorded has its frame twice: where it
    asks what modes there are, and inside of these."""
    frame: types.FrameType | None = inner
    last, skipping = None, False
    while frame is not None and frame is not _here.base:
        code = frame.f_code
        if code.co_filename.startswith(_PACKAGE) or code is handle_torch_function.__code__:
            skipping = True
        elif skipping and code is last:
            skipping = False
        else:
            skipping, last = False, code
            yield frame
        frame = frame.f_back
