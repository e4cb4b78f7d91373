"""Two dimensions that are one loop are two where elements lie side by side along the second of them alone.

In:     a `LoopProgram`, whose loops over `x.reshape(n * c, ...)` of an `x` that is channels last read it at `i % c`.
Out:    the same over two loops, `i = c*p + q` with q < c: reads at `q`, which vectors take together.
Holds:  each computation has the points it had, in their order; each of two loops is shorter than the one that they were. What
        reads at a wider step along the second dimension stays, as its innermost loop is another.
"""

from __future__ import annotations

import dataclasses

from pliant.ir.loops import Axis, Computation, LoopProgram, Pointwise, Reduction
from pliant.ir.scalar import index_expressions
from pliant.ir.scalar import substitute as substitute_scalar
from pliant.lowering.indexing_rules import IndexRanges
from pliant.schedule.align import fresh_axis
from pliant.schedule.divided import simplified
from pliant.symbolic.expr import Expr, Mod, Symbol, lit
from pliant.symbolic.shape_env import ShapeEnv
from pliant.symbolic.traverse import substitute


def rows_apart(program: LoopProgram) -> LoopProgram:
    """The program, with such loops apart."""
    found = [_apart(c) for c in program.computations]
    same = all(a is b for a, b in zip(found, program.computations))
    return program if same else dataclasses.replace(program, computations=found)


def _apart(c: Computation) -> Computation:
    if not isinstance(c, (Pointwise, Reduction)) or (isinstance(c, Pointwise) and (c.indirect or c.accumulate)):
        return c
    indices = index_expressions(c.value)
    for axis in c.axes:
        width = _width(axis, indices)
        if width is not None:
            return _apart(_divided(c, axis, width))
    return c


def _width(axis: Axis, indices: list[Expr]) -> int | None:
    """The extent of the second dimension, if neighbours along it are neighbours in memory."""
    extent = axis.extent.as_int()
    parts = {mono.args[1].as_int() for e in indices for mono, coef in e.terms if coef == 1 and _is_part(mono, axis)}
    width = parts.pop() if len(parts) == 1 else None
    return width if extent and width and 1 < width < extent and extent % width == 0 else None


def _is_part(e: Expr, axis: Axis) -> bool:
    return isinstance(e, Mod) and e.args[0] is axis.symbol


def _divided(c: Pointwise | Reduction, axis: Axis, width: int) -> Pointwise | Reduction:
    outer, inner = fresh_axis(axis.extent // width), fresh_axis(lit(width))
    place: dict[Symbol, Expr] = {axis.symbol: outer.symbol * width + inner.symbol}
    axes = tuple([one for a in c.axes for one in ((outer, inner) if a is axis else (a,))])
    ranges = IndexRanges(ShapeEnv())  # which knows nothing of sizes
    with ranges.over(axes + (c.reduce_axes if isinstance(c, Reduction) else ())):
        value = simplified(substitute_scalar(c.value, place), ranges)
    return dataclasses.replace(c, axes=axes, index=substitute(c.index, place), value=value)
