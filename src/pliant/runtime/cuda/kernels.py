"""Which kernels are built already: in this process, on disk, or now.

In:     texts of kernels, an architecture.
Out:    the cubin of each.
Holds:  a kernel has a key of its own, so it is built once whatever graph it is in: equal text, flags, architecture and
        compiler give the same code; those that are nowhere are built side by side.

A program takes 50 ms before its first kernel, so each thread builds one program of several kernels; its cubin is stored
under the key of each. `Ahead` begins programs while other kernels are still written: `build_kernels` waits for them, and
builds again what failed there, to say so.
"""

from __future__ import annotations

import contextvars
import heapq
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field

from pliant import background, config
from pliant.cache.key import Key, make_key
from pliant.cache.store import Store, open_store
from pliant.debug import events
from pliant.errors import CompileError, NoKernels
from pliant.interruptions import pass_on, suppressed
from pliant.records import dataclass
from pliant.runtime.cuda import nvrtc
from pliant.runtime.kept import no_space

_COMMENTS = re.compile(r"^\s*//.*\n", re.M)
MOST_THREADS = 24  # more gained nothing when measured: 153 kernels of a training step took 2.2, 1.7, 1.2 and 1.2 s in 8, 16, 24 and 32
PROGRAM, MOST_PROGRAM = 3_000, 8_000  # characters of kernels for which a program is begun: more, the more there are
PROGRAMS = 16  # of equal size, which so many characters would make of all that was begun
MOST_KNOWN = 1024  # cubins kept in memory; the loaded ones are the driver's

_lock = background.lock()
_known: dict[str, bytes] = {}  # by digest; the oldest goes first
_begun: dict[str, _Program] = {}  # by digest of the kernels in it; taken out when it is done
_waiting: deque[_Program] = deque()  # those of them that no thread has begun
_threads = 0  # that take them


@dataclass(slots=True, eq=False)
class _Program:
    """Kernels that are built beside. took: seconds, where it was built and nobody was told."""

    wanted: dict[Key, str]
    build: Callable[[], float | None]
    done: threading.Event = field(default_factory=threading.Event)
    took: float | None = None


class Ahead:
    """Builds kernels of a device while others are written."""

    def __init__(self, prelude: Callable[[str], str], architecture: str) -> None:
        self._prelude, self._architecture = prelude, architecture
        self._wanted: dict[Key, str] = {}
        self._begun = 0  # characters

    def add(self, body: str) -> None:
        """A kernel is written. A program begins when there is text enough: few kernels had best be built side by side, and many
        not have a program each."""
        key = key_of(self._prelude(body) + body, self._architecture)
        with _lock:
            if key.digest not in _known and key.digest not in _begun:
                self._wanted[key] = body
        if sum(map(len, self._wanted.values())) >= min(max(PROGRAM, self._begun // PROGRAMS), MOST_PROGRAM):
            self.begin()

    def begin(self) -> None:
        """Build what was added."""
        global _threads
        wanted, self._wanted = self._wanted, {}
        if not wanted:
            return
        self._begun += sum(map(len, wanted.values()))
        context = contextvars.copy_context()
        program = _Program(wanted, lambda: context.run(_build_missing, wanted, self._prelude, self._architecture))
        with _lock:
            _begun.update(dict.fromkeys((key.digest for key in wanted), program))
            _waiting.append(program)
            starts = _threads < _at_once()
            _threads += starts
        started = False
        try:
            started = not starts or background.start(_take_programs, "pliant-build")
        finally:
            if not started:  # nobody is to wait for it
                _end_thread()


def _take_programs() -> None:
    """A thread that builds what waits."""
    program = None
    try:
        while (program := _next()) is not None:
            background.raise_if_ended()
            with suppressed(Exception):  # `build_kernels` meets it again
                program.took = program.build()
            _end(program)
    finally:
        if program is not None:  # the program has ended
            _end(program)
            _end_thread()


def _next() -> _Program | None:
    """What a thread takes; None, and one thread less: there is nothing."""
    global _threads
    with _lock:
        _threads -= not _waiting
        return _waiting.popleft() if _waiting else None


def _end_thread() -> None:
    """A thread that takes nothing more. What waits for none is not built beside."""
    global _threads
    with _lock:
        _threads -= 1
        left = [] if _threads else list(_waiting)
        for _ in left:
            _waiting.popleft()
    for program in left:
        _end(program)


def _end(program: _Program) -> None:
    with _lock:
        for key in program.wanted:
            _begun.pop(key.digest, None)
    program.done.set()


def _in_forked_child() -> None:
    """No thread builds here."""
    global _threads
    _begun.clear()
    _waiting.clear()
    _threads = 0


os.register_at_fork(after_in_child=_in_forked_child)


def _wait(digests: Iterable[str]) -> None:
    """Until those of these kernels that are built beside are."""
    with _lock:
        programs = dict.fromkeys(_begun[digest] for digest in digests if digest in _begun)
    for program in programs:
        program.done.wait()
        if program.took is not None:
            events.record("build", name=next(iter(program.wanted)).digest[:12], seconds=program.took)
            program.took = None


def _build_missing(wanted: dict[Key, str], prelude: Callable[[str], str], architecture: str) -> float | None:
    """Build those that the store has not, as one program. Seconds that it took."""
    store = open_store("cubins")
    stored = {key: cubin for key in wanted if (cubin := store.get(key, ".cubin")) is not None}
    missing = {key: body for key, body in wanted.items() if key not in stored}
    started, bodies = time.perf_counter(), "".join(missing.values())
    made = dict.fromkeys(missing, nvrtc.compile_text(prelude(bodies) + bodies, architecture, keep_refused=False)) if missing else {}
    took = time.perf_counter() - started if missing else None
    _keep(made, store)
    _know(stored | made)
    return took


def build_kernels(bodies: Sequence[str], prelude: Callable[[str], str], architecture: str) -> list[bytes]:
    """For each kernel a cubin in which it is. `prelude`: what texts need before them. CompileError for a kernel that is
    refused; NoKernels where there is no NVRTC."""
    keys = [key_of(prelude(body) + body, architecture) for body in bodies]
    wanted = dict(zip(keys, bodies))
    _wait(key.digest for key in wanted)
    with _lock:
        found = {key: _known[key.digest] for key in wanted if key.digest in _known}
    store = open_store("cubins")
    for key in wanted:
        if key not in found and (cubin := store.get(key, ".cubin")) is not None:
            found[key] = cubin
    made = _built({key: body for key, body in wanted.items() if key not in found}, prelude, architecture)
    _keep(made, store)
    found |= made
    _know(found)
    return [found[key] for key in keys]


def _know(found: dict[Key, bytes]) -> None:
    with _lock:
        _known.update({key.digest: cubin for key, cubin in found.items()})
        for digest in list(_known)[: max(0, len(_known) - MOST_KNOWN)]:
            del _known[digest]


def stored(digest: str) -> bytes:
    """The cubin at this place of the store. NoKernels if it is not there."""
    with _lock:
        known = _known.get(digest)
    path = None if known is not None else open_store("cubins").at(digest, ".cubin")
    if known is None and path is None:
        raise NoKernels(f"the store has no kernel {digest[:12]}", kind="evicted", why="it was removed", do="none")
    return known if path is None else path.read_bytes()  # type: ignore[return-value]  # one of them is there


def key_of(text: str, architecture: str) -> Key:
    """The content address of a kernel's cubin; comments, which name the program's nodes, do not count."""
    flags = " ".join(nvrtc.FLAGS)
    return make_key(maker=nvrtc.maker(), text=_COMMENTS.sub("", text), flags=flags, architecture=architecture)


def _built(wanted: dict[Key, str], prelude: Callable[[str], str], architecture: str) -> dict[Key, bytes]:
    """The cubins of these, built now: as many programs as threads."""
    found, took = dict[Key, bytes](), list[tuple[str, float]]()

    def build_program(keys: list[Key]) -> None:
        started, bodies = time.perf_counter(), "".join(wanted[key] for key in keys)
        try:
            cubin = nvrtc.compile_text(prelude(bodies) + bodies, architecture, keep_refused=len(keys) == 1)
        except CompileError:
            if len(keys) == 1:
                raise
            for key in keys:  # to say which
                build_program([key])
            return
        found.update(dict.fromkeys(keys, cubin))
        took.append((keys[0].digest[:12], time.perf_counter() - started))

    background.for_each(build_program, _programs(wanted, _at_once()), at_once=_at_once())
    for name, seconds in took:  # in this thread: whoever asks what a call did looks at its events
        events.record("build", name=name, seconds=seconds)
    return found


def _programs(wanted: dict[Key, str], count: int) -> list[list[Key]]:
    """Kernels by program, which are about equally long."""
    programs: list[tuple[int, int, list[Key]]] = [(0, k, []) for k in range(min(count, len(wanted)))]
    for key in sorted(wanted, key=lambda key: -len(wanted[key])):
        length, k, keys = heapq.heappop(programs)
        heapq.heappush(programs, (length + len(wanted[key]), k, [*keys, key]))
    return [keys for _, _, keys in programs]


def _keep(made: dict[Key, bytes], store: Store) -> None:
    for key, cubin in made.items():
        try:
            store.put(key, cubin, ".cubin")
        except OSError as error:
            pass_on(error)
            raise no_space(str(error.strerror or error)) from error


def _at_once() -> int:
    return config.get().build.build_jobs or min(MOST_THREADS, os.cpu_count() or 1)


def forget_kernels() -> None:
    """What this process knows; the store keeps what it has."""
    with _lock:
        _known.clear()
