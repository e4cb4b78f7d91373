"""Value ranges: which numbers an expression can be, from the ranges of its parts.

In:     an expression and a function giving the range of symbols and of anything else that is known.
Out:    an `Interval`; integers between two ints or infinities, floats likewise, booleans as 0 and 1.
Holds:  the value lies in the interval for every choice of symbols in their ranges (a NaN lies in every float interval).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from pliant.records import dataclass
from pliant.symbolic import expr as x
from pliant.symbolic.expr import Expr

INF = math.inf
Bound: TypeAlias = "int | float"
_HUGE = 1 << 256  # larger integer bounds become infinite: they overflow when they meet a float infinity


@dataclass(frozen=True, slots=True)
class Interval:
    """All numbers from `lo` to `hi`, both included."""

    lo: Bound
    hi: Bound

    @property
    def single(self) -> Bound | None:
        return self.lo if self.lo == self.hi else None

    def meet(self, other: Interval) -> Interval:
        if other.lo <= self.lo and self.hi <= other.hi:
            return self
        return Interval(max(self.lo, other.lo), min(self.hi, other.hi))

    def join(self, other: Interval) -> Interval:
        return Interval(min(self.lo, other.lo), max(self.hi, other.hi))

    @property
    def is_empty(self) -> bool:
        return self.lo > self.hi


ALL = Interval(-INF, INF)
NONNEGATIVE = Interval(0, INF)
POSITIVE = Interval(1, INF)
TRUTH = Interval(0, 1)

Lookup: TypeAlias = Callable[[Expr], "Interval | None"]


def bounds(e: Expr, known: Lookup, memo: dict[Expr, Interval] | None = None) -> Interval:
    """The range of `e`; `known` gives that of every symbol, and of other expressions where more than the parts tell."""
    return _bounds(e, known, {} if memo is None else memo)


def _bounds(e: Expr, known: Lookup, memo: dict[Expr, Interval]) -> Interval:
    if isinstance(e, x.Constant):
        value = e.value
        return ALL if value != value else Interval(value, value)
    found = memo.get(e)
    if found is not None:
        return found
    if isinstance(e, x.Symbol):
        found = known(e) or (TRUTH if e.kind is bool else ALL)
    elif type(e) is x.Sum:
        found = _sum(e, known, memo)
    elif type(e) is x.Product:
        found = _product(e, known, memo)
    else:
        rule = _RULES.get(type(e))
        found = rule(*[_bounds(a, known, memo) for a in e.args]) if rule else (TRUTH if e.kind is bool else ALL)
        if fact := known(e):
            found = found.meet(fact)
    memo[e] = found
    return found


def _sum(e: Expr, known: Lookup, memo: dict[Expr, Interval]) -> Interval:
    lo: Bound = e.const
    hi: Bound = e.const
    for mono, coef in e.terms:
        part = memo.get(mono) or _bounds(mono, known, memo)
        low, high = (part.lo, part.hi) if coef > 0 else (part.hi, part.lo)
        lo, hi = lo + low * coef, hi + high * coef  # no coefficient is zero
    found = Interval(_tame(lo), _tame(hi))
    fact = known(e)
    return found.meet(fact) if fact else found


def _product(e: Expr, known: Lookup, memo: dict[Expr, Interval]) -> Interval:
    """Equal factors together, so that a square is never negative."""
    result = Interval(1, 1)
    atoms = e.args
    i = 0
    while i < len(atoms):
        n = atoms.count(atoms[i])
        result = multiply(result, _natural_power(_bounds(atoms[i], known, memo), n))
        i += n
    fact = known(e)
    return result.meet(fact) if fact else result


def _times(a: Bound, b: Bound) -> Bound:
    """The product with 0 * infinity = 0, as limits of bounded ranges ask for."""
    if a == 0 or b == 0:
        return 0
    return a * b


def _tame(value: Bound) -> Bound:
    if isinstance(value, int) and not -_HUGE < value < _HUGE:
        return INF if value > 0 else -INF
    return value


def multiply(a: Interval, b: Interval) -> Interval:
    if a.lo >= 0 and b.lo >= 0:
        return Interval(_tame(_times(a.lo, b.lo)), _tame(_times(a.hi, b.hi)))
    corners = (_times(a.lo, b.lo), _times(a.lo, b.hi), _times(a.hi, b.lo), _times(a.hi, b.hi))
    return Interval(_tame(min(corners)), _tame(max(corners)))


def _natural_power(a: Interval, n: int) -> Interval:
    if n == 1:
        return a
    low, high = _tame_power(a.lo, n), _tame_power(a.hi, n)
    if n % 2:
        return Interval(low, high)
    if a.lo >= 0:
        return Interval(low, high)
    if a.hi <= 0:
        return Interval(high, low)
    return Interval(0, max(low, high))


def _tame_power(value: Bound, n: int) -> Bound:
    if isinstance(value, float) or abs(value) > 1 and n * abs(value).bit_length() > 256:
        return -INF if value < 0 and n % 2 else INF
    return int(value**n)


def _floordiv(a: Interval, b: Interval) -> Interval:
    """Monotone in each operand on either side of a zero divisor, which is excluded."""
    corners: list[Bound] = []
    for lo, hi in ((max(b.lo, 1), b.hi), (b.lo, min(b.hi, -1))):
        if lo <= hi:
            corners += [_quotient(p, q) for p in (a.lo, a.hi) for q in (lo, hi)]
    return Interval(min(corners), max(corners)) if corners else ALL


def _quotient(p: Bound, q: Bound) -> Bound:
    if isinstance(p, int) and isinstance(q, int):
        return p // q
    if abs(p) == INF:
        return p if q > 0 else -p
    return 0 if (p >= 0) == (q > 0) or p == 0 else -1  # a finite number over an infinite one


def _mod(a: Interval, b: Interval) -> Interval:
    lo = 0 if b.lo >= 0 else b.lo + 1
    hi = 0 if b.hi <= 0 else b.hi - 1
    if a.lo >= 0 and b.lo > 0:
        if a.hi < b.lo:
            return a
        hi = min(hi, a.hi)
    return Interval(lo, hi)


def _pow(a: Interval, b: Interval) -> Interval:
    if b.lo == b.hi and isinstance(b.lo, int) and b.lo >= 0:
        return _natural_power(a, b.lo) if b.lo else Interval(1, 1)
    return POSITIVE if a.lo >= 1 else NONNEGATIVE if a.lo >= 0 else ALL


def _bit_and(a: Interval, b: Interval) -> Interval:
    """Between 0 and each operand that is not negative."""
    highs = [r.hi for r in (a, b) if r.lo >= 0]
    return Interval(0, min(highs)) if highs else ALL


def _nonnegative_bits(a: Interval, b: Interval) -> Interval:
    return NONNEGATIVE if a.lo >= 0 and b.lo >= 0 else ALL


def _right_shift(a: Interval, b: Interval) -> Interval:
    return Interval(min(a.lo, 0), max(a.hi, 0)) if a.lo < 0 else Interval(0, a.hi)


def _left_shift(a: Interval, b: Interval) -> Interval:
    return Interval(a.lo if a.lo >= 0 else -INF, INF if a.hi > 0 else a.hi)


def _select(c: Interval, a: Interval, b: Interval) -> Interval:
    if c.lo == c.hi:
        return a if c.lo else b
    return a.join(b)


def _to_float(a: Interval) -> Interval:
    return Interval(_float_bound(a.lo), _float_bound(a.hi))


def _float_bound(value: Bound) -> float:
    try:
        return float(value)
    except OverflowError:
        return INF if value > 0 else -INF


def _rounding(function: Callable[[float], int]) -> Callable[[Interval], Interval]:
    def rule(a: Interval) -> Interval:
        return Interval(*[v if math.isinf(v) else function(v) for v in (a.lo, a.hi)])

    return rule


def _nondecreasing(a: Interval, b: Interval) -> Interval:
    """Float addition: rounding keeps order."""
    lo, hi = a.lo + b.lo, a.hi + b.hi
    return ALL if lo != lo or hi != hi else Interval(lo, hi)


def _float_mul(a: Interval, b: Interval) -> Interval:
    if a.lo >= 0 and b.lo >= 0:
        return Interval(_times(a.lo, b.lo), _times(a.hi, b.hi))
    return ALL


def _int_truediv(a: Interval, b: Interval) -> Interval:
    if a.lo >= 0 and b.lo >= 1:
        high = INF if a.hi == INF else _float_bound(a.hi) / _float_bound(b.lo)
        low = 0.0 if b.hi == INF or a.lo == INF else _float_bound(a.lo) / _float_bound(b.hi)
        return Interval(low, high)
    return ALL


def _sqrt(a: Interval) -> Interval:
    return Interval(math.sqrt(max(a.lo, 0)), math.sqrt(a.hi) if 0 <= a.hi < INF else INF)


def _negate(a: Interval) -> Interval:
    return Interval(-a.hi, -a.lo)


def _not(a: Interval) -> Interval:
    return Interval(1 - a.hi, 1 - a.lo)


def _eq(p: Interval) -> Interval:
    if p.lo > 0 or p.hi < 0:
        return Interval(0, 0)
    return Interval(1, 1) if p.lo == p.hi == 0 else TRUTH


def _le(p: Interval) -> Interval:
    return Interval(1, 1) if p.hi <= 0 else Interval(0, 0) if p.lo > 0 else TRUTH


# Float comparisons are decided only in the false direction's absence: a NaN makes each of them false.
_RULES: dict[type[Expr], Callable[..., Interval]] = {
    x.Factored: multiply,
    x.FloorDiv: _floordiv,
    x.Mod: _mod,
    x.Min: lambda *a: Interval(min(r.lo for r in a), min(r.hi for r in a)),
    x.Max: lambda *a: Interval(max(r.lo for r in a), max(r.hi for r in a)),
    x.Pow: _pow,
    x.LeftShift: _left_shift,
    x.RightShift: _right_shift,
    x.BitAnd: _bit_and,
    x.BitOr: _nonnegative_bits,
    x.BitXor: _nonnegative_bits,
    x.ToInt: _rounding(math.trunc),
    x.Floor: _rounding(math.floor),
    x.Ceil: _rounding(math.ceil),
    x.Round: _rounding(round),
    x.Select: _select,
    x.ToFloat: _to_float,
    x.IntTrueDiv: _int_truediv,
    x.FloatAdd: _nondecreasing,
    x.FloatMul: _float_mul,
    x.FloatNeg: _negate,
    x.FloatAbs: lambda a: Interval(0.0 if a.lo < 0 < a.hi else min(abs(a.lo), abs(a.hi)), max(abs(a.lo), abs(a.hi))),
    x.FloatSelect: _select,
    x.Sqrt: _sqrt,
    x.Eq: _eq,
    x.Ne: lambda p: _not(_eq(p)),
    x.Le: _le,
    x.FloatLt: lambda a, b: Interval(0, 0) if a.lo >= b.hi else TRUTH,
    x.FloatLe: lambda a, b: Interval(0, 0) if a.lo > b.hi else TRUTH,
    x.FloatEq: lambda a, b: Interval(0, 0) if a.lo > b.hi or a.hi < b.lo else TRUTH,
    x.Not: _not,
    x.And: lambda *a: Interval(min(r.lo for r in a), min(r.hi for r in a)),
    x.Or: lambda *a: Interval(max(r.lo for r in a), max(r.hi for r in a)),
    x.BoolEq: lambda a, b: TRUTH if a.lo != a.hi or b.lo != b.hi else Interval(int(a == b), int(a == b)),
}
