"""Find how one computation's loops run over another's iteration space.

In:     two lists of axes and a pair of index expressions into one buffer (the anchor).
Out:    `Alignment`: the common refinement of both spaces, and each side's symbols over it.
Holds:  both maps are bijections of the iteration spaces; extents are compared exactly (quotients have no remainder).

    (i < a*b, j < c)  with  (p < a, q < b, r < c)   ->   i = b*p + q, j = r
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Iterable, Iterator, Sequence, Set

from pliant.ir.loops import Axis
from pliant.records import dataclass
from pliant.symbolic.expr import ONE, ZERO, Expr, Symbol, symbol
from pliant.symbolic.rules.division import divide
from pliant.symbolic.traverse import linear_coefficient, substitute

_fresh = itertools.count()


@dataclass(frozen=True, slots=True)
class Alignment:
    """`axes` refine both spaces; `left` and `right` give each side's symbols over them."""

    axes: tuple[Axis, ...]
    left: dict[Symbol, Expr]
    right: dict[Symbol, Expr]
    right_axes: dict[Symbol, tuple[Axis, ...]]  # the pieces of each axis of the right side

    def moved(self) -> dict[Symbol, Expr]:
        """The right side's symbols that become others."""
        return {s: e for s, e in self.right.items() if e is not s}


def fresh_axis(extent: Expr) -> Axis:
    """A loop with a symbol of its own."""
    return Axis(symbol(f"x{next(_fresh)}"), extent)


def mergeable(expressions: Iterable[Expr], a: Axis, b: Axis) -> bool:
    """Whether each expression depends on a and b only through `a*extent(b) + b`."""
    for e in expressions:
        if a.symbol not in e.free and b.symbol not in e.free:
            continue
        outer, inner = linear_coefficient(e, a.symbol), linear_coefficient(e, b.symbol)
        if outer is None or inner is None or outer is not inner * b.extent:
            return False
    return True


def merge_axes(axes: Sequence[Axis], expressions: Iterable[Expr], apart: Set[Symbol]) -> tuple[list[Axis], dict[Symbol, Expr]]:
    """Neighbouring loops made one wherever every expression allows it, and the former symbols over the new ones.
    Those of `apart` are not made one with others."""
    axes, expressions = list(axes), dict.fromkeys(expressions)
    place: dict[Symbol, Expr] = {}
    while (pair := _pair(axes, expressions, apart)) is not None:
        a, b = pair
        one = fresh_axis(a.extent * b.extent)
        step: dict[Symbol, Expr] = {a.symbol: ZERO, b.symbol: one.symbol}
        expressions = dict.fromkeys(substitute(e, step) for e in expressions)
        place = {s: substitute(e, step) for s, e in place.items()} | step
        axes = [one if x is b else x for x in axes if x is not a]
        if b.symbol in apart:
            apart = apart | {one.symbol}
    return axes, place


def _pair(axes: Sequence[Axis], expressions: Iterable[Expr], apart: Set[Symbol]) -> tuple[Axis, Axis] | None:
    for a, b in itertools.permutations(axes, 2):
        if (a.symbol in apart) == (b.symbol in apart) and mergeable(expressions, a, b):
            return a, b
    return None


def quotient(a: Expr, b: Expr) -> Expr | None:
    """a / b where b divides a exactly, else None."""
    if b is ONE:
        return a
    if a is b and a is not ZERO:
        return ONE
    whole, part = a.as_int(), b.as_int()
    if whole is not None and part is not None:
        return None if part == 0 or whole % part else a // b
    if b is ZERO:
        return None
    if part is not None:
        exact = a // b
        return exact if exact * b is a else None
    result, rest = divide(a, b)
    return result if rest is ZERO and result is not ZERO else None


def _exact(a: Expr, b: Expr) -> Expr:
    if a is b:
        return ONE
    found = quotient(a, b)
    assert found is not None
    return found


def split_by_presence(axes: Sequence[Axis], index: Expr) -> tuple[list[Axis], list[Axis]]:
    """Axes that `index` depends on, largest stride first where strides are numbers, and the other axes."""
    present = [a for a in axes if a.symbol in index.free]
    absent = [a for a in axes if a.symbol not in index.free]
    strides = [linear_coefficient(index, a.symbol) for a in present]
    numbers = [s.as_int() if s is not None else None for s in strides]
    if all(n is not None for n in numbers):
        order = sorted(range(len(present)), key=lambda k: -abs(numbers[k] or 0))
        return [present[k] for k in order], absent
    return present, absent


def align(left: Sequence[Axis], left_index: Expr, right: Sequence[Axis], right_index: Expr) -> Iterator[Alignment]:
    """Ways to run `left`'s loops over `right`'s space that pair the axes of the two indices by stride, or by order."""
    left_parts = split_by_presence(left, left_index)
    right_parts = split_by_presence(right, right_index)
    first = refine(left_parts, right_parts)
    if first is not None:
        yield first
    if _in_order(left, left_parts) and _in_order(right, right_parts):
        if first is not None or not (left_parts[1] or right_parts[1]):
            return  # the second would be the first
    second = refine((left, ()), (right, ()))
    if second is not None:
        yield second


def _in_order(axes: Sequence[Axis], parts: tuple[list[Axis], list[Axis]]) -> bool:
    """Whether the parts, one behind the other, are the axes as they were."""
    present, absent = parts
    return all(map(operator.is_, axes, present + absent))


def refine(left: Sequence[Sequence[Axis]], right: Sequence[Sequence[Axis]]) -> Alignment | None:
    """The common refinement, list by list; None if the extents do not fit."""
    found = Alignment((), {}, {}, {})
    for one, other in zip(left, right, strict=True):
        piece = _refine(one, other)
        if piece is None:
            return None
        found = Alignment(
            found.axes + piece.axes,
            found.left | piece.left,
            found.right | piece.right,
            found.right_axes | piece.right_axes,
        )
    return found


def _refine(left: Sequence[Axis], right: Sequence[Axis]) -> Alignment | None:
    """Both lists over the common refinement of their extents."""
    pieces = _common_pieces(tuple([a.extent for a in left]), tuple([a.extent for a in right]))
    if pieces is None:
        return None
    lefts: list[list[Axis]] = [[] for _ in left]
    rights: list[list[Axis]] = [[] for _ in right]
    axes: list[Axis] = []
    for extent, one, other in pieces:
        axis = right[other] if extent is right[other].extent else fresh_axis(extent)
        lefts[one].append(axis)
        rights[other].append(axis)
        axes.append(axis)
    return Alignment(
        tuple(reversed(axes)),
        {a.symbol: _combined(own) for a, own in zip(left, lefts)},
        {a.symbol: _combined(own) for a, own in zip(right, rights)},
        {a.symbol: tuple(reversed(own)) for a, own in zip(right, rights)},
    )


@functools.lru_cache(maxsize=1 << 10)  # the same few, over and over, in the layers of a model
def _common_pieces(left: Sequence[Expr], right: Sequence[Expr]) -> list[tuple[Expr, int, int]] | None:
    """The refinement of two lists of extents, innermost first: each piece with which of both lists it is a part of. Walks both
    lists from the innermost extent, splitting the larger one by the smaller."""
    pieces: list[tuple[Expr, int, int]] = []
    one, other = len(left), len(right)
    rest_left: Expr = ONE
    rest_right: Expr = ONE
    while True:
        if rest_left is ONE and one:
            one -= 1
            rest_left = left[one]
        elif rest_right is ONE and other:
            other -= 1
            rest_right = right[other]
        elif rest_left is ONE and rest_right is ONE:
            return pieces
        else:
            piece = _common(rest_left, rest_right)
            if piece is None:
                return None
            rest_left, rest_right = _exact(rest_left, piece), _exact(rest_right, piece)
            pieces.append((piece, one, other))


def _common(a: Expr, b: Expr) -> Expr | None:
    """The smaller of two extents if it divides the other; never 1."""
    if a is b:
        return a
    if a is ONE or b is ONE:
        return None
    if quotient(b, a) is not None:
        return a
    return b if quotient(a, b) is not None else None


def _combined(pieces: list[Axis]) -> Expr:
    """The number whose digits, lowest first, the pieces are."""
    if len(pieces) == 1:
        return pieces[0].symbol
    result: Expr = ZERO
    stride: Expr = ONE
    for axis in pieces:
        result = result + stride * axis.symbol
        stride = stride * axis.extent
    return result
