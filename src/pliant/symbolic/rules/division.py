"""Floor division and remainder of integers as in Python: `a == b*(a//b) + a%b`, remainder zero or of b's sign.

Each rule is written above its code as an equation; it holds for all integers for which the left side is defined.
"""

from __future__ import annotations

import math

from pliant.symbolic.nodes import ONE, ZERO, Expr, Integer, from_terms, interned_atom, rule_memo
from pliant.symbolic.operations import FloorDiv, Mod
from pliant.symbolic.polynomials import add, atoms_of, monomial, mul, neg, scale
from pliant.symbolic.rules import floats

_DIVISION_STEPS = 32  # terms of a quotient; longer polynomial divisions stay unreduced


@rule_memo
def floordiv(a: Expr, b: Expr) -> Expr:
    """`a // b`."""
    if a.kind is not int or b.kind is not int:
        return floats.floordiv(a, b)
    if b is ZERO:
        raise ZeroDivisionError("integer division or modulo by zero")
    # 0 // b = 0
    if a is ZERO:
        return ZERO
    if not b.terms:
        return _floordiv_by_constant(a, b.const)
    if not a.terms and abs(a.const) == 1:
        return interned_atom(FloorDiv, a, b)
    # (g*x) // (g*y) = x // y      g != 0
    a, b = _cancel(a, b)
    if not b.terms:
        return _floordiv_by_constant(a, b.const)
    # (q*b + r) // b = q + r // b
    quotient, rest = divide(a, b)
    if quotient is not ZERO:
        return add(quotient, floordiv(rest, b))
    # (x % b) // b = 0
    if type(a) is Mod and a.args[1] is b:
        return ZERO
    # a // -b = -a // b
    if b.terms[0][1] < 0:
        a, b = neg(a), neg(b)
    return interned_atom(FloorDiv, a, b)


def _floordiv_by_constant(a: Expr, k: int) -> Expr:
    # x // -k = -x // k
    if k < 0:
        a, k = neg(a), -k
    if k == 1:
        return a
    if not a.terms:
        return Integer(a.const // k)
    # (k*q + r) // k = q + r // k
    quotient, rest = split_by_constant(a, k)
    # r // k = 0      0 <= r < k
    if not rest.terms:
        return quotient
    # -x // k = -((x + k - 1) // k)      k > 0
    if rest.terms[0][1] < 0:
        return add(quotient, neg(_floordiv_by_constant(add(neg(rest), Integer(k - 1)), k)))
    # (g*x + c) // (g*k) = (x + c // g) // k      g > 0, k > 0
    g = math.gcd(k, *[c for _, c in rest.terms])
    if g > 1:
        rest = from_terms(rest.const // g, {m: c // g for m, c in rest.terms})
        return add(quotient, _floordiv_by_constant(rest, k // g))
    return add(quotient, _floordiv_atom(rest, k))


def _floordiv_atom(a: Expr, k: int) -> Expr:
    """`a // k` where k > 1 and no coefficient of a is as large as k."""
    if len(a.terms) == 1 and a.terms[0][1] == 1 and type(a.terms[0][0]) is FloorDiv:
        inner = a.terms[0][0]
        # (x // y + c) // k = (x + c*y) // (y*k)      k > 0
        return floordiv(add(inner.args[0], scale(inner.args[1], a.const)), scale(inner.args[1], k))
    # (x % m) // k = 0      0 < m <= k
    if type(a) is Mod and 0 < (a.args[1].as_int() or 0) <= k:
        return ZERO
    return interned_atom(FloorDiv, a, Integer(k))


@rule_memo
def mod(a: Expr, b: Expr) -> Expr:
    """`a % b`."""
    if a.kind is not int or b.kind is not int:
        return floats.mod(a, b)
    if b is ZERO:
        raise ZeroDivisionError("integer division or modulo by zero")
    # 0 % b = 0
    if a is ZERO:
        return ZERO
    if not b.terms:
        return _mod_by_constant(a, b.const)
    # (g*x) % (g*y) = g * (x % y)      g != 0
    factor = common_factor(a, b)
    if factor is not ONE:
        return mul(factor, mod(exact_quotient(a, factor), exact_quotient(b, factor)))
    # (q*b + r) % b = r % b
    quotient, rest = divide(a, b)
    if quotient is not ZERO:
        return mod(rest, b)
    # (x % b) % b = x % b
    if type(a) is Mod and a.args[1] is b:
        return a
    # x % -b = -(-x % b)
    if b.terms[0][1] < 0:
        return neg(mod(neg(a), neg(b)))
    return interned_atom(Mod, a, b)


def _mod_by_constant(a: Expr, k: int) -> Expr:
    # x % -k = -(-x % k)
    if k < 0:
        return neg(_mod_by_constant(neg(a), -k))
    if k == 1:
        return ZERO
    a = _drop_inner_mods(a, k)
    # (k*q + r) % k = r % k
    _, rest = split_by_constant(a, k)
    if not rest.terms:
        return Integer(rest.const % k)
    # (g*x + c) % (g*k) = g * ((x + c // g) % k) + c % g      g > 0, k > 0
    g = math.gcd(k, *[c for _, c in rest.terms])
    if g > 1:
        inner = from_terms(rest.const // g, {m: c // g for m, c in rest.terms})
        return add(scale(_mod_by_constant(inner, k // g), g), Integer(rest.const % g))
    # (x % m) % k = x % m      0 < m <= k
    if type(rest) is Mod and 0 < (rest.args[1].as_int() or 0) <= k:
        return rest
    return interned_atom(Mod, rest, Integer(k))


def _drop_inner_mods(a: Expr, k: int) -> Expr:
    """`b` with b % k = a % k: the two differ by a multiple of k."""
    # (c*(x % m) + y) % k = (c*x + y) % k      c*m % k == 0
    for mono, coef in a.terms:
        if type(mono) is Mod and (modulus := mono.args[1].as_int()) is not None and coef * modulus % k == 0:
            inner = scale(add(mono.args[0], neg(mono)), coef)
            return _drop_inner_mods(add(a, inner), k)
    return a


def split_by_constant(a: Expr, k: int) -> tuple[Expr, Expr]:
    """`q, r` with a = k*q + r; r has a constant in [0, k) and coefficients below k, of the sign they had."""
    quotient: dict[Expr, int] = {}
    rest: dict[Expr, int] = {}
    for mono, coef in a.terms:
        q = coef // k if coef > 0 else -(-coef // k)
        if q:
            quotient[mono] = q
        if coef - q * k:
            rest[mono] = coef - q * k
    return from_terms(a.const // k, quotient), from_terms(a.const % k, rest)


# -- common factors ---------------------------------------------------------------------------------------------------


def content(a: Expr) -> int:
    """The greatest common divisor of all coefficients, 0 only for 0."""
    return math.gcd(a.const, *[c for _, c in a.terms])


def monomial_content(a: Expr) -> tuple[Expr, ...]:
    """The atoms (with repetition, sorted) that divide every term."""
    if a.const or not a.terms:
        return ()
    common = list(atoms_of(a.terms[0][0]))
    for mono, _ in a.terms[1:]:
        common = _intersect(common, atoms_of(mono))
        if not common:
            return ()
    return tuple(common)


def _intersect(left: list[Expr], right: tuple[Expr, ...]) -> list[Expr]:
    remaining = list(right)
    result = []
    for atom in left:
        if atom in remaining:
            remaining.remove(atom)
            result.append(atom)
    return result


def common_factor(a: Expr, b: Expr) -> Expr:
    """A positive integer times a monomial that divides both."""
    g = math.gcd(content(a), content(b))
    atoms: tuple[Expr, ...] = ()
    if left := monomial_content(a):
        atoms = tuple(_intersect(list(left), monomial_content(b)))
    return scale(monomial(atoms), g)


def _cancel(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    factor = common_factor(a, b)
    if factor is ONE:
        return a, b
    return exact_quotient(a, factor), exact_quotient(b, factor)


def exact_quotient(a: Expr, factor: Expr) -> Expr:
    """`a / factor`, where `factor` is a coefficient times a monomial and divides every term."""
    ((mono, coef),) = factor.terms or ((ONE, factor.const),)
    if mono is ONE:
        return from_terms(a.const // coef, {m: c // coef for m, c in a.terms})
    terms: dict[Expr, int] = {}
    const = 0
    for m, c in a.terms:
        rest = divide_monomials(m, mono)
        assert rest is not None
        if rest is ONE:
            const = c // coef
        else:
            terms[rest] = c // coef
    return from_terms(const, terms)


def divide_monomials(a: Expr, b: Expr) -> Expr | None:
    """The monomial `a / b`, or None if b does not divide a."""
    remaining = list(atoms_of(a))
    for atom in atoms_of(b):
        if atom not in remaining:
            return None
        remaining.remove(atom)
    return monomial(tuple(remaining))


def divide(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    """`q, r` with a = q*b + r: division of polynomials by the leading term of b, all or nothing.

    A partial quotient is kept only if it leaves fewer terms than a has (else `x // y` would grow).
    """
    lead, lead_coef = b.terms[0]
    quotient: Expr = ZERO
    rest = a
    for _ in range(_DIVISION_STEPS):
        step = _division_step(rest, lead, lead_coef)
        if step is None:
            break
        quotient = add(quotient, step)
        rest = add(rest, neg(mul(step, b)))
    if len(rest.terms) + (rest.const != 0) >= len(a.terms) + (a.const != 0):
        return ZERO, a
    return quotient, rest


def _division_step(rest: Expr, lead: Expr, lead_coef: int) -> Expr | None:
    for mono, coef in rest.terms:
        if coef % lead_coef == 0 and (factor := divide_monomials(mono, lead)) is not None:
            return scale(factor, coef // lead_coef)
    return None


__all__ = ["common_factor", "content", "divide", "floordiv", "mod", "monomial_content"]
