"""What is known of symbols: ranges, inequalities and equalities, and the expressions they simplify to.

In:     ranges of symbols and true boolean expressions (`learn`).
Out:    `range_of`, `simplify`, `prove`.
Holds:  every answer is right for all choices of symbols that satisfy what was learnt. Learning only ever adds.
        `replacements` is idempotent: no replaced symbol or atom occurs in a replacement.
Reads on: `prove.py` decides comparisons, `simplify.py` has the rewrites that need a range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from pliant.symbolic import expr as x
from pliant.symbolic.bounds import ALL, TRUTH, Bound, Interval, bounds
from pliant.symbolic.expr import Expr, Integer, Symbol, scale, without
from pliant.symbolic.rules import division
from pliant.symbolic.simplify import simplify_node
from pliant.symbolic.traverse import rebuild, substitute

_NARROWING_DEPTH = 6


class Contradiction(Exception):
    """A learnt fact leaves no value for a symbol: the program cannot get here."""


class Facts:
    """All that is known of a set of symbols."""

    def __init__(self) -> None:
        self.ranges: dict[Symbol, Interval] = {}
        self.replacements: dict[Expr, Expr] = {}
        self.solvable: Callable[[Symbol], bool] = lambda _: True
        self.ordered: Callable[[Expr, Expr], bool] = lambda atom, rest: True  # may `rest` stand for `atom`?
        self._learnt: list[Expr] = []
        self._true: set[Expr] = set()
        self._known: dict[Expr, Interval] = {}
        self._inequalities: dict[Symbol, list[Expr]] = {}
        self._rests: list[Expr] = []  # remainders that something is known of
        self._range_memo: dict[Expr, Interval] = {}
        self._simple_memo: dict[Expr, Expr] = {}
        self._proof_memo: dict[Expr, bool | None] = {}

    def copy(self) -> Facts:
        """The same knowledge, to learn more on top of it."""
        other = Facts()
        other.ranges, other.replacements = dict(self.ranges), dict(self.replacements)
        other.solvable, other.ordered = self.solvable, self.ordered
        other._learnt, other._true, other._known = list(self._learnt), set(self._true), dict(self._known)
        other._rests = list(self._rests)
        other._inequalities = {symbol: list(found) for symbol, found in self._inequalities.items()}
        return other

    # -- questions ----------------------------------------------------------------------------------------------------
    def range_of(self, e: Expr) -> Interval:
        return bounds(e, self._lookup, self._range_memo)

    def inequalities(self, symbols: frozenset[Symbol]) -> Iterable[Expr]:
        found: dict[Expr, None] = {}
        for s in symbols:
            found.update(dict.fromkeys(self._inequalities.get(s, ())))
        return found

    def prove(self, e: Expr) -> bool | None:
        """The truth of a simplified boolean expression, where it follows."""
        if isinstance(e, x.Constant):
            return bool(e.value)
        if e in self._proof_memo:
            return self._proof_memo[e]
        if e in self._true:
            result: bool | None = True
        elif e.not_() in self._true:
            result = False
        else:
            from pliant.symbolic.prove import prove  # where sizes are symbols

            result = prove(e, self)
        self._proof_memo[e] = result
        return result

    def prove_fully(self, e: Expr) -> bool:
        """Whether a boolean expression follows, after simplifying it."""
        return self.prove(self.simplify(e)) is True

    def simplify(self, e: Expr) -> Expr:
        """An equal expression: replaced, constant where only one value is possible, without needless `min`, `//`..."""
        if not e.free:
            return e
        found = self._simple_memo.get(e)
        if found is None:
            replaced = self.replacements.get(e)
            if replaced is None:
                parts = rebuild(e, self.simplify)
                replaced = self.simplify(parts) if parts is not e else self._simplify_whole(e)
            found = self._simple_memo[e] = replaced
        return found

    def _simplify_whole(self, e: Expr) -> Expr:
        if e.kind is not float:
            r = self.range_of(e)
            if r.lo == r.hi:
                return x.lit(bool(r.lo)) if e.kind is bool else Integer(int(r.lo))
        result = simplify_node(e, self)
        return e if result is e else self.simplify(result)

    def rest_of(self, e: Expr, by: int) -> int | None:
        """What `e` leaves when it is divided by `by`, if that is known of a multiple of `by`."""
        for atom in self._rests:
            many, rest = atom.args[1].as_int(), self.replacements.get(atom)
            if atom.args[0] is e and many and by > 0 and many % by == 0 and isinstance(rest, x.Constant):
                return int(rest.value) % by
        return None

    def _lookup(self, e: Expr) -> Interval | None:
        if isinstance(e, Symbol):
            return self.ranges.get(e)
        if not self._known:
            return None
        if type(e) is not x.Sum:
            return self._known.get(e)
        key, factor = direction(e)
        fact = self._known.get(key)
        return None if fact is None else _affine(fact, factor, e.const)

    # -- learning -----------------------------------------------------------------------------------------------------
    def set_range(self, symbol: Symbol, interval: Interval) -> None:
        self.ranges[symbol] = interval
        self._forget()

    def learn(self, e: Expr) -> None:
        """Take `e` (boolean) as true from now on."""
        self._learn(self.simplify(e))
        self._forget()
        for symbol, r in list(self.ranges.items()):
            if r.lo == r.hi and symbol.kind is int and symbol not in self.replacements:
                self._replace(symbol, Integer(int(r.lo)))
                self._forget()

    def _forget(self) -> None:
        self._range_memo.clear()
        self._simple_memo.clear()
        self._proof_memo.clear()

    def _learn(self, e: Expr) -> None:
        match e:
            case x.Constant():
                if not e.value:
                    raise Contradiction
                return
            case x.And():
                for a in e.args:
                    self._learn(self.simplify(a))  # with what the parts before it taught
                return
            case x.Le():
                self._learn_bound(e.args[0], Interval(-math.inf, 0))
                for s in e.free:
                    self._inequalities.setdefault(s, []).append(e.args[0])
            case x.Eq():
                self._learn_bound(e.args[0], Interval(0, 0))
                self._solve(e.args[0])
                self._learn_divisible(e.args[0])
            case x.Ne():
                self._learn_difference(e.args[0])
            case Symbol():
                self._replace(e, x.TRUE)
            case x.Not() if isinstance(e.args[0], Symbol):
                self._replace(e.args[0], x.FALSE)
            case _:
                pass
        self._true.add(e)
        self._learnt.append(e)

    def _learn_bound(self, p: Expr, allowed: Interval) -> None:
        key, factor = direction(p)
        interval = _solve_linear(allowed, Interval(p.const, p.const), factor)
        self._meet_known(key, interval)
        self._narrow(key, interval, _NARROWING_DEPTH)

    def _meet_known(self, key: Expr, interval: Interval) -> None:
        if not isinstance(key, Symbol):
            self._known[key] = self._known.get(key, ALL).meet(interval)
            self._range_memo.clear()

    def _learn_difference(self, p: Expr) -> None:
        """p != 0 moves a bound that is exactly the excluded value."""
        key, factor = direction(p)
        excluded = -p.const * factor  # factor is 1 or -1
        if abs(factor) != 1:
            return
        r = self.range_of(key)
        if r.lo == excluded:
            self._learn_bound(key, Interval(excluded + 1, math.inf))
        elif r.hi == excluded:
            self._learn_bound(key, Interval(-math.inf, excluded - 1))

    def _narrow(self, e: Expr, allowed: Interval, depth: int) -> None:
        """Pass what is known of a whole down to its parts."""
        if depth == 0:
            return
        match e:
            case Symbol():
                self._narrow_symbol(e, allowed)
            case x.Sum() if depth > 1:
                for mono, coef in e.terms:
                    others = self.range_of(without(e, mono))
                    self._narrow(mono, _solve_linear(allowed, others, coef), depth - 1)
            case x.FloorDiv():
                k = e.args[1].as_int()
                if k and k > 0:
                    self._narrow_known(e.args[0], Interval(allowed.lo * k, allowed.hi * k + k - 1), depth)
            case x.Max():
                for a in e.args:
                    self._narrow_known(a, Interval(-math.inf, allowed.hi), depth)
            case x.Min():
                for a in e.args:
                    self._narrow_known(a, Interval(allowed.lo, math.inf), depth)
            case x.Product():
                self._narrow_product(e, allowed, depth)
            case _:
                pass

    def _narrow_known(self, part: Expr, allowed: Interval, depth: int) -> None:
        if part.terms:
            key, factor = direction(part)
            interval = _solve_linear(allowed, Interval(part.const, part.const), factor)
            self._meet_known(key, interval)
            self._narrow(key, interval, depth - 1)

    def _narrow_product(self, e: Expr, allowed: Interval, depth: int) -> None:
        """a*b <= c with a >= 1 gives b <= c // lo(a)."""
        ranges = [self.range_of(a) for a in e.args]
        if any(r.lo < 1 for r in ranges) or allowed.hi == math.inf:
            return
        for i, atom in enumerate(e.args):
            others = math.prod([int(r.lo) for j, r in enumerate(ranges) if j != i])
            self._narrow(atom, Interval(-math.inf, allowed.hi // others), depth - 1)

    def _narrow_symbol(self, symbol: Symbol, allowed: Interval) -> None:
        old = self.ranges.get(symbol, TRUTH if symbol.kind is bool else ALL)
        new = old.meet(allowed)
        if new.is_empty:
            raise Contradiction
        if new != old:
            self.ranges[symbol] = new
            self._range_memo.clear()

    def _learn_divisible(self, p: Expr) -> None:
        """c * (a - k * (a // k)) == 0 says that k divides a."""
        for mono, coef in p.terms:
            if type(mono) is x.FloorDiv and (k := mono.args[1].as_int()) and coef % k == 0:
                a, times = mono.args[0], -coef // k
                remainder = division.mod(a, mono.args[1])
                if p is scale(a - scale(mono, k), times) and type(remainder) is x.Mod:
                    self._replace(remainder, x.ZERO)
                    return

    # -- equalities ---------------------------------------------------------------------------------------------------
    def _solve(self, p: Expr) -> None:
        """Write p == 0 as `symbol = rest` or `atom = rest` where a coefficient is 1 or -1."""
        best: tuple[tuple[int, int], Expr, Expr] | None = None
        for mono, coef in p.terms:
            if abs(coef) != 1 or type(mono) in (x.Product, x.Factored):
                continue
            rest = scale(without(p, mono), -coef)
            if self._may_replace(mono, rest):
                rank = _preference(mono, rest)
                if best is None or rank > best[0]:
                    best = (rank, mono, rest)
        if best is not None:
            self._replace(best[1], best[2])

    def _may_replace(self, atom: Expr, rest: Expr) -> bool:
        if rest.free and not self.ordered(atom, rest):
            return False
        if isinstance(atom, Symbol):
            return atom not in rest.free and (not rest.free or self.solvable(atom))
        return not rest.free or not contains(rest, atom) and not (atom.free <= rest.free)

    def _replace(self, atom: Expr, rest: Expr) -> None:
        if isinstance(atom, Symbol) and atom.kind is int:
            own = self.ranges.get(atom, ALL)
            self._narrow_known(rest, own, _NARROWING_DEPTH) if rest.terms else self._narrow_symbol(
                atom, Interval(rest.const, rest.const)
            )
        if type(atom) is x.Mod:
            self._rests.append(atom)
        step = {atom: rest}
        self.replacements = {k: substitute(v, step) for k, v in self.replacements.items()} | step
        touched = atom.free | rest.free  # what is known of other symbols stays as it was learnt
        again = [fact for fact in self._learnt if not touched.isdisjoint(fact.free)]
        self._learnt = [fact for fact in self._learnt if touched.isdisjoint(fact.free)]
        self._true = {fact for fact in self._true if touched.isdisjoint(fact.free)}
        for symbol, found in self._inequalities.items():
            self._inequalities[symbol] = [e for e in found if touched.isdisjoint(e.free)]
        self._forget()
        for fact in again:
            self._learn(self.simplify(fact))


def _preference(atom: Expr, rest: Expr) -> tuple[int, int]:
    """Solve for unbacked symbols first, then for the newest symbol, then for atoms that become constants."""
    if isinstance(atom, Symbol):
        number = atom.order[1][0][2]
        return (3 if atom.name.startswith("u") else 2, number)
    return (1, 0) if not rest.free else (0, 0)


def contains(e: Expr, part: Expr) -> bool:
    """Whether `part` is `e` or occurs inside it."""
    if e is part:
        return True
    if not part.free <= e.free:
        return False
    inner = [m for m, _ in e.terms if m is not e] or list(e.args)
    return any(contains(a, part) for a in inner)


def direction(p: Expr) -> tuple[Expr, int]:
    """`key, factor` with p == factor*key + p.const; key has coprime coefficients, the first positive."""
    g = math.gcd(*[c for _, c in p.terms])
    if p.terms[0][1] < 0:
        g = -g
    if g == 1 and p.const == 0:
        return p, 1
    return x.from_sorted(0, tuple([(m, c // g) for m, c in p.terms])), g


def _affine(r: Interval, factor: int, const: int) -> Interval:
    """factor*r + const"""
    lo, hi = (r.lo, r.hi) if factor > 0 else (r.hi, r.lo)
    return Interval(lo * factor + const, hi * factor + const)


def _solve_linear(allowed: Interval, others: Interval, coef: int) -> Interval:
    """The integers k for which coef*k + (something in others) can lie in allowed."""
    lo, hi = _minus(allowed.lo, others.hi, -math.inf), _minus(allowed.hi, others.lo, math.inf)
    if coef < 0:
        lo, hi, coef = -hi, -lo, -coef
    return Interval(lo if abs(lo) == math.inf else -(-lo // coef), hi if abs(hi) == math.inf else hi // coef)


def _minus(a: Bound, b: Bound, unknown: Bound) -> Bound:
    return unknown if abs(a) == math.inf or abs(b) == math.inf else a - b
