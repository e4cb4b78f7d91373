"""Reduce the recorded guards to few that mean the same.

In:     guards in the order in which they were recorded, declared ranges first.
Out:    a shorter list.
Holds:  all inputs that satisfy the result satisfy every guard that came in, and the other way round.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from pliant.source import SourceLocation
from pliant.symbolic import expr as x
from pliant.symbolic.expr import Expr
from pliant.symbolic.facts import Facts

_PAIRWISE_LIMIT = 48  # beyond, guards that only later ones imply stay: they cost little


@dataclasses.dataclass(frozen=True, slots=True)
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
    kept = _not_implied_before(_parts(guards))
    if len(kept) <= _PAIRWISE_LIMIT:
        for guard in list(kept):
            others = [g for g in kept if g is not guard]
            if _facts(others).prove_fully(guard.expr):
                kept = others
    return kept


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


def _facts(guards: list[ShapeGuard]) -> Facts:
    facts = Facts()
    for guard in guards:
        facts.learn(guard.expr)
    return facts
