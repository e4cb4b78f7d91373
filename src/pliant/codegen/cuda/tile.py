"""Neighbouring points that one thread takes, and what is the same for all of them."""

from __future__ import annotations

from pliant.codegen.expressions import Names
from pliant.ir.loops import Axis
from pliant.ir.scalar import Apply, Const, IndexValue, Scalar
from pliant.records import dataclass
from pliant.schedule.align import quotient
from pliant.schedule.kernel import Member
from pliant.symbolic.expr import ONE, Expr, Symbol, lit
from pliant.symbolic.traverse import linear_coefficient, substitute


@dataclass(frozen=True, slots=True)
class Tile:
    """Neighbouring points of one thread: the vectorized axis, the symbol of the first, how many.

    limits: variables with the first that exists, if some may not, and with the end of those.
    slot: where a value of point `u` lies in an array that keeps those of a row.
    """

    axis: Axis
    start: Symbol
    width: int
    limits: tuple[str, ...]
    slot: str = "u"

    @property
    def limit(self) -> str:
        """Arguments of wide accesses that say which elements there are."""
        return "".join(f", {name}" for name in self.limits)

    def is_even(self, e: Expr) -> bool:
        """Whether all groups of the elements from `e` on are aligned if their buffer is."""
        return "low" not in self.limits and quotient(e.drop(self.axis.symbol), lit(self.width)) is not None

    def load(self, e: Expr) -> str:
        """The function that loads a group. The one for even groups takes half as long to build; where a buffer is not
        aligned, which is rare, its loads take longer."""
        return f"p_load_even<{self.width}>" if self.is_even(e) else f"p_load<{self.width}>"

    @property
    def is_whole(self) -> str:
        """Whether there are all points."""
        return " && ".join(f"cnt >= {self.width}" if name == "cnt" else f"{name} <= 0" for name in self.limits)

    @property
    def guard(self) -> str:
        """Whether there is the point `u`."""
        conditions = [f"u {'<' if name == 'cnt' else '>='} {name}" for name in self.limits]
        return f" if ({' && '.join(conditions)})" if conditions else ""


_SIGNS = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_WORDS = {"bit_and": "&&", "bit_or": "||"}


def common_condition(x: Scalar, member: Member, tile: Tile, names: Names) -> str | None:
    """A condition on indices as text, if it is the same for all points of each group; else None."""
    if not isinstance(x, Apply):
        return None
    if x.op in _WORDS or x.op == "bit_not":
        parts = [common_condition(a, member, tile, names) for a in x.args]
        if None in parts:
            return None
        return f"(!{parts[0]})" if x.op == "bit_not" else f"({parts[0]} {_WORDS[x.op]} {parts[1]})"
    sides = [_index(a, member) for a in x.args] if x.op in _SIGNS else [None]
    if None in sides:
        return None
    left, right = sides
    if left is None or right is None or not _is_common(x.op, left - right, tile):
        return None
    start: dict[Symbol, Expr] = {tile.axis.symbol: tile.start}
    return f"({names.text(substitute(left, start))} {_SIGNS[x.op]} {names.text(substitute(right, start))})"


def end_of_choice(x: Scalar, member: Member, tile: Tile) -> Expr | None:
    """For how many points of a group, the first ones, a condition on indices holds (or more than all, or less than none); None
    where it holds for others."""
    if not isinstance(x, Apply) or x.op not in ("lt", "le") or tile.limits:
        return None
    left, right = (_index(a, member) for a in x.args)
    if left is None or right is None:
        return None
    difference, symbol = left - right, tile.axis.symbol
    if linear_coefficient(difference, symbol) is not ONE:
        return None
    return (1 if x.op == "le" else 0) - difference.drop(symbol) - tile.start


def _index(x: Scalar, member: Member) -> Expr | None:
    if isinstance(x, Const) and type(x.value) is int:
        return lit(x.value)
    return member.at(x.expr) if isinstance(x, IndexValue) and not x.dtype.is_floating_point else None


def _is_common(op: str, difference: Expr, tile: Tile) -> bool:
    """Whether `difference op 0` changes between groups only: where it does is a multiple of their width."""
    symbol = tile.axis.symbol
    if symbol not in difference.free:
        return True
    step = linear_coefficient(difference, symbol)
    number = step.as_int() if step is not None else None
    if tile.limits or number not in (1, -1):
        return False
    rest = difference.drop(symbol)
    # as `place < change` or `place >= change`
    change = (-rest if op in ("lt", "ge") else 1 - rest) if number == 1 else (rest + 1 if op in ("lt", "ge") else rest)
    return change.as_int() == 0 or quotient(change, lit(tile.width)) is not None
