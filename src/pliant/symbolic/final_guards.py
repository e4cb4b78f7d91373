"""Reduce the recorded guards to few that mean the same.

In:     guards in the order in which they were recorded, declared ranges first.
Out:    a shorter list.
Holds:  all inputs that satisfy the result satisfy every guard that came in, and the other way round.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from pliant.records import dataclass
from pliant.source import SourceLocation
from pliant.symbolic import expr as x
from pliant.symbolic.expr import Expr
from pliant.symbolic.facts import Facts

_LIMIT = 200  # beyond, guards that only later ones imply stay: they cost little


@dataclass(frozen=True, slots=True)
class ShapeGuard:
    """A boolean expression that must hold, and the user's line that needs it (None for a declared range).

    text: s0 <= 512
    """

    expr: Expr
    origin: SourceLocation | None

    def __str__(self) -> str:
        return str(self.expr)


def minimal_guards(guards: Iterable[ShapeGuard]) -> list[ShapeGuard]:
    """The guards without those that the rest implies."""
    return list(_minimal(tuple(guards)))


@lru_cache(maxsize=8)  # an export asks for those of one capture again and again
def _minimal(guards: tuple[ShapeGuard, ...]) -> list[ShapeGuard]:
    kept = _not_implied_before(_parts(guards))
    return _not_implied(kept, Facts()) if len(kept) <= _LIMIT else kept


def _not_implied(guards: list[ShapeGuard], facts: Facts) -> list[ShapeGuard]:
    """The guards that neither `facts`, nor the kept ones before them, nor any after them imply."""
    if len(guards) <= 1:
        return [guard for guard in guards if not facts.prove_fully(guard.expr)]
    half = len(guards) // 2
    first = _not_implied(guards[:half], _with(facts, guards[half:]))
    return first + _not_implied(guards[half:], _with(facts, first))


def _parts(guards: Iterable[ShapeGuard]) -> list[ShapeGuard]:
    """Conjunctions as their parts, each once."""
    seen: dict[Expr, ShapeGuard] = {}
    for guard in guards:
        for part in guard.expr.args if type(guard.expr) is x.And else (guard.expr,):
            if not isinstance(part, x.Constant):
                seen.setdefault(part, ShapeGuard(part, guard.origin))
    return list(seen.values())


def _not_implied_before(guards: list[ShapeGuard]) -> list[ShapeGuard]:
    facts, kept = Facts(), []
    for guard in guards:
        if not facts.prove_fully(guard.expr):
            facts.learn(guard.expr)
            kept.append(guard)
    return kept


def _with(facts: Facts, guards: list[ShapeGuard]) -> Facts:
    more = facts.copy()
    for guard in guards:
        more.learn(guard.expr)
    return more
