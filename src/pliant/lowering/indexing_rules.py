"""Simplify index expressions with the ranges of the loop symbols.

In:     an index expression, and the axes that are being emitted.
Out:    an equal expression with fewer divisions: `(64*i0 + i1) // 64` is `i0` where `i1 < 64`.
Holds:  a rewrite is made only where the range is proved for all sizes; sizes are never decided here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pliant.ir.loops import Axis
from pliant.symbolic.expr import ONE, ZERO, Expr, FloorDiv, Integer, Mod, Sum, Symbol, atoms_of
from pliant.symbolic.shape_env import ShapeEnv
from pliant.symbolic.traverse import rebuild


class IndexRanges:
    """The extents of the loop symbols in force."""

    def __init__(self, shape_env: ShapeEnv) -> None:
        self.shape_env = shape_env
        self.extents: dict[Symbol, Expr] = {}
        self._divides: dict[Expr, bool] = {}
        self._memo: dict[Expr, Expr] = {}
        self._memos: dict[tuple[Axis, ...], dict[Expr, Expr]] = {}

    @contextmanager
    def over(self, axes: Sequence[Axis]) -> Iterator[None]:
        """Within: the loops over `axes` and no others."""
        saved = self.extents, self._memo
        self.extents = {axis.symbol: axis.extent for axis in axes}
        self._memo = self._memos.setdefault(tuple(axes), {})
        try:
            yield
        finally:
            self.extents, self._memo = saved

    def simplify(self, e: Expr) -> Expr:
        if not self._has_division(e):
            return e
        found = self._memo.get(e)
        if found is None:
            found = self._memo[e] = self._simplify(e)
        return found

    def _has_division(self, e: Expr) -> bool:
        if not e.terms or isinstance(e, Symbol):
            return False
        found = self._divides.get(e)
        if found is None:
            found = type(e) in (FloorDiv, Mod) or any(self._part_divides(m) for m, _ in e.terms)
            self._divides[e] = found
        return found

    def _part_divides(self, mono: Expr) -> bool:
        return any(type(a) in (FloorDiv, Mod) or any(map(self._has_division, a.args)) for a in atoms_of(mono))

    def _simplify(self, e: Expr) -> Expr:
        e = rebuild(e, self.simplify)
        if type(e) is FloorDiv and self.below(*e.args):
            return ZERO
        if type(e) is Mod and self.below(*e.args):
            return e.args[0]
        return self._without_remainders(e) if type(e) is Sum else e

    def _without_remainders(self, e: Expr) -> Expr:
        """With a % b written as a - b*(a // b), if all divisions then cancel: 2*(i // 2) + i % 2 is i."""
        total: Expr = Integer(e.const)
        for mono, coef in e.terms:
            atoms = atoms_of(mono)
            part: Expr = Integer(coef)
            for atom in atoms:
                part = part * (
                    atom.args[0] - atom.args[1] * (atom.args[0] // atom.args[1]) if type(atom) is Mod else atom
                )
            total = total + part
        return e if self._has_division(total) else total

    def below(self, a: Expr, b: Expr) -> bool:
        """0 <= a < b at every point of the loops."""
        largest = self._largest(a)
        if largest is None:
            return False
        gap = b - largest
        number = gap.as_int()
        return number >= 1 if number is not None else self.shape_env.statically_known(gap.ge(ONE)) is True

    def _largest(self, a: Expr) -> Expr | None:
        """The largest value of a sum of loop symbols, divisions and sizes, or None if it may be negative."""
        if a.const < 0:
            return None
        total = a - a + a.const
        for mono, coef in a.terms:
            if coef < 0:
                return None
            top: Expr = ONE
            for atom in atoms_of(mono):
                bound = self._largest_atom(atom)
                if bound is None:
                    return None
                top = top * bound
            total = total + top * coef
        return total

    def _largest_atom(self, atom: Expr) -> Expr | None:
        if isinstance(atom, Symbol):
            extent = self.extents.get(atom)
            if extent is not None:
                return extent - 1
            return atom if self.shape_env.statically_known(atom.ge(0)) is True else None
        if type(atom) is Mod and self.shape_env.statically_known(atom.args[1].ge(1)) is True:
            return atom.args[1] - 1
        if type(atom) is FloorDiv and self.shape_env.statically_known(atom.args[1].ge(1)) is True:
            top = self._largest(atom.args[0])
            return None if top is None else top // atom.args[1]
        return None
