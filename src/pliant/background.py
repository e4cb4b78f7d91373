"""Work beside the program: threads, processes of compilers, and locks, none of which outlives or outwits the program.

In:     functions to run in a thread; commands.
Out:    `start(work, name)`; `begin(work, name)`; `wait(event, seconds)`; `for_each(work, items)`; `run_all(commands)`; `lock()`, `reentrant_lock()`.
        `in_turns(...)`: a block of work that stands back for the program, where it says `give_way()`.
Holds:  no thread of ours runs when the interpreter ends: native code that asks for the interpreter then aborts the
        process. Python joins these threads behind the program's last line; the compilers that they wait for are ended,
        so that this takes no time. A forked child has none of these threads, and finds locks that they held free.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
import signal
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from math import inf
from typing import Any, TypeVar

Item = TypeVar("Item")


class ProgramEnded(Exception):
    """The program has ended: what a thread beside it prepares is of no use."""


class _Here(threading.local):
    """Whether this thread is one beside the program, whether another waits for the errors of what it does, and what is set once it
    has started a process."""

    beside = False
    heard = False
    begun: threading.Event | None = None


_here = _Here()
_locks: weakref.WeakSet[Any] = weakref.WeakSet()
_children: set[subprocess.Popen[str]] = set()  # that threads beside the program wait for
_waited_for: set[threading.Event] = set()
_hurried = 0  # how many wait for threads to end
_ended = False


# ---- locks


def lock() -> threading.Lock:
    """A lock that is free in a forked child, whichever thread of the parent held it."""
    made = threading.Lock()
    _locks.add(made)
    return made


def reentrant_lock() -> Any:
    """The same, for a lock that a thread may take again."""
    made = threading.RLock()
    _locks.add(made)
    return made


_state = lock()


def _in_forked_child() -> None:
    global _hurried
    for one in list(_locks):
        one._at_fork_reinit()
    _children.clear()
    _waited_for.clear()
    _hurried = 0
    _here.beside = False


os.register_at_fork(after_in_child=_in_forked_child)


# ---- threads


def start(work: Callable[[], object], name: str) -> bool:
    """Run `work` in a thread; once the program has ended, not at all: then whoever needs it does it."""

    def run() -> None:
        _here.beside = True
        with contextlib.suppress(ProgramEnded):
            work()

    with _state:
        if not _ended:
            threading.Thread(target=run, name=name, daemon=False).start()
        return not _ended


def begin(work: Callable[[], object], name: str) -> None:
    """The same, for work that starts processes: returns once the first runs, or the work is done. A thread that has to take turns
    with one that computes gets there much later, and the processor that was to run the process stands idle meanwhile.
    """
    begun = threading.Event()

    def run() -> None:
        _here.begun = begun
        try:
            work()
        finally:
            begun.set()

    if start(run, name):
        begun.wait(_LONGEST_BEGINNING)


_LONGEST_BEGINNING = 0.05  # seconds; the thread may wait for something that whoever begins it holds


def finish(name: str = "pliant") -> None:
    """Wait for the work that was started under names that begin so."""
    global _hurried
    here = threading.current_thread()
    try:
        with _state:  # none of them is half started then, which cannot be waited for
            threads = [one for one in threading.enumerate() if one.name.startswith(name) and one is not here]
            _hurried += 1
            _end_waits()
        for thread in threads:
            thread.join()
    finally:
        with _state:
            _hurried -= 1


def wait(event: threading.Event, seconds: float) -> bool:
    """Wait for the event in a thread beside the program: not while somebody waits for this thread. Whether it was set."""
    with _state:
        _waited_for.add(event)
        hurried = is_hurried()
    if not hurried:
        event.wait(seconds)
    with _state:
        _waited_for.discard(event)
        return event.is_set() and not _hurried and not _ended


def is_hurried() -> bool:
    """Whether somebody waits for threads beside the program: these wait for nothing then."""
    return bool(_hurried or _ended)


def _end_waits() -> None:
    for event in _waited_for:
        event.set()


def for_each(work: Callable[[Item], None], items: Sequence[Item], *, at_once: int) -> None:
    """`work(item)` for each, by this thread and others beside it: for calls that release the interpreter's lock. Raises
    this thread's error, which may be a signal handler's, else that of the first item that has one, when all threads are
    done; no item is begun after an error."""
    waiting, errors, here = deque(enumerate(items)), dict[int, BaseException](), threading.get_ident()

    def serve() -> None:
        while waiting:
            try:
                k, item = waiting.popleft()
            except IndexError:  # another thread was faster
                return
            try:
                _raise_if_ended()
                work(item)
            except BaseException as error:
                errors[k] = error
                waiting.clear()
                if threading.get_ident() == here:
                    raise

    others = [_beside(serve) for _ in range(min(at_once, len(items)) - 1)]
    try:
        serve()
    finally:
        waiting.clear()
        for done in others:
            done.wait()
    if errors:
        raise errors[min(errors)]


def _beside(serve: Callable[[], None]) -> threading.Event:
    """Set once the work is done, in this thread's context, or at once where no thread may start."""
    done, context = threading.Event(), contextvars.copy_context()

    def run() -> None:
        try:
            context.run(serve)
        finally:
            done.set()

    if not start(run, "pliant-build"):
        done.set()
    return done


def is_heard() -> bool:
    """Whether the program meets what is raised here: in one of those threads only where `heard` says so."""
    return not _here.beside or _here.heard


@contextlib.contextmanager
def heard() -> Iterator[None]:
    """A block whose errors are raised again by a thread that waits for them."""
    before, _here.heard = _here.heard, True
    try:
        yield
    finally:
        _here.heard = before


# ---- turns


class GivenUp(BaseException):
    """Work in turns is of no use any more: its time is up (`late`), nobody wants its result, or the program has ended. No
    handler of the work's own errors is to meet it."""

    def __init__(self, late: bool) -> None:
        super().__init__()
        self.late = late


class _Turns:
    """The turns of one piece of work. Threads that hold the interpreter's lock give it up when they are asked to, 5 ms later;
    a program that calls operators asks at each of them. So the work gives it up by itself, and long enough to be overtaken."""

    __slots__ = ("_began", "deadline", "wanted")

    def __init__(self, deadline: float, wanted: Callable[[], bool]) -> None:
        self.deadline, self.wanted, self._began = deadline, wanted, time.monotonic()

    def give_way(self, at_once: bool) -> None:
        now = time.monotonic()
        if now - self._began < _TURN and not at_once:
            return
        if _ended or not self.wanted():
            raise GivenUp(late=False)
        if now > self.deadline:
            raise GivenUp(late=True)
        time.sleep(_REST)
        self._began = time.monotonic()


_TURN, _REST = 0.0005, 0.0002  # seconds
_turns: ContextVar[_Turns | None] = ContextVar("pliant_turns", default=None)


@contextlib.contextmanager
def in_turns(seconds: float, wanted: Callable[[], bool]) -> Iterator[None]:
    """A block that gives way, and is given up by `GivenUp` after so many seconds, or once it is not `wanted`."""
    before = _turns.set(_Turns(time.monotonic() + seconds, wanted))
    try:
        yield
    finally:
        _turns.reset(before)


def give_way(at_once: bool = False) -> None:
    """Called by the compiler's stages for each small part of their work: in a block of turns others go first now."""
    if (turns := _turns.get()) is not None:
        turns.give_way(at_once)


def _end() -> None:
    """The program's last line is done; Python is about to join the threads."""
    global _ended
    with _state:
        _ended = True
        _end_waits()
        for process in list(_children):
            _kill(process)


try:
    # Before threads are joined; `atexit` comes behind that.
    threading._register_atexit(_end)  # type: ignore[attr-defined]
except RuntimeError:  # loaded while the program ends
    _ended = True


# ---- processes


class Failed(Exception):
    """A command ended with an error: what it wrote."""

    def __init__(self, command: Sequence[str], output: str) -> None:
        super().__init__(output)
        self.command, self.output = command, output


def run_all(commands: Sequence[Sequence[str]], *, at_once: int, timeout: float) -> None:
    """Run commands, several at once. Raises `Failed` for one that fails, `OSError`, or `subprocess.TimeoutExpired`; then,
    and when anything else interrupts this, none is left running."""
    waiting, running = deque(commands), deque[subprocess.Popen[str]]()
    with _all_ended(running):
        while waiting or running:
            while waiting and len(running) < at_once:
                running.append(_started(waiting.popleft()))
            output = _output_of(running[0], timeout)
            process = running.popleft()
            _children.discard(process)
            if process.returncode != 0:
                _raise_if_ended()
                raise Failed(process.args, output)  # type: ignore[arg-type]


def _output_of(process: subprocess.Popen[str], timeout: float) -> str:
    """What it writes until it ends: while its work has time."""
    turns = _turns.get()
    left = inf if turns is None else max(0.0, turns.deadline - time.monotonic())
    try:
        return process.communicate(timeout=min(timeout, left))[0]
    except subprocess.TimeoutExpired:
        if left <= timeout:
            raise GivenUp(late=True) from None
        raise


@contextlib.contextmanager
def _all_ended(running: deque[subprocess.Popen[str]]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in running:
            _kill(process)
            process.communicate()
            _children.discard(process)


def _started(command: Sequence[str]) -> subprocess.Popen[str]:
    """In a group of its own: compilers start further programs, which are to end with them."""
    with _state:
        _raise_if_ended()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", process_group=0,
        )  # fmt: skip
        if _here.beside:
            _children.add(process)
        if _turns.get() is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):  # the program's own threads go first on the processors, too
                os.setpriority(os.PRIO_PGRP, process.pid, _LATER)
        if _here.begun is not None:
            _here.begun.set()
    return process


_LATER = 5  # of 19


def _raise_if_ended() -> None:
    if _ended and _here.beside:
        raise ProgramEnded


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
