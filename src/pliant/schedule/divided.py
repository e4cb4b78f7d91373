"""Computations over the loops that their own are divided into.

In:     a computation, and where its loops go in a kernel.
Out:    the same computation over the pieces: what it looks up at `i // 8`, where `i` is `8*p + q` with q < 8, it looks up at `p`.
Holds:  a division goes only where the extents of the pieces prove it, whatever the sizes are.
"""

from __future__ import annotations

import dataclasses

from pliant.ir.loops import Pointwise
from pliant.ir.scalar import IndexValue, Load, Scalar, index_expressions, index_value, load, replace, walk
from pliant.ir.scalar import substitute as substitute_scalar
from pliant.lowering.indexing_rules import IndexRanges
from pliant.schedule.align import Alignment
from pliant.symbolic.expr import Symbol
from pliant.symbolic.shape_env import ShapeEnv
from pliant.symbolic.traverse import substitute


def over_pieces(loops: Pointwise, alignment: Alignment) -> Pointwise | None:
    """The computation over the loops of the alignment, if some of its loops are divided and a division goes because of it."""
    divided = {a.symbol for a in loops.axes if not isinstance(alignment.left[a.symbol], Symbol)}
    indices = [e for e in index_expressions(loops.value) if not divided.isdisjoint(e.free)]
    if loops.indirect or not indices:
        return None
    ranges = IndexRanges(ShapeEnv())  # which knows nothing of sizes
    with ranges.over(alignment.axes):
        placed = [substitute(e, alignment.left) for e in indices]
        if all(ranges.simplify(e) is e for e in placed):
            return None
        value = simplified(substitute_scalar(loops.value, alignment.left), ranges)
    return dataclasses.replace(loops, axes=alignment.axes, index=substitute(loops.index, alignment.left), value=value)


def simplified(value: Scalar, ranges: IndexRanges) -> Scalar:
    """The value with simpler places of what it loads, and positions."""
    simpler: dict[Scalar, Scalar] = {}
    for x in walk(value):
        if isinstance(x, Load) and not x.indirect:
            simpler[x] = load(x.buffer, ranges.simplify(x.index))
        elif isinstance(x, IndexValue):
            simpler[x] = index_value(ranges.simplify(x.expr), x.dtype)
    return replace(value, simpler)
