"""Which kernels are built already: in this process, on disk, or now.

In:     texts of kernels, an architecture.
Out:    the cubin of each.
Holds:  a kernel is a program of its own under its own key, so it is built once whatever graph it is in; equal text, flags,
        architecture and compiler give the same cubin; those that are nowhere are built side by side.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence

from pliant import background, config
from pliant.cache.key import Key, make_key
from pliant.cache.store import Store, open_store
from pliant.debug import events
from pliant.interruptions import pass_on
from pliant.runtime.cuda import nvrtc
from pliant.runtime.kept import no_space

_COMMENTS = re.compile(r"^\s*//.*\n", re.M)
MOST_THREADS = 8  # more gained nothing when measured
MOST_KNOWN = 1024  # cubins kept in memory; the loaded ones are the driver's

_lock = background.lock()
_known: dict[str, bytes] = {}  # by digest; the oldest goes first


def build_kernels(texts: Sequence[str], architecture: str) -> list[bytes]:
    """The cubins of these texts, in order. CompileError for one that is refused; NoKernels where there is no NVRTC."""
    keys = [key_of(text, architecture) for text in texts]
    wanted = {key.digest: (key, text) for key, text in zip(keys, texts)}
    with _lock:
        found = {digest: _known[digest] for digest in wanted if digest in _known}
    store = open_store("cubins")
    for digest, (key, _) in wanted.items():
        if digest not in found and (cubin := store.get(key, ".cubin")) is not None:
            found[digest] = cubin
    found |= _built({digest: given for digest, given in wanted.items() if digest not in found}, architecture, store)
    with _lock:
        _known.update(found)
        for digest in list(_known)[: max(0, len(_known) - MOST_KNOWN)]:
            del _known[digest]
    return [found[key.digest] for key in keys]


def key_of(text: str, architecture: str) -> Key:
    """The content address of a cubin; comments, which name the program's nodes, do not count."""
    flags = " ".join(nvrtc.FLAGS)
    return make_key(maker=nvrtc.maker(), text=_COMMENTS.sub("", text), flags=flags, architecture=architecture)


def _built(wanted: dict[str, tuple[Key, str]], architecture: str, store: Store) -> dict[str, bytes]:
    """The cubins of these, built now and stored."""
    found, took = dict[str, bytes](), dict[str, float]()

    def build_one(digest: str) -> None:
        started = time.perf_counter()
        found[digest] = nvrtc.compile_text(wanted[digest][1], architecture)
        took[digest] = time.perf_counter() - started

    longest_first = sorted(wanted, key=lambda digest: -len(wanted[digest][1]))
    background.for_each(build_one, longest_first, at_once=_at_once())
    for digest, cubin in found.items():
        events.record("build", name=digest[:12], seconds=took[digest])
        try:
            store.put(wanted[digest][0], cubin, ".cubin")
        except OSError as error:
            pass_on(error)
            raise no_space(str(error.strerror or error)) from error
    return found


def _at_once() -> int:
    return config.get().build.build_jobs or min(MOST_THREADS, os.cpu_count() or 1)


def forget_kernels() -> None:
    """What this process knows; the store keeps what it has."""
    with _lock:
        _known.clear()
