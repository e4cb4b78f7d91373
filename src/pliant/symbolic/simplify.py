"""Rewrites of one node that need to know ranges or facts.

In:     a canonical node whose parts are simplified already, and what is known.
Out:    an equal node (the same one if nothing applies).
Holds:  each rule's side condition is proved for all values in range before the rule is used.
"""

from __future__ import annotations

from typing import Protocol

from pliant.symbolic import expr as x
from pliant.symbolic.bounds import Interval
from pliant.symbolic.expr import Expr, add, scale
from pliant.symbolic.rules import division, relations

_EXACT = 1 << 53  # integers up to here are doubles


class Known(Protocol):
    """What a rewrite may ask."""

    def range_of(self, e: Expr) -> Interval: ...

    def prove(self, e: Expr) -> bool | None: ...

    def simplify(self, e: Expr) -> Expr: ...

    def rest_of(self, e: Expr, by: int) -> int | None: ...


def simplify_node(e: Expr, known: Known) -> Expr:
    """One rewrite of `e` itself."""
    match e:
        case x.FloorDiv():
            return _floordiv(e, known)
        case x.Mod():
            return _mod(e, known)
        case x.Min() | x.Max():
            return _extremum(e, known)
        case x.Product():
            return _product(e, known)
        case x.Sum():
            return _sum(e, known)
        case x.Floor() | x.ToInt() | x.Ceil() | x.Round():
            return _rounding(e, known)
        case x.Select() | x.FloatSelect():
            truth = known.prove(e.args[0])
            return e if truth is None else e.args[1] if truth else e.args[2]
        case x.Le() | x.Eq() | x.Ne() | x.And() | x.Or():
            truth = known.prove(e)
            return e if truth is None else x.lit(truth)
        case x.FloatLe() | x.FloatLt() | x.FloatEq():
            return _float_comparison(e, known)
        case _:
            return e


def _float_comparison(e: Expr, known: Known) -> Expr:
    # (a <= b) = true      hi(a) <= lo(b), neither is NaN
    a, b = e.args
    if never_nan(a) and never_nan(b):
        high, low = known.range_of(a).hi, known.range_of(b).lo
        if type(e) is x.FloatLe and high <= low or type(e) is x.FloatLt and high < low:
            return x.TRUE
    return e


def never_nan(e: Expr) -> bool:
    """A converted integer, or the quotient of integers (which raises where the divisor is 0)."""
    return isinstance(e, (x.ToFloat, x.IntTrueDiv)) or isinstance(e, x.Float) and e.value == e.value


def _below(a: Expr, b: Expr, known: Known) -> bool:
    """0 <= a < b"""
    return known.range_of(a).lo >= 0 and known.prove(relations.lt(a, b)) is True


def _floordiv(e: Expr, known: Known) -> Expr:
    a, b = e.args
    # a // b = 0      0 <= a < b
    if _below(a, b, known):
        return x.ZERO
    # (x // y) // z = x // (y*z)      z > 0
    if type(a) is x.FloorDiv and b.terms and known.range_of(b).lo > 0:
        return division.floordiv(a.args[0], x.mul(a.args[1], b))
    return e


def _mod(e: Expr, known: Known) -> Expr:
    a, b = e.args
    # a % b = a      0 <= a < b
    if _below(a, b, known):
        return a
    # a % b = r % b      b > 0, k > 0, a % (b*k) == r
    if (by := b.as_int()) and (rest := known.rest_of(a, by)) is not None:
        return x.lit(rest)
    # (c*x*z + y) % b = y % b      c*x % b == 0
    for mono, coef in a.terms:
        factors = x.atoms_of(mono)
        if len(factors) == 1 and len(a.terms) == 1 and not a.const:
            return e
        if any(known.simplify(division.mod(scale(factor, coef), b)) is x.ZERO for factor in factors):
            return division.mod(a - scale(mono, coef), b)
    return e


def _extremum(e: Expr, known: Known) -> Expr:
    # max(a, b) = b      a <= b
    # min(a, b) = a      a <= b
    for a in e.args:
        for b in e.args:
            if a is not b and known.prove(relations.le(a, b)):
                dropped = a if type(e) is x.Max else b
                kept = [c for c in e.args if c is not dropped]
                return kept[0] if len(kept) == 1 else x.interned_atom(type(e), *kept)  # type: ignore[arg-type]
    return e


def _exact(quotient: Expr, known: Known) -> bool:
    """Whether a // b has no remainder."""
    return type(quotient) is x.FloorDiv and known.range_of(known.simplify(division.mod(*quotient.args))).single == 0


def _product(e: Expr, known: Known) -> Expr:
    # b * (a // b) = a      a % b == 0
    for atom in e.args:
        if type(atom) is x.FloorDiv and _exact(atom, known):
            a, b = atom.args
            rest = division.divide_monomials(e, atom)
            if rest is not None and not b.const and len(b.terms) == 1 and b.terms[0][1] == 1:
                other = division.divide_monomials(rest, b.terms[0][0])
                if other is not None:
                    return x.mul(a, other)
    return e


def _sum(e: Expr, known: Known) -> Expr:
    # k * (a // k) = a      a % k == 0
    for mono, coef in e.terms:
        for atom in x.atoms_of(mono):
            if type(atom) is x.FloorDiv and (k := atom.args[1].as_int()) and coef % k == 0 and _exact(atom, known):
                other = division.divide_monomials(mono, atom)
                assert other is not None
                return add(x.without(e, mono), scale(x.mul(other, atom.args[0]), coef // k))
    # c * a + d * (a // k) = (c * k + d) * (a // k)      a % k == 0
    for mono, _ in e.terms:
        for atom in x.atoms_of(mono):
            if type(atom) is x.FloorDiv and (k := atom.args[1].as_int()) and _exact(atom, known):
                other = division.divide_monomials(mono, atom)
                assert other is not None
                part = x.mul(other, atom.args[0])
                if times := _times(part, e):
                    return add(e - scale(part, times), scale(mono, times * k))
    return e


def _times(part: Expr, e: Expr) -> int:
    """How many times each term of `part` is in the sum `e`; 0 where they are not there alike."""
    there = dict(e.terms)
    found = {divmod(there.get(mono, 0), coef) for mono, coef in part.terms}
    times, rest = found.pop() if len(found) == 1 else (0, 0)
    return 0 if rest else times


def _rounding(e: Expr, known: Known) -> Expr:
    a = e.args[0]
    # floor(float(n)) = n      abs(n) <= 2**53
    if type(a) is x.ToFloat and _is_exact(a.args[0], known):
        return a.args[0]
    # floor(p / q) = p // q      0 <= p, 1 <= q, p and q <= 2**53
    if type(a) is x.IntTrueDiv and type(e) is not x.Round and all(_is_exact(n, known) for n in a.args):
        p, q = a.args
        if known.range_of(p).lo >= 0 and known.range_of(q).lo >= 1:
            if type(e) is x.Ceil:
                return _ceil_quotient(p, q)
            return division.floordiv(p, q)
    return e


def _ceil_quotient(p: Expr, q: Expr) -> Expr:
    # ceil(p / q) = -(-p // q)      0 <= p, 1 <= q, p and q <= 2**53
    return scale(division.floordiv(scale(p, -1), q), -1)


def _is_exact(n: Expr, known: Known) -> bool:
    r = known.range_of(n)
    return r.lo >= -_EXACT and r.hi <= _EXACT


def needs_exact_integers(e: Expr) -> tuple[Expr, ...]:
    """The integers that must be at most 2**53 for the rounding of a float to be an integer operation."""
    if isinstance(e, (x.Floor, x.ToInt, x.Ceil)) and isinstance(e.args[0], (x.IntTrueDiv, x.ToFloat)):
        return e.args[0].args
    return ()
