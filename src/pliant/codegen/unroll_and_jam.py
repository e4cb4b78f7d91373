"""Unroll and jam: a short outer loop around the reductions of a row is written out inside them.

In:     loops of kind `rows`.
Out:    the same, or loops over a kernel that has, for each point of the short loop, its reductions with accumulators of
        their own: what the points have in common is loaded once for all.
Holds:  each result is folded as before. Only kernels that do nothing but reduce, once, are written out; accumulators stay in
        registers.
"""

from __future__ import annotations

from pliant.codegen.loops import LoopPlan
from pliant.ir.loops import Axis, Reduction
from pliant.ir.scalar import walk
from pliant.schedule.kernel import Kernel, Member, loads_of
from pliant.symbolic.expr import Symbol, lit
from pliant.symbolic.traverse import substitute

_MOST = 8  # accumulators: half of the vector registers of the smaller machines
_LARGEST = 16  # operators of a value


def unroll_and_jam(plan: LoopPlan) -> LoopPlan:
    """The plan with its short loop written out, if it has one that is worth it."""
    axis = _worth_it(plan)
    count = axis.extent.as_int() if axis is not None else None
    if axis is None or count is None:
        return plan
    kernel = plan.kernel
    members = [_at(m, axis.symbol, k) for k in range(count) for m in kernel.members]
    axes = [a for a in kernel.axes if a is not axis]
    jammed = Kernel(axes, kernel.reduced, members, kernel.stored, kernel.apart)
    return LoopPlan(plan.kind, jammed, plan.vector, [p for p in plan.parallel if p[0] is not axis], plan.inner)


def _worth_it(plan: LoopPlan) -> Axis | None:
    """The innermost loop of few points among which some load along the row is the same."""
    members = plan.kernel.members
    if plan.kind != "rows" or len(plan.parallel) < 2 or not all(_only_reduces(m) for m in members):
        return None
    for axis, block in reversed(plan.parallel):
        count = axis.extent.as_int()
        if block is None and count is not None and count >= 2 and count * len(members) <= _MOST and _shares(plan, axis):
            return axis
    return None


def _only_reduces(m: Member) -> bool:
    return isinstance(m.loops, Reduction) and m.inner and m.phase == 0 and len(list(walk(m.loops.value))) <= _LARGEST


def _shares(plan: LoopPlan, axis: Axis) -> bool:
    """Whether points of the loop load something in common at each point of the row."""
    assert plan.vector is not None
    indices = [m.at(x.index) for m in plan.kernel.members for x in loads_of(m.loops)]
    return any(plan.vector.symbol in e.free and axis.symbol not in e.free for e in indices)


def _at(m: Member, symbol: Symbol, k: int) -> Member:
    """A computation where a loop is at its point `k`."""
    return Member(m.loops, {s: substitute(e, {symbol: lit(k)}) for s, e in m.place.items()}, m.inner, m.phase)
