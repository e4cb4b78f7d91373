"""Choose several points of a kernel that one thread takes: neighbouring results of windows, or all places of a window.

In:     a kernel's loops and accesses to memory, a `Target`.
Out:    `Copies`: the points, written over a loop in place of theirs.
Holds:  the choice affects speed only. The last points along a row may be taken by two threads, of which one stores them.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import field

from pliant.ir.loops import Axis
from pliant.records import dataclass
from pliant.schedule.align import fresh_axis
from pliant.schedule.windows import Access, shared_along
from pliant.symbolic.expr import Expr, Symbol, lit
from pliant.targets.target import Target

FEW_THREADS = 512  # of a multiprocessor: with fewer a thread takes fewer points


@dataclass(frozen=True, slots=True)
class Copies:
    """places: where each point of a thread lies, its own loops over others.

    groups: the loop that runs in place of the one of which a thread takes several points; the first of a group is at `start`,
        which is for the last group so far from the end that all its points are there.
    outer: the plan's outer loops then.
    turns, turn: loops that go through the places one by one, in their order, and a place over these.
    """

    places: list[dict[Symbol, Expr]]
    groups: Axis | None = None
    start: Axis | None = None
    outer: list[Axis] = field(default_factory=list)
    turns: list[Axis] = field(default_factory=list)
    turn: dict[Symbol, Expr] = field(default_factory=dict)

    @property
    def times(self) -> int:
        """How many points a thread takes."""
        return len(self.places)


def all_places(axes: Sequence[Axis], outer: Sequence[Axis]) -> Copies:
    """All points of short loops."""
    numbers = itertools.product(*(range(a.extent.as_int() or 0) for a in axes))
    places: list[dict[Symbol, Expr]] = [{a.symbol: lit(n) for a, n in zip(axes, each)} for each in numbers]
    turns = [fresh_axis(a.extent) for a in axes]
    turn: dict[Symbol, Expr] = {a.symbol: t.symbol for a, t in zip(axes, turns)}
    return Copies(places, outer=[a for a in outer if a not in axes], turns=turns, turn=turn)


def neighbours(
    outer: Sequence[Axis], vector: Axis | None, accesses: Sequence[Access], points: int | None, target: Target
) -> Copies | None:
    """Points side by side along the loop along which most of what they read is the same, or one where its length is not known;
    None: they share nothing. `points`: groups of elements that the kernel has."""
    shared = {a: shared_along(accesses, a) for a in outer if a is not vector}
    if not any(shared.values()):
        return None
    times = target.window_points
    while times > 1 and points is not None and points < times * target.units * FEW_THREADS:
        times //= 2
    fitting = [a for a in shared if shared[a] and (a.extent.as_int() or 0) >= times]
    if times == 1 or not fitting:
        return Copies([{}], outer=list(outer))
    return _side_by_side(max(fitting, key=lambda a: (shared[a], outer.index(a))), times, outer)


def _side_by_side(along: Axis, times: int, outer: Sequence[Axis]) -> Copies:
    extent = along.extent.as_int() or 0
    groups, start = fresh_axis(lit(-(-extent // times))), None
    first = groups.symbol * times
    if extent % times:
        start = fresh_axis(lit(extent - times + 1))
        first = start.symbol
    places: list[dict[Symbol, Expr]] = [{along.symbol: first + n} for n in range(times)]
    turn = fresh_axis(lit(times))
    rest = [groups if a is along else a for a in outer]
    return Copies(places, groups, start, rest, [turn], {along.symbol: first + turn.symbol})
