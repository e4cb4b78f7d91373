"""Rows that are looked up by quotients and remainders are taken as rows of rows.

In:     a `Kernel`, before its axes are merged.
Out:    the same kernel, in which a loop over `i`, of which `i // 128` and `i % 128` are asked, is one over each of the two.
Holds:  every value stays. Only loops over independent points are divided, where nothing is left of the divisions: lanes then
        read what lies evenly spaced, and what is read across is transposed by tiles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from pliant.ir.loops import Axis, Pointwise
from pliant.ir.scalar import index_expressions, substitute
from pliant.lowering.indexing_rules import IndexRanges
from pliant.schedule.align import fresh_axis
from pliant.schedule.divided import simplified
from pliant.schedule.kernel import Kernel, Member, accumulates
from pliant.symbolic.expr import Expr, FloorDiv, Mod, Symbol, lit
from pliant.symbolic.shape_env import ShapeEnv
from pliant.symbolic.traverse import atoms
from pliant.symbolic.traverse import substitute as replaced

_LEAST = 32  # points of the inner loop that are worth it


def divided(kernel: Kernel) -> Kernel:
    """The kernel with each loop divided of which quotients and remainders are asked, if they go by that."""
    if kernel.reduced or not all(isinstance(m.loops, Pointwise) and not accumulates(m.loops) for m in kernel.members):
        return kernel
    for axis in kernel.axes:
        for size in sorted(_divisors(kernel, axis)):
            found = _in_two(kernel, axis, size)
            if found is not None:
                return divided(found)
    return kernel


def _places(m: Member) -> Iterator[Expr]:
    yield m.store_index
    yield from map(m.at, index_expressions(m.loops.value))


def _divisors(kernel: Kernel, axis: Axis) -> set[int]:
    """By which numbers places along the axis are divided, of those that divide its extent."""
    extent = axis.extent.as_int() or 0
    places = dict.fromkeys(e for m in kernel.members for e in _places(m) if axis.symbol in e.free)
    divisions = (one for e in places for one in atoms(e) if type(one) in (FloorDiv, Mod) and axis.symbol in one.free)
    sizes = (one.args[1].as_int() for one in divisions)
    return {n for n in sizes if n is not None and _LEAST <= n < extent and extent % n == 0}


def _in_two(kernel: Kernel, axis: Axis, size: int) -> Kernel | None:
    """The kernel with the axis as two, the inner one of this size; None if divisions are left."""
    outer, inner = fresh_axis(axis.extent // size), fresh_axis(lit(size))
    step: dict[Symbol, Expr] = {axis.symbol: outer.symbol * size + inner.symbol}
    axes = [piece for a in kernel.axes for piece in ((outer, inner) if a is axis else (a,))]
    ranges = IndexRanges(ShapeEnv())  # which knows nothing of sizes
    with ranges.over(axes):
        members = [_over(m, step, ranges, axes) for m in kernel.members]
    pieces = {outer.symbol, inner.symbol}
    places = dict.fromkeys(e for m in members for e in _places(m))
    left = any(type(one) in (FloorDiv, Mod) and not pieces.isdisjoint(one.free) for e in places for one in atoms(e))
    return None if left else Kernel(axes, kernel.reduced, members, kernel.stored, kernel.apart)


def _over(m: Member, step: dict[Symbol, Expr], ranges: IndexRanges, axes: list[Axis]) -> Member:
    """The computation over these axes."""
    assert isinstance(m.loops, Pointwise)
    place = {s: replaced(e, step) for s, e in m.place.items()}
    value, index = simplified(substitute(m.loops.value, place), ranges), ranges.simplify(replaced(m.loops.index, place))
    loops = dataclasses.replace(m.loops, axes=tuple(axes), value=value, index=index)
    return Member(loops, {a.symbol: a.symbol for a in axes}, m.inner, m.phase)
