"""Integer powers, shifts and bit operations.

Each rule is written above its code as an equation; it holds for all integers for which the left side is defined.
"""

from __future__ import annotations

from pliant.symbolic.nodes import ONE, ZERO, Expr, Integer, interned_atom
from pliant.symbolic.operations import BitAnd, BitOr, BitXor, LeftShift, Pow, RightShift
from pliant.symbolic.polynomials import mul
from pliant.symbolic.rules import floats

_MONOMIAL_POWER = 16  # s**16 is the longest repeated atom
_SUM_POWER = 4
_SHIFT = 62


def power(a: Expr, b: Expr) -> Expr:
    """`a ** b`; of integers only where b >= 0."""
    if float in (a.kind, b.kind):
        return floats.power(a, b)
    a, b = floats.to_int(a), floats.to_int(b)
    if b.terms:
        # 1**x = 1      x >= 0
        return ONE if a is ONE else interned_atom(Pow, a, b)
    n = b.const
    if n < 0:
        return floats.power(a, b)
    if not a.terms:
        return Integer(a.const**n)
    # x**n = x * x**(n - 1)      n > 0
    if n <= (_SUM_POWER if len(a.terms) > 1 or a.const else _MONOMIAL_POWER):
        result: Expr = ONE
        for _ in range(n):
            result = mul(result, a)
        return result
    return interned_atom(Pow, a, b)


def left_shift(a: Expr, b: Expr) -> Expr:
    """`a << b`."""
    a, b = floats.to_int(a), floats.to_int(b)
    # x << k = 2**k * x      k >= 0
    if not b.terms and 0 <= b.const <= _SHIFT:
        return mul(a, Integer(1 << b.const))
    return interned_atom(LeftShift, a, b)


def right_shift(a: Expr, b: Expr) -> Expr:
    """`a >> b`."""
    a, b = floats.to_int(a), floats.to_int(b)
    # x >> k = x // 2**k      k >= 0
    if not b.terms and 0 <= b.const <= _SHIFT:
        return a // Integer(1 << b.const)
    return interned_atom(RightShift, a, b)


def bit_and(a: Expr, b: Expr) -> Expr:
    """`a & b` of integers."""
    if a.digest > b.digest:
        a, b = b, a
    if not a.terms and not b.terms:
        return Integer(a.const & b.const)
    # x & x = x
    # x & 0 = 0
    if a is b:
        return a
    return ZERO if ZERO in (a, b) else interned_atom(BitAnd, a, b)


def bit_or(a: Expr, b: Expr) -> Expr:
    """`a | b` of integers."""
    if a.digest > b.digest:
        a, b = b, a
    if not a.terms and not b.terms:
        return Integer(a.const | b.const)
    # x | x = x
    # x | 0 = x
    if a is b or b is ZERO:
        return a
    return b if a is ZERO else interned_atom(BitOr, a, b)


def bit_xor(a: Expr, b: Expr) -> Expr:
    """`a ^ b` of integers."""
    if a.digest > b.digest:
        a, b = b, a
    if not a.terms and not b.terms:
        return Integer(a.const ^ b.const)
    # x ^ x = 0
    # x ^ 0 = x
    if a is b:
        return ZERO
    if b is ZERO:
        return a
    return b if a is ZERO else interned_atom(BitXor, a, b)
