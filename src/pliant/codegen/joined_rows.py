"""Rows that are put together one below the other are taken as one long row.

In:     a `Kernel`, before its axes are merged.
Out:    the same kernel, in which a condition on the row (`row < 3`) is one on the element (`row * width + column < 3 * width`).
Holds:  every value stays. Only a kernel that moves elements is changed, and only where rows follow each other in memory in
        all that it reads and writes, so that the two loops become one: each part of it is then copied in one go.
"""

from __future__ import annotations

import dataclasses
import itertools

from pliant.ir.loops import Axis, Pointwise
from pliant.ir.scalar import (
    Apply,
    Const,
    IndexValue,
    Scalar,
    apply,
    const,
    index_value,
    loads,
    replace,
    substitute,
    walk,
)
from pliant.lowering.seams import is_only_moved
from pliant.schedule.align import fresh_axis, mergeable
from pliant.schedule.kernel import Kernel, Member
from pliant.symbolic.expr import ZERO, Expr, Symbol
from pliant.symbolic.traverse import substitute as replaced


def joined(kernel: Kernel) -> Kernel:
    """The kernel with its rows as one, if conditions on the row are all that keeps them apart."""
    member, *others = kernel.members
    if others or kernel.reduced or not isinstance(member.loops, Pointwise) or not is_only_moved(member.loops.value):
        return kernel
    axes, value, index = kernel.axes, substitute(member.loops.value, member.place), member.store_index
    while (found := _longer(axes, value, index)) is not None:
        axes, value, index = found
    loops = dataclasses.replace(member.loops, axes=tuple(axes), index=index, value=value)
    whole = Member(loops, {a.symbol: a.symbol for a in axes}, member.inner, member.phase)
    return kernel if axes is kernel.axes else Kernel(axes, kernel.reduced, [whole], kernel.stored, kernel.apart)


def _longer(axes: list[Axis], value: Scalar, index: Expr) -> tuple[list[Axis], Scalar, Expr] | None:
    """The same with one axis less."""
    accesses = [index, *(one.index for one in loads(value))]
    for row, column in itertools.permutations(axes, 2):
        flat = _of_elements(value, row, column) if mergeable(accesses, row, column) else None
        if flat is not None:
            one = fresh_axis(row.extent * column.extent)
            step: dict[Symbol, Expr] = {row.symbol: ZERO, column.symbol: one.symbol}
            rest = [one if a is column else a for a in axes if a is not row]
            return rest, substitute(flat, step), replaced(index, step)
    return None


def _of_elements(value: Scalar, row: Axis, column: Axis) -> Scalar | None:
    """The value with its conditions on the row as conditions on the element; None if it has none, or asks for either otherwise."""
    width = column.extent.as_int()
    conditions = [one for one in walk(value) if type(one) is Apply and _is_of(one, row)]
    if width is None or not conditions:
        return None
    place = row.symbol * width + column.symbol
    found = replace(value, {one: _scaled(one, index_value(place), width) for one in conditions})
    places = [one.expr for one in walk(found) if type(one) is IndexValue]
    return found if all(e is place or e.free.isdisjoint((row.symbol, column.symbol)) for e in places) else None


def _is_of(condition: Apply, row: Axis) -> bool:
    """Whether it compares the row with a number."""
    if condition.op not in ("lt", "ge"):
        return False
    place, limit = condition.args
    return type(place) is IndexValue and place.expr is row.symbol and type(limit) is Const and limit.dtype is place.dtype


def _scaled(condition: Apply, place: Scalar, width: int) -> Scalar:
    _, limit = condition.args
    assert isinstance(limit, Const)
    return apply(condition.op, place, const(limit.value * width, place.dtype))
