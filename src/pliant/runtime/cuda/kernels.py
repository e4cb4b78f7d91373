"""Which kernels are built already: in this process, on disk, or now.

In:     texts of kernels, an architecture.
Out:    the cubin of each.
Holds:  a kernel has a key of its own, so it is built once whatever graph it is in: equal text, flags, architecture and
        compiler give the same code; those that are nowhere are built side by side.

A program takes 50 ms before its first kernel, so each thread builds one program of several kernels; its cubin is stored
under the key of each.
"""

from __future__ import annotations

import heapq
import os
import re
import time
from collections.abc import Callable, Sequence

from pliant import background, config
from pliant.cache.key import Key, make_key
from pliant.cache.store import Store, open_store
from pliant.debug import events
from pliant.errors import CompileError, NoKernels
from pliant.interruptions import pass_on
from pliant.runtime.cuda import nvrtc
from pliant.runtime.kept import no_space

_COMMENTS = re.compile(r"^\s*//.*\n", re.M)
_COUNTED = re.compile(r"for \(int \w+ = 0; \w+ < (\d+); ")
_WIDE = re.compile(r"\bp_(?:load|store)\w*<(\d+)>")
MOST_THREADS = 24  # more gained nothing when measured: 153 kernels of a training step took 2.2, 1.7, 1.2 and 1.2 s in 8, 16, 24 and 32
MOST_KNOWN = 1024  # cubins kept in memory; the loaded ones are the driver's

_lock = background.lock()
_known: dict[str, bytes] = {}  # by digest; the oldest goes first


def build_kernels(bodies: Sequence[str], prelude: Callable[[str], str], architecture: str) -> list[bytes]:
    """For each kernel a cubin in which it is. `prelude`: what texts need before them. CompileError for a kernel that is
    refused; NoKernels where there is no NVRTC."""
    keys = [key_of(prelude(body) + body, architecture) for body in bodies]
    wanted = dict(zip(keys, bodies))
    with _lock:
        found = {key: _known[key.digest] for key in wanted if key.digest in _known}
    store = open_store("cubins")
    for key in wanted:
        if key not in found and (cubin := store.get(key, ".cubin")) is not None:
            found[key] = cubin
    made = _built({key: body for key, body in wanted.items() if key not in found}, prelude, architecture)
    _keep(made, store)
    found |= made
    with _lock:
        _known.update({key.digest: cubin for key, cubin in found.items()})
        for digest in list(_known)[: max(0, len(_known) - MOST_KNOWN)]:
            del _known[digest]
    return [found[key] for key in keys]


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
    """Kernels by program, which take about equally long."""
    programs: list[tuple[int, int, list[Key]]] = [(0, k, []) for k in range(min(count, len(wanted)))]
    statements = {key: statements_of(body) for key, body in wanted.items()}
    for key in sorted(wanted, key=lambda key: -statements[key]):
        whole, k, keys = heapq.heappop(programs)
        heapq.heappush(programs, (whole + statements[key], k, [*keys, key]))
    return [keys for _, _, keys in programs]


def statements_of(body: str) -> int:
    """About how long a text takes to build: its statements, and the elements of its wide accesses, when loops are unrolled."""
    found, times, unrolled = 0, [1], False
    for line in map(str.strip, body.split("\n")):
        if line == "}":
            times = times[:-1] or [1]
            continue
        loop = _COUNTED.match(line) if unrolled else None
        here = times[-1] * (int(loop[1]) if loop else 1)
        if line.endswith("{"):
            times.append(here)
        found += here * (1 + sum(map(int, _WIDE.findall(line))))
        unrolled = line == "#pragma unroll"
    return found


def _keep(made: dict[Key, bytes], store: Store) -> None:
    for key, cubin in made.items():
        try:
            store.put(key, cubin, ".cubin")
        except OSError as error:
            pass_on(error)
            raise no_space(str(error.strerror or error)) from error


def _at_once() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1  # a container has some
    return config.get().build.build_jobs or min(MOST_THREADS, cores)


def forget_kernels() -> None:
    """What this process knows; the store keeps what it has."""
    with _lock:
        _known.clear()
