"""Which loops go through places that neighbouring points share: windows over images.

In:     a computation, or the indices at which a kernel loads.
Out:    the loops of which one thread had best take several points, since these read much of the same.
Holds:  nothing that must be right depends on it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence, Set

from pliant.ir.loops import Axis, Buffer, Reduction
from pliant.ir.scalar import Apply, walk
from pliant.schedule.kernel import Loops, loads_of
from pliant.symbolic.expr import ONE, Expr, Symbol
from pliant.symbolic.traverse import linear_coefficient, substitute

NEAR = (1, 2)  # how far on points lie that share places with one: of windows that step by two every second one does
LEAST_SHARED = 2  # places of a buffer that a point and the next one both read
MOST_PLACES = 8  # points of a loop that a thread takes all at once
MOST_REGISTERS = 56  # of a thread that hold sums: many threads wait for memory at a time, and each reads more than it keeps
LEAST_WIDTH = 2  # elements that a thread takes at a time in spite of that
MOST_SUMS = 9  # that a thread has at once; of larger windows those of a row: with all of 5x5 it reads few elements at a time

Access = tuple[Buffer, Expr]


def sums_products(loops: Loops) -> bool:
    """Whether a computation adds many products up: what it does with what it reads is worth sharing then, and registers are
    left. Averages and maxima find what they share in a cache."""
    return any(isinstance(x, Apply) and x.op == "fma" for x in walk(loops.value))


def reads_windows(loops: Loops) -> bool:
    """Whether a computation sums products of what its neighbours along some loop read too."""
    if not sums_products(loops):
        return False
    accesses = [(x.buffer, x.index) for x in loads_of(loops) if not x.indirect]
    return any(shared_along(accesses, a) for a in loops.axes)


def shared_along(accesses: Iterable[Access], a: Axis) -> int:
    """How many places a point and one behind it along a loop both read: of the buffer of which they are most."""
    places: dict[Buffer, dict[Expr, None]] = defaultdict(dict)
    for buffer, e in accesses:
        if a.symbol in e.free:
            places[buffer][e] = None
    counts = [0]
    for found in places.values():
        if len(found) > LEAST_SHARED:
            counts += [sum(substitute(e, {a.symbol: a.symbol + near}) in found for e in found) for near in NEAR]
    return max(counts) if max(counts) >= LEAST_SHARED else 0


def places_of_sums(accesses: Sequence[Access], outer: Iterable[Axis], reduced: Set[Symbol]) -> list[Axis]:
    """Short loops around a sum along which something large stays as it is while another element meets it: the places of a
    window, or of its rows. A thread that takes them all reads it once."""
    varying = [e for _, e in accesses if reduced & e.free]
    found = [
        a
        for a in outer
        if 1 < (a.extent.as_int() or 0) <= MOST_PLACES
        and any(a.symbol in e.free for e in varying)
        and any(a.symbol not in e.free for e in varying)
        and not any(linear_coefficient(e, a.symbol) is ONE for e in varying)
    ]
    while points_of(found) > MOST_SUMS:
        found = found[1:]
    return found if points_of(found) > 1 else []


def places_of_reduction(c: Reduction) -> list[Axis]:
    """The same for a reduction by itself."""
    accesses = [(x.buffer, x.index) for x in loads_of(c) if not x.indirect]
    return places_of_sums(accesses, c.axes, {a.symbol for a in c.reduce_axes}) if c.op == "sum" and sums_products(c) else []


def points_of(axes: Iterable[Axis]) -> int:
    """Points of loops of known extents."""
    return math.prod(a.extent.as_int() or 0 for a in axes)


def widest(width: int, sums: int) -> int:
    """Elements of memory that a thread takes at a time where it has so many sums of each."""
    while width > LEAST_WIDTH and width * sums > MOST_REGISTERS:
        width //= 2
    return width
