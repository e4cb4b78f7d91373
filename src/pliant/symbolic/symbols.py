"""The symbols of one compilation: what they stand for, which values they may have, what is known of those at hand.

In:     sizes and numbers of the example inputs (`create_symbol`), values known only at run time (`create_unbacked`).
Out:    symbols with their sources, hints and declared ranges; `facts` has the ranges.
Holds:  a symbol with a hint is known before the graph runs, or is an input's; one without is unbacked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pliant.errors import Unsupported
from pliant.source import SourceLocation, user_location
from pliant.symbolic.advice import Origin
from pliant.symbolic.bounds import Interval
from pliant.symbolic.expr import Expr, Integer, Kind, Number, Symbol
from pliant.symbolic.facts import Facts
from pliant.symbolic.marked_sizes import DynamicMark, MarkedSizes

_UNBACKED_PREFIX: dict[Any, str] = {int: "u", float: "f", bool: "b"}
_BACKED_PREFIX: dict[Any, str] = {int: "s", float: "z", bool: "q"}


class Symbols:
    """Symbols and what is said of each when it is made."""

    def __init__(self, *, duck_shape: bool, specialize_zero_one: bool) -> None:
        self.duck_shape = duck_shape
        self.specialize_zero_one = specialize_zero_one
        self.facts = Facts()
        self.marks = MarkedSizes(self.facts)
        self.facts.solvable = self._is_solvable
        self.facts.ordered = self._is_ordered
        self.sources: dict[Symbol, list[Any]] = {}  # whatever its user names places by
        self.hints: dict[Symbol, Number] = {}
        self.origins: dict[Symbol, Origin | None] = {}
        self.origin_callback: Callable[[], SourceLocation | None] | None = None
        self.fresh: list[Symbol] = []  # unbacked symbols since whoever records calls last took them
        # In a second trace: the unbacked symbols that the present call made in the first one, and is to make again.
        self.replayed: list[Symbol] | None = None
        self.size_like: set[Symbol] = set()
        self.declared: dict[Symbol, Interval] = {}
        self._duck: dict[tuple[Number, Number | None], Symbol] = {}
        self._counters: dict[str, int] = {}
        self._order: dict[Symbol, int] = {}  # of unbacked symbols

    def create_symbol(
        self,
        hint: Number,
        source: object,
        *,
        kind: Kind = int,
        lo: float | None = None,
        hi: float | None = None,
        duck: bool = True,
        must_stay_dynamic: bool = False,
        before: Number | None = None,
    ) -> Expr:
        """The symbol for an input's value, or a constant if this value is specialized.

        Without `lo` an integer is a size: 0 and 1 become constants, others range over [2, inf) and equal hints share a
        symbol, if the sizes that were seen `before` are equal too. Pass `lo=-math.inf` for a number that is no size.
        `must_stay_dynamic` makes any guard that fixes the symbol, or excludes part of [lo, hi], a `ConstraintError`.
        """
        is_size = kind is int and lo is None and hint >= 0
        if is_size and self.specialize_zero_one and hint in (0, 1) and not must_stay_dynamic:
            return Integer(int(hint))
        shares = is_size and hi is None and duck and self.duck_shape and not must_stay_dynamic
        if shares and (found := self._duck.get((hint, before))) is not None:
            self.sources[found].append(source)
            return self.facts.simplify(found)
        symbol = self._fresh(_BACKED_PREFIX[kind], kind)
        self.hints[symbol] = hint
        self.sources[symbol] = [source]
        if kind is not bool:
            least = self._least_size(int(hint)) if is_size else -math.inf
            self._declare(symbol, least if lo is None else lo, math.inf if hi is None else hi)
        if shares:
            self._duck[(hint, before)] = symbol
        if must_stay_dynamic:
            mark = DynamicMark(-math.inf if lo is None else lo, math.inf if hi is None else hi, source)
            self.marks.add(symbol, mark, hint)
        return symbol

    def create_unbacked(
        self, kind: Kind = int, lo: float | None = None, hi: float | None = None, origin: str = "", size: bool = False
    ) -> Expr:
        """A symbol for a value that only running the graph computes; it has no hint."""
        if self.replayed is not None:
            if not self.replayed or self.replayed[0].kind is not kind:
                raise Unsupported("a data-dependent operator makes other values the second time", kind="replay")
            self.fresh.append(self.replayed.pop(0))
            return self.fresh[-1]
        symbol = self._fresh(_UNBACKED_PREFIX[kind], kind)
        self.origins[symbol] = Origin(origin, self._origin(), size) if origin else None
        self._order[symbol] = len(self._order)
        self.fresh.append(symbol)
        if kind is not bool:
            self._declare(symbol, -math.inf if lo is None else lo, math.inf if hi is None else hi)
        return symbol

    def create_unbacked_input(self, source: object, name: str) -> Expr:
        """A symbol for a size of an input that the program must not depend on: it has a source and no hint."""
        symbol = self._fresh(_UNBACKED_PREFIX[int], int)
        self.sources[symbol] = [source]
        self.origins[symbol] = Origin(name, None, name=name)
        self._order[symbol] = -1  # known from the start
        self.size_like.add(symbol)
        self._declare(symbol, 0, math.inf)
        return symbol

    def create_unbacked_number(self, source: object, kind: Kind, lo: float, hi: float, name: str) -> Expr:
        """A symbol for a number that is given to the graph and that the program must not depend on."""
        symbol = self._fresh(_UNBACKED_PREFIX[kind], kind)
        self.sources[symbol] = [source]
        self.origins[symbol] = Origin(name, None, name=name)
        self._order[symbol] = -1
        self._declare(symbol, lo, hi)
        return symbol

    def _fresh(self, prefix: str, kind: Kind) -> Symbol:
        n = self._counters.get(prefix, 0)
        self._counters[prefix] = n + 1
        return Symbol(f"{prefix}{n}", kind)

    def _declare(self, symbol: Symbol, lo: float, hi: float) -> None:
        if symbol.kind is int:
            lo, hi = [v if math.isinf(v) else int(v) for v in (lo, hi)]
        interval = Interval(lo, hi)
        self.declared[symbol] = interval
        self.facts.set_range(symbol, interval)

    def _origin(self) -> SourceLocation | None:
        if self.origin_callback is not None and (origin := self.origin_callback()) is not None:
            return origin
        return user_location(2)

    def limit(self, number: Expr, lo: float, hi: float) -> None:
        """Bounds of a number that follow from how it is made."""
        if isinstance(number, Symbol):
            self._declare(number, lo, hi)

    def _least_size(self, hint: int) -> int:
        return 2 if self.specialize_zero_one and hint >= 2 else 0

    def restore(self, symbol: Symbol, hint: Number | None, lo: float, hi: float) -> None:
        """A symbol of an earlier compilation; without a hint an unbacked one, which the operators that are seen next make
        again (`replayed`)."""
        if hint is None:
            self.origins[symbol] = None
            self._order[symbol] = len(self._order)
        else:
            self.hints[symbol] = hint
            self.sources[symbol] = []
        if symbol.kind is not bool:
            self._declare(symbol, lo, hi)

    def take_fresh(self) -> list[Symbol]:
        """The unbacked symbols that were made since the last call."""
        found, self.fresh = self.fresh, []
        return found

    @property
    def has_unbacked(self) -> bool:
        return bool(self._order)

    def is_unbacked(self, symbol: Symbol) -> bool:
        return symbol not in self.hints

    def unbacked_symbols(self, e: Expr) -> frozenset[Symbol]:
        return frozenset([s for s in e.free if s not in self.hints])

    def mark_size_like(self, e: Expr) -> None:
        """An unbacked size: never negative, and taken as >= 2 by size-oblivious questions."""
        for s in self.unbacked_symbols(e):
            self.size_like.add(s)

    # -- what facts are told of symbols
    def _is_solvable(self, symbol: Symbol) -> bool:
        return symbol not in self.marks

    def _is_ordered(self, e: Expr, rest: Expr) -> bool:
        """Whether all that `rest` needs is known to a running graph wherever `e` is."""
        return self._known_after(rest) <= self._known_after(e)

    def _known_after(self, e: Expr) -> int:
        return max([self._order.get(s, -1) for s in e.free], default=-1)

    def _in_order(self, e: Expr) -> list[Symbol]:
        return sorted(self.unbacked_symbols(e), key=lambda one: self._order.get(one, -1))
