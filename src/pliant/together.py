"""Code that is built while the compiler goes on with the next graph of a program.

In:     inside `with together():`, how code is built, and what is to be done once it is.
Out:    `later(build, then)`: whether it is put off. The block ends when all is built and done; `at_end(then)`: what is done
        then, too. `beside(make)`: `make()`, whose code is built in the block that is open, or in one of its own.
Holds:  builds run in threads beside the program, `then` in the thread that opened the block, in order. What fails so ends
        the block with `LateFailure`: whoever opened it does all of it again at once, so that each failure is met where it
        would have been.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TypeVar

from pliant import background
from pliant.debug import events
from pliant.interruptions import pass_on

Made = TypeVar("Made")


class LateFailure(Exception):
    """Code that was built beside could not be built, or not be loaded."""


class _Work:
    """One build and what follows it."""

    def __init__(self, build: Callable[[], object], then: Callable[[], None]) -> None:
        self.build, self.then = build, then
        self.error: BaseException | None = None
        self.ended = threading.Event()
        context = contextvars.copy_context()
        if not background.start(lambda: context.run(self._run), "pliant-build"):
            self.ended.set()

    def _run(self) -> None:
        try:
            with background.heard():
                self.build()
        except BaseException as error:
            self.error = error
        finally:
            self.ended.set()

    def finish(self) -> None:
        if not self.ended.is_set():
            with events.stage("build"):
                self.ended.wait()
        if self.error is not None:
            raise self.error
        self.then()


_open: ContextVar[list[Callable[[], None]] | None] = ContextVar("pliant_together", default=None)


@contextlib.contextmanager
def together() -> Iterator[None]:
    """Put off, inside the block, what `later` is given."""
    works: list[Callable[[], None]] = []
    before = _open.set(works)
    try:
        yield
    finally:
        _open.reset(before)
    try:
        for finish in works:
            finish()
    except Warning:  # which the program wants as an error; it is given once
        raise
    except Exception as error:
        pass_on(error)
        raise LateFailure from error


def beside(make: Callable[[], Made], undo: Callable[[], object] = lambda: None) -> Made:
    """`make()`; what it builds is loaded when the block that is open ends, or here. `undo`: what comes before `make` is called
    again, where code that was put off here failed."""
    if _open.get() is not None:
        return make()
    try:
        with together():
            return make()
    except LateFailure:
        undo()
    return make()


def is_open() -> bool:
    """Whether such a block is open here."""
    return _open.get() is not None


def later(build: Callable[[], object], then: Callable[[], None]) -> bool:
    """Begin to build; `then` follows before the block ends. False, and nothing done, outside such a block."""
    works = _open.get()
    if works is None:
        return False
    works.append(_Work(build, then).finish)
    return True


def at_end(then: Callable[[], None]) -> None:
    """Do this when all that was put off so far is built and loaded: at once outside such a block."""
    works = _open.get()
    if works is None:
        then()
    else:
        works.append(then)
