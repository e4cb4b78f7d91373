"""Loops over what is put together along its innermost dimension: one loop for each part.

In:     a loop: its axes, where it stores (a flat index), the value that it stores.
Out:    `parts`: the loop as it is, or several over ranges of its innermost axis, none of which chooses between parts.
Holds:  a loop is divided only where a part is read with a step along that axis, as a transposed one is, or is dear to compute.
        The first would go element by element, with all that is computed from the parts, and of the second all parts would be
        computed for each element. Otherwise one loop with a choice is as fast, but where elements are only moved: a copy has no
        time for choices, and its writer goes through the parts of each row in turn (`ranges_of`, `chosen`), as memory lies.
"""

from __future__ import annotations

from collections.abc import Mapping

from pliant.ir.loops import Axis
from pliant.ir.ops import OPS
from pliant.ir.scalar import Apply, Const, IndexValue, Load, Scalar, apply, const, loads, substitute, walk
from pliant.symbolic.expr import Expr, Integer, Symbol
from pliant.symbolic.traverse import step_along
from pliant.symbolic.traverse import substitute as replaced

_LEAST = 32  # elements along the axis that are worth a loop
_MOST = 4  # parts
_MOVING = frozenset(("where", "cast", "lt", "ge", "bit_and"))
_DEAR = 12  # additions that one element of a part costs, as an exponential does

Loop = tuple[tuple[Axis, ...], Expr, Scalar]


def parts(axes: tuple[Axis, ...], flat: Expr, value: Scalar) -> list[Loop]:
    """The loops that store `value` at `flat` for all points of `axes`."""
    inner = next((a for a in reversed(axes) if step_along(flat, a.symbol) == 1), None)
    extent = None if inner is None else inner.extent.as_int()
    if inner is None or extent is None:
        return [(axes, flat, value)]
    ranges = ranges_of(value, inner.symbol, extent)
    if len(ranges) == 1 or not _pays(value, inner.symbol, ranges):
        return [(axes, flat, value)]
    return [_over(axes, flat, value, inner, begin, end) for begin, end in ranges]


def ranges_of(value: Scalar, symbol: Symbol, extent: int) -> list[tuple[int, int]]:
    """The parts of an axis between which no condition on the place along it changes; all of it if there are too many."""
    ends = [*sorted(_seams(value, symbol, extent)), extent]
    return list(zip([0, *ends], ends)) if len(ends) <= _MOST else [(0, extent)]


def _bound(x: Scalar, symbol: Symbol) -> int | None:
    """Where a condition on the place along the axis alone changes."""
    if type(x) is not Apply or x.op not in _HOLDS:
        return None
    place, limit = x.args
    if type(place) is not IndexValue or place.expr is not symbol or type(limit) is not Const:
        return None
    return limit.value if type(limit.value) is int else None


# Whether a condition holds from `begin` on, up to the next seam.
_HOLDS = {"lt": lambda begin, limit: begin < limit, "ge": lambda begin, limit: begin >= limit}


def _seams(value: Scalar, symbol: Symbol, extent: int) -> set[int]:
    found = {_bound(node, symbol) for node in walk(value)}
    return {limit for limit in found if limit is not None and 0 < limit < extent}


def _pays(value: Scalar, symbol: Symbol, ranges: list[tuple[int, int]]) -> bool:
    """Whether what is chosen from by the place along the axis is read with a step along it, or dear."""
    if any(end - begin < _LEAST for begin, end in ranges):
        return False
    choices = (n for n in walk(value) if type(n) is Apply and n.op == "where" and _bound(n.args[0], symbol) is not None)
    parts = [part for choice in choices for part in choice.args[1:]]
    return any(_is_dear(part) or any(_is_stepped(one, symbol) for one in loads(part)) for part in parts)


def is_only_moved(value: Scalar) -> bool:
    """Whether nothing is computed but what is chosen."""
    return all(n.op in _MOVING for n in walk(value) if type(n) is Apply)


def _is_stepped(one: Load, symbol: Symbol) -> bool:
    return not one.indirect and step_along(one.index, symbol) not in (0, 1)


def _is_dear(part: Scalar) -> bool:
    return any(type(n) is Apply and OPS[n.op].cost >= _DEAR for n in walk(part))


def _over(axes: tuple[Axis, ...], flat: Expr, value: Scalar, inner: Axis, begin: int, end: int) -> Loop:
    """The loop over the points from `begin` to `end` of an axis."""
    place: Mapping[Symbol, Expr] = {inner.symbol: inner.symbol + begin}
    ranged = tuple([Axis(a.symbol, Integer(end - begin)) if a is inner else a for a in axes])
    return ranged, replaced(flat, place), substitute(chosen(value, inner.symbol, begin), place)


def chosen(value: Scalar, symbol: Symbol, begin: int) -> Scalar:
    """The value where conditions on the place along the axis are as at `begin`; what is not chosen is left out."""
    made: dict[Scalar, Scalar] = {}

    def known(x: Scalar) -> bool | None:
        limit = _bound(x, symbol)
        return None if limit is None else _HOLDS[x.op](begin, limit)  # type: ignore[attr-defined]

    def rebuilt(x: Scalar) -> Scalar:
        found = made.get(x)
        if found is None:
            found = made[x] = _rebuilt(x)
        return found

    def _rebuilt(x: Scalar) -> Scalar:
        if type(x) is not Apply:
            return x
        holds = known(x)
        if holds is not None:
            return const(holds, x.dtype)
        if x.op == "where":
            condition = rebuilt(x.args[0])
            if type(condition) is Const:
                return rebuilt(x.args[1] if condition.value else x.args[2])
        return apply(x.op, *map(rebuilt, x.args), dtype=x.dtype if x.op == "cast" else None)

    return rebuilt(value)


def row_choice(value: Scalar, varies: set[Symbol]) -> Apply | None:
    """The first choice whose condition is the same along a row, on which these symbols alone vary."""
    return next((n for n in walk(value) if type(n) is Apply and n.op == "where" and _of_row(n.args[0], varies)), None)


def _of_row(condition: Scalar, varies: set[Symbol]) -> bool:
    places = [n.expr for n in walk(condition) if type(n) is IndexValue]
    return not any(True for _ in loads(condition)) and all(varies.isdisjoint(e.free) for e in places)
