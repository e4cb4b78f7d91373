"""Arithmetic of integer expressions as sums of products.

In:     expressions; those that are no integers go to `rules/floats.py`.
Out:    canonical sums `const + coef*mono + ...`, their monomials in order.
Holds:  products of sums are multiplied out up to `EXPAND_LIMIT` terms, so that expressions grow linearly.

Import from `expr.py`, which has all names.
"""

from __future__ import annotations

from typing import Any, cast

from pliant.symbolic.nodes import ONE, ZERO, Expr, Integer, Product, Term, _from_pairs, _intern, from_terms, rule_memo
from pliant.symbolic.operations import Factored
from pliant.symbolic.rules import floats

EXPAND_LIMIT = 36  # terms


@rule_memo
def add(a: Expr, b: Expr) -> Expr:
    if a.kind is not int or b.kind is not int:
        return floats.add(a, b)
    if not b.terms:
        return _shift(a, b.const)
    if not a.terms:
        return _shift(b, a.const)
    terms = dict(a.terms)
    for mono, coef in b.terms:
        total = terms.get(mono, 0) + coef
        if total:
            terms[mono] = total
        else:
            del terms[mono]
    return from_terms(a.const + b.const, terms)


def _shift(a: Expr, by: int) -> Expr:
    """`a + by`; the terms are sorted already."""
    if by == 0:
        return a
    if not a.terms:
        return Integer(a.const + by)
    return from_sorted(a.const + by, a.terms)


def without(a: Expr, mono: Expr) -> Expr:
    """`a` less its term of a monomial."""
    return from_sorted(a.const, tuple([term for term in a.terms if term[0] is not mono]))


def from_sorted(const: int, pairs: tuple[Term, ...]) -> Expr:
    """`const` plus the sum of `coef * mono`, which are in order; no coefficient is zero."""
    if not pairs:
        return Integer(const)
    if const == 0 and len(pairs) == 1 and pairs[0][1] == 1:
        return pairs[0][0]
    return _from_pairs(const, pairs)


def neg(a: Expr) -> Expr:
    return scale(a, -1) if a.kind is int else floats.neg(a)


def sub(a: Expr, b: Expr) -> Expr:
    if a.kind is not int or b.kind is not int:
        return floats.sub(a, b)
    return add(a, scale(b, -1))


def scale(a: Expr, by: int) -> Expr:
    """`by * a` for an integer expression."""
    if by == 1:
        return a
    if by == 0:
        return ZERO
    if not a.terms:
        return Integer(a.const * by)
    return from_sorted(a.const * by, tuple([(m, c * by) for m, c in a.terms]))


@rule_memo
def mul(a: Expr, b: Expr) -> Expr:
    if a.kind is not int or b.kind is not int:
        return floats.mul(a, b)
    if not b.terms:
        return scale(a, b.const)
    if not a.terms:
        return scale(b, a.const)
    if len(a.terms) * len(b.terms) > EXPAND_LIMIT or _stays_factored(a, b) or _stays_factored(b, a):
        return _intern(Factored, (a, b) if a.digest <= b.digest else (b, a))
    terms: dict[Expr, int] = {}
    for mono_a, coef_a in a.terms:
        if b.const:
            _accumulate(terms, mono_a, coef_a * b.const)
        for mono_b, coef_b in b.terms:
            _accumulate(terms, multiply_monomials(mono_a, mono_b), coef_a * coef_b)
    if a.const:
        for mono_b, coef_b in b.terms:
            _accumulate(terms, mono_b, a.const * coef_b)
    return from_terms(a.const * b.const, terms)


def _stays_factored(a: Expr, b: Expr) -> bool:
    """A factored product times a sum is not distributed: it would grow again."""
    return len(b.terms) > 1 and any(type(atom) is Factored for mono, _ in a.terms for atom in atoms_of(mono))


def _accumulate(terms: dict[Expr, int], mono: Expr, coef: int) -> None:
    total = terms.get(mono, 0) + coef
    if total:
        terms[mono] = total
    else:
        terms.pop(mono, None)


def multiply_monomials(a: Expr, b: Expr) -> Expr:
    atoms = sorted(atoms_of(a) + atoms_of(b), key=_atom_order)
    return _intern(Product, tuple(atoms))


def _atom_order(atom: Expr) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", atom.order[1])


def atoms_of(mono: Expr) -> tuple[Expr, ...]:
    """The factors of one monomial."""
    return mono.args if type(mono) is Product else (mono,)


def monomial(atoms: tuple[Expr, ...]) -> Expr:
    """The product of sorted atoms; 1 if there are none."""
    if not atoms:
        return ONE
    return atoms[0] if len(atoms) == 1 else _intern(Product, atoms)
