"""Sums that are written out, as loops again where their parts repeat: loop rerolling.

In:     a value of which a sum of many products is a part, as that of a window is.
Out:    `Rerolled`: the products of one turn as a function of the turn's number, and how many turns there are.
Holds:  with each number put in, these are the products of the sum in their order, so results keep their bits.

NVRTC takes as long as the text is: a window of 7x7 takes it a second written out, and a quarter of that as a loop over its rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from pliant.ir.loops import Axis
from pliant.ir.scalar import Apply, Const, IndexValue, Load, Scalar, loads, walk
from pliant.records import dataclass
from pliant.symbolic.expr import ZERO, Expr, Symbol, lit

LEAST_PRODUCTS = 16  # of a sum that is worth a loop: 9 written out are built in 0.2 s and run faster
LEAST_TURNS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Rerolled:
    """`total`: the sum as it was. `begin`: what it begins with. `turn`: the loop. `carried` stands for what the turns before
    summed; `value`: what it is after this one."""

    total: Apply
    begin: Scalar
    turn: Axis
    carried: Scalar
    value: Scalar

    @property
    def loads(self) -> list[Load]:
        return list(loads(self.value))


def rerolled(value: Scalar) -> list[Rerolled]:
    """Each sum of a value that repeats, in the order in which they are computed."""
    sums = [x for x in walk(value) if isinstance(x, Apply) and x.op == "fma"]
    within = {x.args[2] for x in sums}
    return [found for x in sums if x not in within and (found := _rerolled(x)) is not None]


def _rerolled(total: Apply) -> Rerolled | None:
    products: list[tuple[Scalar, ...]] = []
    begin: Scalar = total
    while isinstance(begin, Apply) and begin.op == "fma":
        products.append(begin.args[:2])
        begin = begin.args[2]
    products.reverse()
    turn = Symbol("xturn")
    for count in range(2, len(products) // LEAST_TURNS + 1) if len(products) >= LEAST_PRODUCTS else ():
        turns, rest = divmod(len(products), count)
        if rest == 0 and (repeated := _repeated(products, count, turn)) is not None:
            carried = IndexValue(total.dtype, Symbol("carried"))
            value: Scalar = carried
            for a, b in repeated:
                value = Apply(total.dtype, "fma", (a, b, value))
            return Rerolled(total, begin, Axis(turn, lit(turns)), carried, value)
    return None


def _repeated(products: Sequence[tuple[Scalar, ...]], count: int, turn: Symbol) -> list[tuple[Scalar, Scalar]] | None:
    """So many products as functions of a turn's number, if all products are these in turns."""
    found = []
    for k in range(count):
        factors = [_in_turns(each, turn) for each in zip(*products[k::count])]
        if None in factors:
            return None
        found.append((factors[0], factors[1]))
    return found  # type: ignore[return-value]  # none of them is None


def _in_turns(values: Sequence[Scalar], turn: Symbol) -> Scalar | None:
    """The value that is each of these in its turn; None: there is no such one."""
    first = values[0]
    if any(type(x) is not type(first) or x.dtype is not first.dtype for x in values):
        return None
    match first:
        case Const():
            return first if all(repr(x.value) == repr(first.value) for x in values) else None  # type: ignore[attr-defined]
        case IndexValue():
            e = _linear([x.expr for x in values], turn)  # type: ignore[attr-defined]
            return None if e is None else IndexValue(first.dtype, e)
        case Load():
            if any(x.buffer is not first.buffer or x.indirect for x in values):  # type: ignore[attr-defined]
                return None
            e = _linear([x.index for x in values], turn)  # type: ignore[attr-defined]
            return None if e is None else Load(first.dtype, first.buffer, e, ())
        case Apply():
            if any(x.op != first.op or len(x.args) != len(first.args) for x in values):  # type: ignore[attr-defined]
                return None
            args = [_in_turns(each, turn) for each in zip(*(x.args for x in values))]  # type: ignore[attr-defined]
            return None if None in args else Apply(first.dtype, first.op, tuple(args))  # type: ignore[arg-type]
    return None


def _linear(places: Sequence[Expr], turn: Symbol) -> Expr | None:
    """The place that is each of these in its turn, as far apart as all are."""
    first, step = places[0], places[1] - places[0]
    if any(place - (first + step * k) is not ZERO for k, place in enumerate(places)):
        return None
    return first + step * turn
