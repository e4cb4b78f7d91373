"""The symbols of one compilation, their hints, and the guards that its decisions recorded.

In:     sizes and numbers of the example inputs (`create_symbol`), values known only at run time (`create_unbacked`),
        questions about expressions (`evaluate`).
Out:    `torch.SymInt` and friends for the program to compute with (`wrap`), answers, guards, runtime asserts.
Holds:  an answer that does not hold for all values in range has a guard, and everything learnt follows from a guard,
        a runtime assert or a declared range.
Reads on: `facts.py` (reasoning), `sym_node.py` (what torch calls).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias, cast

import torch

from pliant.errors import ConstraintError, DataDependentError, InternalError, Unsupported
from pliant.records import dataclass
from pliant.source import SourceLocation, user_location
from pliant.symbolic import expr as x
from pliant.symbolic.advice import Origin, statement
from pliant.symbolic.bounds import Interval
from pliant.symbolic.expr import Expr, Integer, Kind, Number, Symbol
from pliant.symbolic.facts import Contradiction, Facts
from pliant.symbolic.final_guards import ShapeGuard, minimal_guards
from pliant.symbolic.rules import floats, relations
from pliant.symbolic.sym_node import SymNode, broadcasts_in_python, wrap_node
from pliant.symbolic.traverse import evaluate, substitute

SymNumber: TypeAlias = "int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool"

_UNBACKED_PREFIX: dict[Any, str] = {int: "u", float: "f", bool: "b"}
_LIKELY_SIZE = 64  # of what only running tells
_LIKELY_PART = 2  # the same beside sizes that are known: padding, say
_BACKED_PREFIX: dict[Any, str] = {int: "s", float: "z", bool: "q"}


@dataclass(frozen=True, slots=True)
class Specialization:
    """A symbol, or an expression, that a guard fixed to one value."""

    symbol: Expr
    value: Number
    origin: SourceLocation | None


@dataclass(frozen=True, slots=True)
class RuntimeAssert:
    """What a running graph checks as soon as the symbols of `expr` are known; `expr` is never simplified.

    `stated`: the program said it (by a check); else an operator's rule took it for granted. `message`: what it is called, if
    not by its expression, whose symbols have other names in another capture.
    """

    expr: Expr
    message: str
    origin: SourceLocation | None
    stated: bool = False

    def __str__(self) -> str:
        return self.message or str(self.expr)


@dataclass(frozen=True, slots=True)
class DynamicMark:
    """The range for which a marked size must stay unknown."""

    lo: float
    hi: float
    source: object


class ShapeEnv:
    """Symbols, hints, facts and guards of one compilation."""

    def __init__(self, *, duck_shape: bool = True, specialize_zero_one: bool = True) -> None:
        self.duck_shape = duck_shape
        self.specialize_zero_one = specialize_zero_one
        self.facts = Facts()
        self.facts.solvable = self._is_solvable
        self.facts.ordered = self._is_ordered
        self.sources: dict[Symbol, list[object]] = {}
        self.hints: dict[Symbol, Number] = {}
        self.origins: dict[Symbol, Origin | None] = {}
        self.guards: list[ShapeGuard] = []
        self.runtime_asserts: list[RuntimeAssert] = []
        self.failed: Collection[str] = ()  # what earlier calls assumed of unbacked symbols, and did not hold
        self.fresh: list[Symbol] = []  # unbacked symbols since whoever records calls last took them
        # In a second trace: the unbacked symbols that the present call made in the first one, and is to make again.
        self.replayed: list[Symbol] | None = None
        self.specializations: list[Specialization] = []
        self.size_like: set[Symbol] = set()
        self.origin_callback: Callable[[], SourceLocation | None] | None = None
        # What an unbacked symbol is in terms of the inputs: asked where a decision needs it.
        self.reveal: Callable[[Symbol], Expr | None] = lambda symbol: None
        # The truth of a condition for the values at hand, where inputs tell it: a guess, for the running graph checks it.
        self.foresee: Callable[[Expr], bool | None] = lambda e: None
        self.loans: dict[Number, Expr] = {}  # what stands for a symbolic number in C++ code
        self.takes_fallbacks = False  # whether a "no" of `certain` needs no guard
        self.answers: dict[Expr, bool] = {}  # to questions whose askers go on as well with either answer, while they run
        self.takes_copies = False  # the same where C++ asks whether a view will do, and copies otherwise
        self.lends = False  # whether a trace is on that calls `settle` at each operator
        self.lent: Expr | None = None  # see `lend`
        self.declared: dict[Symbol, Interval] = {}
        self._marks: dict[Symbol, DynamicMark] = {}
        self._duck: dict[tuple[Number, Number | None], Symbol] = {}
        self._counters: dict[str, int] = {}
        self._hint_memo: dict[Expr, Number | None] = {}
        self._wrapped: dict[Expr, SymNumber] = {}
        self._shadows: dict[Symbol, Symbol] = {}
        self._order: dict[Symbol, int] = {}  # of unbacked symbols
        self._asserts_taken = 0
        self._waiting: list[RuntimeAssert] = []  # those whose symbols no graph has had together
        self._revealing: set[Symbol] = set()

    # -- symbols ------------------------------------------------------------------------------------------------------
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
            self._marks[symbol] = DynamicMark(-math.inf if lo is None else lo, math.inf if hi is None else hi, source)
            self._check_hint_in_mark(symbol, hint)
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

    def create_unbacked_symint(self) -> torch.SymInt:
        """The name under which `torch.library` fake implementations ask for a data-dependent size."""
        return cast("torch.SymInt", self.wrap(self.create_unbacked()))

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

    def take_asserts(self, ready: Callable[[RuntimeAssert], bool] | None = None) -> list[RuntimeAssert]:
        """The runtime asserts that were learnt since the last call. `ready`: of these, and of those left by earlier calls,
        the ones that can be checked now; the others wait."""
        found = [*self._waiting, *self.runtime_asserts[self._asserts_taken :]]
        self._asserts_taken = len(self.runtime_asserts)
        self._waiting = [] if ready is None else [one for one in found if not ready(one)]
        return [one for one in found if one not in self._waiting] if self._waiting else found

    def asserts_taken(self) -> tuple[int, list[RuntimeAssert]]:
        """How far asserts are taken, for `take_again`."""
        return self._asserts_taken, list(self._waiting)

    def take_again(self, taken: tuple[int, list[RuntimeAssert]]) -> None:
        """Have what was taken since be taken again: the graphs that it was taken for are given up."""
        self._asserts_taken, waiting = taken
        self._waiting = list(waiting)

    def has_waiting(self) -> bool:
        """Whether there are asserts that no graph checks."""
        return bool(self._waiting)

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

    # -- to torch and back --------------------------------------------------------------------------------------------
    def wrap(self, e: Expr) -> SymNumber:
        """A plain number for a constant, else the symbolic number that torch computes with."""
        if isinstance(e, x.Constant):
            return e.value
        found = self._wrapped.get(e)
        if found is None:
            found = self._wrapped[e] = wrap_node(SymNode(e, self))
        return found

    def as_written(self, e: Expr) -> SymNumber:
        """A symbolic number that keeps `e` as it is, though by now it may be known."""
        return cast(SymNumber, wrap_node(SymNode(e, self)))

    def expr_of(self, value: object) -> Expr:
        """The expression of a number, symbolic or not."""
        if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return cast(Expr, value.node.expr)
        return x.lit(cast("x.ExprLike", value))

    def select(self, condition: object, then: object, other: object) -> SymNumber:
        """`torch.sym_ite`, whose own method accepts no nodes but torch's."""
        choice = relations.select(self.expr_of(condition), self.expr_of(then), self.expr_of(other))
        return self.wrap(self.simplify(choice))

    def declare(self, fact: Expr) -> None:
        """A fact that holds for every call, whatever the program does."""
        self.facts.learn(fact)
        self.guards.append(ShapeGuard(fact, None))

    # -- questions ----------------------------------------------------------------------------------------------------
    def simplify(self, e: Expr) -> Expr:
        return self.facts.simplify(e)

    def replace(self, e: Expr) -> Expr:
        """`e` with what equalities solved for."""
        return self.facts.simplify(e) if self.facts.replacements else e

    def bounds(self, e: Expr) -> Interval:
        return self.facts.range_of(self.replace(e))

    def hint(self, e: Expr) -> Number | None:
        """The value of `e` for the example inputs; None where it depends on an unbacked symbol."""
        if isinstance(e, x.Constant):
            return e.value
        if e in self._hint_memo:
            return self._hint_memo[e]
        value: Number | None = None
        if not self.unbacked_symbols(e):
            value = evaluate(e, self.hints)
        elif not self.unbacked_symbols(simple := self.simplify(e)):
            value = evaluate(simple, self.hints)
        if value is not None:  # an equality may still give an unbacked symbol a value
            self._hint_memo[e] = value
        return value

    def statically_known(self, e: Expr) -> bool | None:
        """Whether `e` is true or false for all values in range, as far as it can be proved; never guards."""
        if isinstance(e, x.Constant):
            return bool(e.value)
        simple = self.facts.simplify(e)
        return bool(simple.value) if isinstance(simple, x.Constant) else self.facts.prove(simple)

    def size_obliviously_known(self, e: Expr) -> bool | None:
        """The same with unbacked sizes taken to be neither 0 nor 1."""
        shadows: dict[Symbol, Expr] = {}
        for s in self.unbacked_symbols(e) & self.size_like:
            shadow = self._shadows.setdefault(s, Symbol(f"{s.name}_"))
            r = self.facts.range_of(s)
            self.facts.set_range(shadow, Interval(max(r.lo, 2), max(r.hi, 2)))
            shadows[s] = shadow
        return self.statically_known(substitute(self.facts.simplify(e), shadows)) if shadows else None

    def evaluate(self, e: Expr, *, fallback: Number | None = None, size_oblivious: bool = False) -> Number:
        """The value of `e`: proved, or the hint's and guarded, or `fallback`, or `DataDependentError`."""
        if isinstance(e, x.Constant):
            return e.value
        if e.kind is bool and (known := self.statically_known(e)) is not None:
            return known
        e = self.facts.simplify(e)
        if isinstance(e, x.Constant):
            return e.value
        if e in self.answers:
            return self.answers[e]
        if self.unbacked_symbols(e):
            if e.kind is bool and size_oblivious and (known := self.size_obliviously_known(e)) is not None:
                return known
            if fallback is not None:
                return fallback
            if not self._revealed(e):
                raise self._data_dependent(e)
            return self.evaluate(e, size_oblivious=size_oblivious)
        value, before = cast(Number, self.hint(e)), len(self.specializations)
        if e.kind is float and value == 0:  # `e == 0.0` holds of both zeros
            self._guard(floats.math_call("copysign", x.lit(1.0), e).eq(math.copysign(1.0, value)))
        self._guard(_holds(e, value))
        known = len(self.specializations) > before or any(one.symbol is e for one in self.specializations)
        if e.kind is not bool and not known:  # a float, or an expression that leaves its symbols open
            self.specializations.append(Specialization(e, value, self._origin()))
        return value

    def certain(self, e: Expr, copies: bool = False) -> bool:
        """Whether `e` holds, asked by who is right for every value if told False: then an export makes no guard. `copies`:
        who is told False copies memory."""
        takes = self.takes_copies if copies else self.takes_fallbacks
        if takes and self.statically_known(e) is None and self.hint(e) in (False, None):
            return False
        return bool(self.evaluate(e, fallback=False))

    def _revealed(self, e: Expr) -> bool:
        """Whether every unbacked symbol of `e` is by now known in terms of the inputs."""
        for symbol in self._in_order(e):
            if (value := self._behind(symbol)) is None:
                return False
            self.facts.learn(_holds(symbol, value.value) if isinstance(value, x.Constant) else symbol.eq(value))
        return True

    def _guarded(self, e: Expr) -> bool | None:
        """The truth of `e` by a guard of the numbers behind its unbacked symbols, which stay what the graph computes; None
        where inputs do not tell them."""
        known: dict[Symbol, Expr] = {}
        for symbol in self._in_order(e):
            if (value := self._behind(symbol)) is None:
                return None
            known[symbol] = value
        holds = bool(self.evaluate(substitute(e, known)))
        self.facts.learn(_holds(e, holds))
        return holds

    def _in_order(self, e: Expr) -> list[Symbol]:
        return sorted(self.unbacked_symbols(e), key=lambda one: self._order.get(one, -1))

    def _behind(self, symbol: Symbol) -> Expr | None:
        """What an unbacked symbol is in terms of the inputs, if that can be told."""
        if symbol in self._revealing:  # what it is would depend on itself
            return None
        self._revealing.add(symbol)
        try:
            return self.reveal(symbol)
        finally:
            self._revealing.remove(symbol)

    def answer(self, e: Expr, size_only: bool = False) -> bool:
        """The truth of what an operator's code asks. What one unbacked number decides is assumed to be as it is for an
        ordinary size, neither 0 nor 1, which the running graph checks. `size_only`: if it is one, and decides alone.
        """
        simple = self.simplify(e)
        unbacked = self.unbacked_symbols(simple)
        if len(unbacked) == 1 and self.statically_known(e) is None:
            (symbol,) = unbacked
            decides = symbol in self.size_like and len(simple.free) == 1 if size_only else symbol.kind is int
            if decides:
                likely = _LIKELY_SIZE if len(simple.free) == 1 else _LIKELY_PART
                return self.expect(e, bool(evaluate(simple, {**self.hints, symbol: likely})))
        return bool(self.evaluate(e))

    def expect(self, e: Expr, likely: bool) -> bool:
        """The truth that is assumed of `e`: that for the values at hand, or else the likely one. One that did not hold in an
        earlier call is a guard where inputs tell the number, or else the other one is assumed."""
        foreseen = self.foresee(e)
        assumed = likely if foreseen is None else foreseen
        if str(e if assumed else e.not_()) in self.failed:
            if (guarded := self._guarded(self.simplify(e))) is not None:
                return guarded
            assumed = assumed if foreseen is not None else not assumed
        return assumed if self.expect_true(e if assumed else e.not_()) else not assumed

    def specialize(self, e: Expr) -> int:
        """The hint of an integer expression, guarded."""
        return int(self.evaluate(e))

    # -- numbers lent to C++ ------------------------------------------------------------------------------------------
    def lend(self, e: Expr) -> int:
        """The hint of an integer expression for C++ code that may pass it on to an operator as it is; see `settle`."""
        self.settle()
        e = self.facts.simplify(e)
        if self.lends and not isinstance(e, x.Constant) and self.hint(e) is not None:
            self.lent = e
            return int(cast(int, self.hint(e)))
        return self.specialize(e)

    def settle(self, passed_on: Sequence[object] = ()) -> Sequence[Any]:
        """What C++ passes on, in which the number lent is symbolic again. If it is not there, C++ has decided something
        with it: it is guarded."""
        if (e := self.lent) is None:
            return passed_on
        self.lent = None
        number = self.hint(e)
        if not any(type(one) is int and one == number for one in passed_on):
            self.specialize(e)
            return passed_on
        return [self.wrap(e) if type(one) is int and one == number else one for one in passed_on]

    def _data_dependent(self, e: Expr) -> DataDependentError:
        made = [(s, origin) for s in sorted(e.free, key=str) if (origin := self.origins.get(s)) is not None]
        what = f"the value of `{e}` is needed" + "".join(f"; {s} is from {origin}" for s, origin in made)
        when = "it always holds" if e.kind is bool else "it is the same number at every call, 3 say"
        do = f"if {when}, state it before this line: {statement(e, self.origins)}"
        return DataDependentError(what, kind="data-dependent", where=self._origin(), do=do)

    # -- guards -------------------------------------------------------------------------------------------------------
    def _guard(self, fact: Expr) -> None:
        origin = self._origin()
        before = set(self.facts.replacements)
        try:
            self.facts.learn(fact)
        except Contradiction:
            raise InternalError(f"guard {fact} contradicts what is known", where=origin) from None
        self.guards.append(ShapeGuard(fact, origin))
        for atom in self.facts.replacements.keys() - before:
            value = self.facts.replacements[atom]
            if isinstance(atom, Symbol) and isinstance(value, x.Constant):
                self.specializations.append(Specialization(atom, value.value, origin))
        self._check_marks(fact, origin)

    def expect_true(self, e: Expr, message: str = "", stated: bool = False) -> bool:
        """A check of the program: learn it; where it depends on an unbacked symbol the graph checks it at run time."""
        written = e
        known = self.statically_known(e)
        if known is not None:
            return known
        e = self.facts.simplify(e)
        if not self.unbacked_symbols(e):
            return bool(self.evaluate(e))
        if not stated and str(written) in self.failed:
            raise DataDependentError(f"`{written}` is not always so", kind="data-dependent")
        origin = self._origin()
        try:
            self.facts.learn(e)
        except Contradiction:
            return False
        self.runtime_asserts.append(RuntimeAssert(written, message, origin, stated))
        return True

    def final_guards(self) -> list[ShapeGuard]:
        """A minimal list of facts about backed symbols under which every answer given so far holds."""
        declared: list[ShapeGuard] = []
        for symbol, r in self.declared.items():
            if symbol not in self.hints:
                continue
            if r.lo != -math.inf:
                declared.append(ShapeGuard(symbol.ge(r.lo), None))
            if r.hi != math.inf:
                declared.append(ShapeGuard(symbol.le(r.hi), None))
        return minimal_guards(declared + self.guards)

    def _origin(self) -> SourceLocation | None:
        if self.origin_callback is not None and (origin := self.origin_callback()) is not None:
            return origin
        return user_location(2)

    # -- marked dynamic sizes -----------------------------------------------------------------------------------------
    def _is_solvable(self, symbol: Symbol) -> bool:
        return symbol not in self._marks

    def _is_ordered(self, e: Expr, rest: Expr) -> bool:
        """Whether all that `rest` needs is known to a running graph wherever `e` is."""
        return self._known_after(rest) <= self._known_after(e)

    def _known_after(self, e: Expr) -> int:
        return max([self._order.get(s, -1) for s in e.free], default=-1)

    def _check_hint_in_mark(self, symbol: Symbol, hint: Number) -> None:
        mark = self._marks[symbol]
        if not mark.lo <= hint <= mark.hi:
            raise ConstraintError(
                f"{mark.source} is {hint}, outside the range [{mark.lo}, {mark.hi}] it was marked with",
                kind="marked-dynamic",
            )

    def _check_marks(self, fact: Expr, origin: SourceLocation | None) -> None:
        for symbol in self._marks.keys() & fact.free:
            mark = self._marks[symbol]
            value = self.facts.replacements.get(symbol)
            r = self.facts.range_of(symbol)
            if isinstance(value, x.Constant) or r.lo == r.hi:
                self._refuse(symbol, mark, fact, origin, f"fixes it to {r.lo if value is None else value}")
            if _finite_bound_exceeded(r, mark):
                self._refuse(symbol, mark, fact, origin, f"holds only for {symbol} in [{r.lo}, {r.hi}]")

    def _refuse(
        self, symbol: Symbol, mark: DynamicMark, fact: Expr, origin: SourceLocation | None, effect: str
    ) -> None:
        raise ConstraintError(
            f"{mark.source} ({symbol}) was marked dynamic, but the program {effect}",
            kind="marked-dynamic",
            where=origin,
            why=f"it needs {fact}",
        )

    # -- what torch's helpers call ------------------------------------------------------------------------------------
    def evaluate_sym_node(
        self, node: SymNode, size_oblivious: bool = False, fallback_value: bool | None = None
    ) -> Number:
        if fallback_value is False and self.takes_fallbacks and broadcasts_in_python(sys._getframe()):
            return self.certain(node.expr)
        return self.evaluate(node.expr, fallback=fallback_value, size_oblivious=size_oblivious)

    def evaluate_expr(
        self,
        orig_expr: Expr,
        hint: Number | None = None,
        fx_node: object = None,
        size_oblivious: bool = False,
        fallback_value: bool | None = None,
        **_: object,
    ) -> Number:
        return self.evaluate(orig_expr, fallback=fallback_value, size_oblivious=size_oblivious)

    def _maybe_evaluate_static(self, expr: Expr, **_: object) -> Number | None:
        if expr.kind is bool:
            return self.statically_known(expr)
        simple = self.simplify(expr)
        return simple.value if isinstance(simple, x.Constant) else None


def _holds(e: Expr, value: Number) -> Expr:
    """The fact that `e` has this value."""
    if e.kind is bool:
        return e if value else e.not_()
    return e.eq(value)


def _finite_bound_exceeded(r: Interval, mark: DynamicMark) -> bool:
    return (mark.lo != -math.inf and r.lo > mark.lo) or (mark.hi != math.inf and r.hi < mark.hi)
