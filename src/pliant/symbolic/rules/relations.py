"""Comparisons, logic and selection.

Integer comparisons become `p == 0`, `p != 0` or `p <= 0` of a reduced polynomial p, so that equal facts are one object.
Each rule is written above its code as an equation; it holds for all values.
"""

from __future__ import annotations

import math

from pliant.symbolic.nodes import (
    FALSE,
    ONE,
    TRUE,
    Bool,
    Constant,
    Expr,
    Float,
    from_terms,
    interned_atom,
)
from pliant.symbolic.operations import (
    And,
    BoolEq,
    Eq,
    FloatEq,
    FloatLe,
    FloatLt,
    FloatSelect,
    Le,
    Ne,
    Not,
    Or,
    Select,
)
from pliant.symbolic.polynomials import neg, sub
from pliant.symbolic.rules import floats


def eq(a: Expr, b: Expr) -> Expr:
    """`a == b`."""
    if a.kind is int and b.kind is int:
        return zero(sub(a, b))  # (x == y) = (x - y == 0)
    if a.kind is bool and b.kind is bool:
        return _bool_eq(a, b)
    if float not in (a.kind, b.kind):
        return eq(floats.to_int(a), floats.to_int(b))
    a, b = floats.to_float(a), floats.to_float(b)
    if isinstance(a, Float) and isinstance(b, Float):
        return Bool(a.value == b.value)
    return interned_atom(FloatEq, a, b)


def ne(a: Expr, b: Expr) -> Expr:
    """`a != b`."""
    return not_(eq(a, b))


def le(a: Expr, b: Expr) -> Expr:
    """`a <= b`."""
    if float not in (a.kind, b.kind):
        return nonpositive(sub(floats.to_int(a), floats.to_int(b)))  # (x <= y) = (x - y <= 0)
    a, b = floats.to_float(a), floats.to_float(b)
    if isinstance(a, Float) and isinstance(b, Float):
        return Bool(a.value <= b.value)
    return interned_atom(FloatLe, a, b)


def lt(a: Expr, b: Expr) -> Expr:
    """`a < b`."""
    # (x < y) = (x - y + 1 <= 0)
    if float not in (a.kind, b.kind):
        return nonpositive(sub(floats.to_int(a), floats.to_int(b)) + ONE)
    a, b = floats.to_float(a), floats.to_float(b)
    if isinstance(a, Float) and isinstance(b, Float):
        return Bool(a.value < b.value)
    return interned_atom(FloatLt, a, b)


def zero(p: Expr) -> Expr:
    """`p == 0` for an integer expression."""
    if not p.terms:
        return Bool(p.const == 0)
    # (g*x + c == 0) = false      c % g > 0
    g = math.gcd(*[c for _, c in p.terms])
    if p.const % g:
        return FALSE
    # (g*x + c == 0) = (x + c // g == 0)      c % g == 0
    if p.terms[0][1] < 0:
        g = -g
    return interned_atom(Eq, _divide_all(p, g, p.const // g))


def nonpositive(p: Expr) -> Expr:
    """`p <= 0` for an integer expression."""
    if not p.terms:
        return Bool(p.const <= 0)
    # (g*x + c <= 0) = (x - -c // g <= 0)      g > 0
    g = math.gcd(*[c for _, c in p.terms])
    return interned_atom(Le, _divide_all(p, g, -(-p.const // g)))


def _divide_all(p: Expr, g: int, const: int) -> Expr:
    if g == 1:
        return p
    return from_terms(const, {m: c // g for m, c in p.terms})


def not_(a: Expr) -> Expr:
    """`not a`."""
    match a:
        case Constant():
            return Bool(not a.value)
        case Eq():  # not (p == 0) = (p != 0)
            return interned_atom(Ne, a.args[0])
        case Ne():  # not (p != 0) = (p == 0)
            return interned_atom(Eq, a.args[0])
        case Le():  # not (p <= 0) = (1 - p <= 0)
            return nonpositive(neg(a.args[0]) + ONE)
        case Not():  # not not x = x
            return a.args[0]
        case And():  # not (x and y) = (not x or not y)
            return _join(Or, [not_(x) for x in a.args])
        case Or():  # not (x or y) = (not x and not y)
            return _join(And, [not_(x) for x in a.args])
        case _:
            return interned_atom(Not, a)


def and_(*items: Expr) -> Expr:
    """`a and b and ...` of booleans."""
    return _join(And, list(items))


def or_(*items: Expr) -> Expr:
    """`a or b or ...` of booleans."""
    return _join(Or, list(items))


def _join(cls: type[And] | type[Or], items: list[Expr]) -> Expr:
    """Flat, sorted, without repetitions."""
    # (x and x) = x
    # (x and not x) = false
    # (x or x) = x
    # (x or not x) = true
    neutral, absorbing = (TRUE, FALSE) if cls is And else (FALSE, TRUE)
    kept: dict[Expr, None] = {}
    for item in items:
        for part in item.args if type(item) is cls else (item,):
            if part is absorbing or not_(part) in kept:
                return absorbing
            if part is not neutral:
                kept[part] = None
    if not kept:
        return neutral
    if len(kept) == 1:
        return next(iter(kept))
    return interned_atom(cls, *sorted(kept, key=lambda e: (e.order, e.digest)))


def _bool_eq(a: Expr, b: Expr) -> Expr:
    for x, y in ((a, b), (b, a)):
        if x is TRUE:
            return y  # (true == y) = y
        if x is FALSE:
            return not_(y)  # (false == y) = not y
    if a is b:
        return TRUE  # (x == x) = true
    if a.digest > b.digest:
        a, b = b, a
    return interned_atom(BoolEq, a, b)


def select(condition: Expr, then: Expr, other: Expr) -> Expr:
    """`then if condition else other`."""
    if isinstance(condition, Constant):
        return then if condition.value else other
    if then is other:
        return then  # (x if c else x) = x
    if then.kind is bool and other.kind is bool:
        # (x if c else y) = (c and x or not c and y)
        return or_(and_(condition, then), and_(not_(condition), other))
    if float in (then.kind, other.kind):
        return interned_atom(FloatSelect, condition, floats.to_float(then), floats.to_float(other))
    then, other = floats.to_int(then), floats.to_int(other)
    return interned_atom(Select, condition, then, other)


__all__ = ["and_", "eq", "le", "lt", "ne", "nonpositive", "not_", "or_", "select", "zero"]
