"""Sizes that users marked dynamic: a guard that fixes one, or excludes a part of its range, is an error.

In:     symbols with the ranges for which they must stay unknown; facts that were learnt.
Out:    `ConstraintError` where the program needs what a mark rules out.
"""

from __future__ import annotations

import math
from typing import NoReturn

from pliant.errors import ConstraintError
from pliant.records import dataclass
from pliant.source import SourceLocation
from pliant.symbolic import expr as x
from pliant.symbolic.bounds import Interval
from pliant.symbolic.expr import Expr, Number, Symbol
from pliant.symbolic.facts import Facts


@dataclass(frozen=True, slots=True)
class DynamicMark:
    """The range for which a marked size must stay unknown."""

    lo: float
    hi: float
    source: object


class MarkedSizes:
    """The marks of one compilation."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._marks: dict[Symbol, DynamicMark] = {}

    def __contains__(self, symbol: Symbol) -> bool:
        return symbol in self._marks

    def add(self, symbol: Symbol, mark: DynamicMark, hint: Number) -> None:
        """Mark a symbol, whose value at hand is to fit."""
        self._marks[symbol] = mark
        if not mark.lo <= hint <= mark.hi:
            raise ConstraintError(
                f"{mark.source} is {hint}, outside the range [{mark.lo}, {mark.hi}] it was marked with",
                kind="marked-dynamic",
            )

    def check(self, fact: Expr, origin: SourceLocation | None) -> None:
        """Whether a fact that was learnt leaves the marked symbols open."""
        for symbol in self._marks.keys() & fact.free:
            mark = self._marks[symbol]
            value = self._facts.replacements.get(symbol)
            r = self._facts.range_of(symbol)
            if isinstance(value, x.Constant) or r.lo == r.hi:
                _refuse(symbol, mark, fact, origin, f"fixes it to {r.lo if value is None else value}")
            if _finite_bound_exceeded(r, mark):
                _refuse(symbol, mark, fact, origin, f"holds only for {symbol} in [{r.lo}, {r.hi}]")


def _refuse(symbol: Symbol, mark: DynamicMark, fact: Expr, origin: SourceLocation | None, effect: str) -> NoReturn:
    raise ConstraintError(
        f"{mark.source} ({symbol}) was marked dynamic, but the program {effect}",
        kind="marked-dynamic",
        where=origin,
        why=f"it needs {fact}",
    )



def _finite_bound_exceeded(r: Interval, mark: DynamicMark) -> bool:
    return (mark.lo != -math.inf and r.lo > mark.lo) or (mark.hi != math.inf and r.hi < mark.hi)
