"""Minimum and maximum of integers: flat, sorted, without repetitions, at most one constant.

Each rule is written above its code as an equation; it holds for all integers.
"""

from __future__ import annotations

from pliant.symbolic.nodes import Expr, interned_atom, rule_memo
from pliant.symbolic.operations import Max, Min
from pliant.symbolic.polynomials import add, neg
from pliant.symbolic.rules import floats


@rule_memo
def minimum(a: Expr, b: Expr) -> Expr:
    """`min(a, b)`."""
    if float in (a.kind, b.kind):
        return floats.minimum(a, b)
    return _extremum(Min, floats.to_int(a), floats.to_int(b))


@rule_memo
def maximum(a: Expr, b: Expr) -> Expr:
    """`max(a, b)`."""
    if float in (a.kind, b.kind):
        return floats.maximum(a, b)
    return _extremum(Max, floats.to_int(a), floats.to_int(b))


def _extremum(cls: type[Min] | type[Max], a: Expr, b: Expr) -> Expr:
    # max(max(x, y), z) = max(x, y, z)
    kept: list[Expr] = []
    for item in (*_items(cls, a), *_items(cls, b)):
        _insert(cls, kept, item)
    if len(kept) == 1:
        return kept[0]
    kept.sort(key=lambda e: (e.order, e.digest))
    return interned_atom(cls, *kept)


def _items(cls: type[Min] | type[Max], e: Expr) -> tuple[Expr, ...]:
    return e.args if type(e) is cls else (e,)


def _insert(cls: type[Min] | type[Max], kept: list[Expr], item: Expr) -> None:
    # max(x, x + c) = x + max(0, c)
    for i, other in enumerate(kept):
        difference = add(item, neg(other))
        if not difference.terms:
            if (difference.const > 0) is (cls is Max):
                kept[i] = item
            return
    kept.append(item)
