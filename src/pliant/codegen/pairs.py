"""Loops over pairs: where two results lie side by side, the vectors of one and of the other are computed together.

In:     loops of kind `points`.
Out:    `paired`: loops in which an axis of two points is written out (`LoopPlan.halves`): the first and the second
        elements of the pairs, over the axis that remains. None where there is no such axis.
Holds:  values are unchanged. Both halves are computed before either is stored, and are stored as one, so memory is
        written in order: a rotation of pairs, what is put together by `stack(..., -1)`, and the gradient of every
        second element, whose other half is 0.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from pliant.codegen.loops import Halves, LoopPlan, index_expressions, step_along
from pliant.ir.loops import Axis, Buffer, Pointwise
from pliant.ir.scalar import Load
from pliant.ir.scalar import substitute as substituted
from pliant.schedule.align import fresh_axis
from pliant.schedule.kernel import Kernel, Member, loads_of
from pliant.symbolic.expr import ONE, Expr, Mod, Symbol, lit
from pliant.symbolic.traverse import atoms, substitute

_SHORTEST = 4  # pairs of a row that are worth vectors of their own


def paired(plan: LoopPlan) -> LoopPlan | None:
    """The plan with its axis of two points written out; None if it has none along which it stores neighbours."""
    vector = plan.vector
    if plan.kind != "points" or vector is None or len(plan.inner) != 1:
        return None
    for axis, _ in plan.parallel:
        if axis is not vector and axis.extent.as_int() == 2:
            found = _written_out(plan, vector, [{axis.symbol: lit(k)} for k in range(2)])
            if found is not None:
                return _plan(plan, found, vector, axis)
    if not _asks_for_parity(plan.kernel, vector):
        return None
    half = fresh_axis(vector.extent // 2)
    found = _written_out(plan, half, [{vector.symbol: half.symbol * 2 + k} for k in range(2)])
    return None if found is None else _plan(plan, found, half, vector)


def _plan(plan: LoopPlan, halves: Halves, vector: Axis, gone: Axis) -> LoopPlan:
    """The loops without the axis that is gone; where that was vectorized, the other one takes its place."""
    blocks: list[tuple[Axis, int | None]] = []
    for axis, block in plan.parallel:
        if axis is not gone:
            blocks.append((axis, block))
        elif gone is plan.vector:
            blocks.append((vector, None if block is None else max(1, block // 2)))
    kernel = plan.kernel
    axes = [a for a in kernel.axes if a is not gone and a is not vector]
    both = Kernel([*axes, vector], kernel.reduced, [*halves[0], *halves[1]], kernel.stored, kernel.apart)
    return LoopPlan(plan.kind, both, vector, blocks or [(vector, None)], [vector], halves=halves)


def _asks_for_parity(kernel: Kernel, vector: Axis) -> bool:
    """Whether something is chosen by which of two places along an even number of them it is."""
    extent = vector.extent.as_int()
    if extent is None or extent % 2:
        return False
    parts = [part for e, _ in index_expressions(kernel) for part in atoms(e)]
    return any(type(part) is Mod and part.args[1].as_int() == 2 and vector.symbol in part.free for part in parts)


def _written_out(plan: LoopPlan, vector: Axis, points: Sequence[Mapping[Symbol, Expr]]) -> Halves | None:
    """The members at both points; None if no two results are neighbours."""
    extent, kernel = vector.extent.as_int(), plan.kernel
    if extent is not None and extent < _SHORTEST or any(_is_special(m) for m in kernel.members):
        return None
    first, second = ([_at(m, point) for m in kernel.members] for point in points)
    stores = [(a.store_index, b.store_index) for a, b in zip(first, second) if a.loops.out in kernel.stored]
    apart = [b - a is ONE for a, b in stores if step_along(a, vector) == 2]
    alone = all(step_along(e, vector) in (1, 2) for store in stores for e in store)
    return (first, second) if apart and all(apart) and alone else None


def _is_special(m: Member) -> bool:
    return not isinstance(m.loops, Pointwise) or bool(m.loops.indirect)


def _at(m: Member, point: Mapping[Symbol, Expr]) -> Member:
    """A computation where an axis is at a point: its value is what is chosen there."""
    assert isinstance(m.loops, Pointwise)
    place = {s: substitute(e, point) for s, e in m.place.items()}
    value, index = substituted(m.loops.value, place), substitute(m.loops.index, place)
    return Member(dataclasses.replace(m.loops, value=value, index=index), {}, m.inner, m.phase)


def loads_by_place(plan: LoopPlan) -> dict[tuple[Buffer, Expr], tuple[Load, Member]]:
    """What both halves load, by where it lies."""
    loads = ((x, m) for half in plan.halves or () for m in half for x in loads_of(m.loops))
    return {(x.buffer, m.at(x.index)): (x, m) for x, m in loads if not x.indirect}
