"""Decide comparisons from value ranges and learnt facts.

In:     a canonical integer comparison and a `Knowledge` (ranges of symbols, known bounds of other expressions).
Out:    True, False, or None where this method finds no proof.
Holds:  an answer is right for every choice of symbols that satisfies the knowledge.
Method: interval arithmetic; one known inequality subtracted; positivity of the polynomial after moving every atom to
        its lower bound; and relaxations that replace an atom (`//`, `%`, `min`, `max`) by a bound of it, a few deep.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Protocol

from pliant.symbolic import expr as x
from pliant.symbolic.bounds import Interval
from pliant.symbolic.expr import Expr, Integer, add, neg, scale, sub, without
from pliant.symbolic.rules import division
from pliant.symbolic.traverse import atoms, substitute

_DEPTH = 4
_SHIFT_TERMS = 24
_SHIFT_DEGREE = 4
_RELAXED = frozenset((x.FloorDiv, x.Mod, x.Min, x.Max, x.Select))


class Knowledge(Protocol):
    """What the prover may use."""

    def range_of(self, e: Expr) -> Interval: ...

    def inequalities(self, symbols: frozenset[x.Symbol]) -> Iterable[Expr]:
        """Expressions known to be <= 0 that share a symbol with `symbols`."""


def prove(e: Expr, known: Knowledge) -> bool | None:
    """The truth of a boolean expression, where it follows from `known`."""
    match e:
        case x.Constant():
            return bool(e.value)
        case x.Le():
            return _decide_le(e.args[0], known)
        case x.Eq():
            return _decide_eq(e.args[0], known)
        case x.Ne():
            return _negated(_decide_eq(e.args[0], known))
        case x.Not():
            return _negated(prove(e.args[0], known))
        case x.And():
            return _all([prove(a, known) for a in e.args])
        case x.Or():
            return _negated(_all([_negated(prove(a, known)) for a in e.args]))
        case _:
            return _from_range(known.range_of(e))


def _negated(value: bool | None) -> bool | None:
    return None if value is None else not value


def _all(values: list[bool | None]) -> bool | None:
    if False in values:
        return False
    return None if None in values else True


def _from_range(r: Interval) -> bool | None:
    return bool(r.lo) if r.lo == r.hi else None


def _decide_le(p: Expr, known: Knowledge) -> bool | None:
    r = known.range_of(p)
    if r.hi <= 0:
        return True
    if r.lo > 0:
        return False
    if nonpositive(p, known, _DEPTH):
        return True
    if nonpositive(Integer(1) - p, known, _DEPTH):
        return False
    return None


def _decide_eq(p: Expr, known: Knowledge) -> bool | None:
    r = known.range_of(p)
    if r.lo > 0 or r.hi < 0:
        return False
    if r.lo == r.hi == 0:
        return True
    if not_divisible(p, known):
        return False
    if vanishes(p, known):
        return True
    if nonpositive(add(p, Integer(1)), known, _DEPTH) or nonpositive(Integer(1) - p, known, _DEPTH):
        return False
    if nonpositive(p, known, _DEPTH) and nonpositive(neg(p), known, _DEPTH):
        return True
    return None


def not_divisible(p: Expr, known: Knowledge) -> bool:
    """p != 0 because all of its terms but the constant are multiples of a remainder's modulus: 8*x + (y % 8) - 9..."""
    for mono, coef in p.terms:
        if type(mono) is x.Mod and abs(coef) == 1 and (k := mono.args[1].as_int()):
            rest = without(p, mono)
            if all(c % k == 0 for _, c in rest.terms):
                residue = (-rest.const * coef) % k
                r = known.range_of(mono)
                if not r.lo <= residue <= r.hi:
                    return True
    return False


def vanishes(p: Expr, known: Knowledge) -> bool:
    """p == 0 after writing every remainder as a - b*(a // b), and every exact quotient a // k as a / k."""
    remainders = [m for m in atoms(p) if type(m) is x.Mod]
    expanded = substitute(p, {m: m.args[0] - m.args[1] * (m.args[0] // m.args[1]) for m in remainders})
    if expanded is x.ZERO:
        return True
    for atom in atoms(expanded):
        if type(atom) is x.FloorDiv and known.range_of(atom.args[0] % atom.args[1]).single == 0:
            cleared = clear_quotient(expanded, atom)
            if cleared is not None and (cleared is x.ZERO or vanishes(cleared, known)):
                return True
    return False


def clear_quotient(p: Expr, quotient: Expr) -> Expr | None:
    """b*p with b*(a // b) written as a, for an exact quotient to whose first power p is linear."""
    a, b = quotient.args
    linear: Expr = x.ZERO
    rest: Expr = Integer(p.const)
    for mono, coef in p.terms:
        count = x.atoms_of(mono).count(quotient)
        if count > 1:
            return None
        if count:
            other = division.divide_monomials(mono, quotient)
            assert other is not None
            linear = add(linear, scale(other, coef))
        else:
            rest = add(rest, scale(mono, coef))
    return add(x.mul(linear, a), x.mul(rest, b))


# -- inequalities -----------------------------------------------------------------------------------------------------


def nonpositive(p: Expr, known: Knowledge, depth: int) -> bool:
    """Whether p <= 0 is proved."""
    if known.range_of(p).hi <= 0:
        return True
    if not p.terms:
        return False
    if shifted_nonpositive(p, known):
        return True
    if any(known.range_of(sub(p, fact)).hi <= 0 for fact in known.inequalities(p.free)):
        return True
    return depth > 0 and any(all(nonpositive(q, known, depth - 1) for q in goals) for goals in relaxations(p, known))


def shifted_nonpositive(p: Expr, known: Knowledge) -> bool:
    """With every atom written as (its lower bound + t), t >= 0, no coefficient is positive: p <= its constant <= 0."""
    if len(p.terms) > _SHIFT_TERMS:
        return False
    total: dict[tuple[Expr, ...], int] = {(): p.const}
    for mono, coef in p.terms:
        factors = x.atoms_of(mono)
        if len(factors) > _SHIFT_DEGREE:
            return False
        partial: dict[tuple[Expr, ...], int] = {(): coef}
        for atom in factors:
            low = known.range_of(atom).lo
            if low == -math.inf or not isinstance(low, int):
                return False
            partial = _times_shifted(partial, atom, low)
        for key, value in partial.items():
            total[key] = total.get(key, 0) + value
    return all(value <= 0 for value in total.values())


def _times_shifted(poly: dict[tuple[Expr, ...], int], atom: Expr, low: int) -> dict[tuple[Expr, ...], int]:
    result: dict[tuple[Expr, ...], int] = {}
    for key, value in poly.items():
        extended = (*key, atom)  # the factors of a monomial are sorted, so keys agree
        result[extended] = result.get(extended, 0) + value
        if low:
            result[key] = result.get(key, 0) + value * low
    return result


def relaxations(p: Expr, known: Knowledge) -> Iterator[list[Expr]]:
    """Lists of goals: if all expressions of a list are <= 0, so is p. Each removes one atom that occurs alone."""
    for mono, coef in p.terms:
        if type(mono) not in _RELAXED:
            continue
        rest = without(p, mono)
        match mono:
            case x.FloorDiv():
                yield from _relax_quotient(mono, coef, rest, known)
            case x.Mod():
                yield from _relax_remainder(mono, coef, rest, known)
            case x.Min() if coef > 0:  # min(a, b) <= a
                yield from ([add(scale(a, coef), rest)] for a in mono.args)
            case x.Min():
                yield [add(scale(a, coef), rest) for a in mono.args]
            case x.Max() if coef < 0:  # max(a, b) >= a
                yield from ([add(scale(a, coef), rest)] for a in mono.args)
            case x.Max():
                yield [add(scale(a, coef), rest) for a in mono.args]
            case x.Select():
                yield [add(scale(a, coef), rest) for a in mono.args[1:]]


def _relax_quotient(quotient: Expr, coef: int, rest: Expr, known: Knowledge) -> Iterator[list[Expr]]:
    """By p times the divisor. A multiple of a number k is at most 0 if it is at most k - 1."""
    a, b = quotient.args
    if known.range_of(b).lo <= 0:
        return
    spare = x.Integer((b.as_int() or 1) - 1)
    if coef > 0:  # b*(a // b) <= a      b > 0
        yield [add(scale(a, coef), x.mul(rest, b)) - spare]
        if b.terms and known.range_of(a).lo >= 0:  # a // b <= a      b > 0, a >= 0
            yield [add(scale(a, coef), rest)]
    else:  # b*(a // b) >= a - b + 1      b > 0
        yield [add(scale(a - b + 1, coef), x.mul(rest, b)) - spare]


def _relax_remainder(remainder: Expr, coef: int, rest: Expr, known: Knowledge) -> Iterator[list[Expr]]:
    a, b = remainder.args
    if coef > 0 and known.range_of(b).lo > 0:
        yield [add(scale(b - 1, coef), rest)]  # a % b <= b - 1      b > 0
        if known.range_of(a).lo >= 0:  # a % b <= a      b > 0, a >= 0
            yield [add(scale(a, coef), rest)]
