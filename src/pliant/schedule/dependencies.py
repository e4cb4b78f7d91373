"""Which computations must come before which.

In:     a `LoopProgram`.
Out:    for each computation the set of earlier ones it depends on, and the buffers it reads and writes.
Holds:  read after write, write after read (inputs updated in place, scatters) and write after write are all kept.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

from pliant.graph.unbacked import CHECKS
from pliant.ir.loops import Buffer, Computation, Extern, LoopProgram, Pointwise, View
from pliant.records import dataclass
from pliant.schedule.kernel import loads_of


@dataclass(frozen=True, slots=True)
class Access:
    """Buffers one computation reads and writes."""

    reads: frozenset[Buffer]
    writes: frozenset[Buffer]


def views_in(value: Any) -> Iterator[View]:
    """Every view inside nested arguments."""
    if isinstance(value, View):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from views_in(item)
    elif isinstance(value, dict):
        yield from views_in(list(value.values()))


@functools.cache
def access(computation: Computation) -> Access:
    """What a computation reads and writes. Remembered until `forget_accesses`."""
    if isinstance(computation, Extern):
        reads = frozenset(v.buffer for v in views_in([computation.args, computation.kwargs]))
        writes = frozenset(b for b in computation.outs if b is not None) | frozenset(computation.mutates)
        return Access(reads, writes)
    read = {load.buffer for load in loads_of(computation)}
    if isinstance(computation, Pointwise) and computation.accumulate is not None:
        read.add(computation.out)
    return Access(frozenset(read), frozenset((computation.out,)))


def forget_accesses() -> None:
    """Let go of computations; called when a program has been compiled."""
    access.cache_clear()
    loads_of.cache_clear()


def dependencies(program: LoopProgram) -> list[set[int]]:
    """For each computation the indices of the earlier ones that must run before it (direct ones)."""
    writers: dict[Buffer, list[int]] = {}
    readers: dict[Buffer, list[int]] = {}
    result: list[set[int]] = []
    definers: list[int] = []
    for k, computation in enumerate(program.computations):
        touched = access(computation)
        before = set(definers)
        for buffer in touched.reads:
            before.update(writers.get(buffer, ()))
        for buffer in touched.writes:
            before.update(writers.get(buffer, ()))
            before.update(readers.get(buffer, ()))
        if defines_symbols(computation):
            definers.append(k)
        for buffer in touched.reads:
            readers.setdefault(buffer, []).append(k)
        for buffer in touched.writes:
            writers.setdefault(buffer, []).append(k)
        before.discard(k)
        result.append(before)
    return result


def writes_input(c: Computation) -> bool:
    """Whether it writes memory of the caller's."""
    return any(b.role == "input" for b in access(c).writes)


def defines_symbols(c: Computation) -> bool:
    """Calls that bind unbacked symbols, or check them, come before everything later: sizes may use them anywhere."""
    return isinstance(c, Extern) and (bool(c.defines) or c.target in CHECKS)
