"""The symbols of one compilation, their hints, and the guards that its decisions recorded.

In:     sizes and numbers of the example inputs (`create_symbol`), values known only at run time (`create_unbacked`),
        questions about expressions (`evaluate`).
Out:    `torch.SymInt` and friends for the program to compute with (`wrap`), answers, guards, runtime asserts.
Holds:  an answer that does not hold for all values in range has a guard, and everything learnt follows from a guard,
        a runtime assert or a declared range.
Reads on: `symbols.py` (how symbols are made), `facts.py` (reasoning), `sym_node.py` (what torch calls).
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias, cast

import torch

from pliant.errors import DataDependentError, InternalError
from pliant.records import dataclass
from pliant.source import SourceLocation
from pliant.symbolic import expr as x
from pliant.symbolic.advice import statement
from pliant.symbolic.bounds import Interval
from pliant.symbolic.expr import Expr, Number, Symbol
from pliant.symbolic.facts import Contradiction
from pliant.symbolic.final_guards import ShapeGuard, minimal_guards
from pliant.symbolic.rules import floats, relations
from pliant.symbolic.runtime_asserts import RuntimeAssert, RuntimeAsserts
from pliant.symbolic.sym_node import SymNode, broadcasts_in_python, wrap_node
from pliant.symbolic.symbols import Symbols
from pliant.symbolic.traverse import evaluate, substitute

SymNumber: TypeAlias = "int | float | bool | torch.SymInt | torch.SymFloat | torch.SymBool"

_LIKELY_SIZE = 64  # of what only running tells
_LIKELY_PART = 2  # the same beside sizes that are known: padding, say


@dataclass(frozen=True, slots=True)
class Specialization:
    """A symbol, or an expression, that a guard fixed to one value."""

    symbol: Expr
    value: Number
    origin: SourceLocation | None


_numbers = itertools.count(1)


class ShapeEnv(Symbols, RuntimeAsserts):
    """Symbols, hints, facts and guards of one compilation."""

    def __init__(self, *, duck_shape: bool = True, specialize_zero_one: bool = True) -> None:
        Symbols.__init__(self, duck_shape=duck_shape, specialize_zero_one=specialize_zero_one)
        RuntimeAsserts.__init__(self)
        self.number = next(_numbers)  # by which the record tells what is of one compilation
        self.guards: list[ShapeGuard] = []
        self.failed: Collection[str] = ()  # what earlier calls assumed of unbacked symbols, and did not hold
        self.specializations: list[Specialization] = []
        # What an unbacked symbol is in terms of the inputs: asked where a decision needs it.
        self.reveal: Callable[[Symbol], Expr | None] = lambda symbol: None
        # The truth of a condition for the values at hand, where inputs tell it: a guess, for the running graph checks it.
        self.foresee: Callable[[Expr], bool | None] = lambda e: None
        self.loans: dict[tuple[type, Number], Expr] = {}  # what stands for a symbolic number in C++ code
        self.takes_fallbacks = False  # whether a "no" of `certain` needs no guard
        self.answers: dict[Expr, bool] = {}  # to questions whose askers go on as well with either answer, while they run
        self.takes_copies = False  # the same where C++ asks whether a view will do, and copies otherwise
        self.lends = False  # whether a trace is on that calls `settle` at each operator
        self.lent: Expr | None = None  # see `lend`
        self._hint_memo: dict[Expr, Number | None] = {}
        self._wrapped: dict[Expr, SymNumber] = {}
        self._shadows: dict[Symbol, Symbol] = {}
        self._revealing: set[Symbol] = set()

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

    def create_unbacked_symint(self) -> torch.SymInt:
        """The name under which `torch.library` fake implementations ask for a data-dependent size."""
        return cast("torch.SymInt", self.wrap(self.create_unbacked()))

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
        self.marks.check(fact, origin)

    def expect_true(self, e: Expr, message: str = "", stated: bool = False) -> bool:
        """A check of the program: learn it; where it depends on an unbacked symbol the graph checks it at run time."""
        written = e
        known = self.statically_known(e)
        if known is not None:
            return known
        e = self.facts.simplify(e)
        if not self.unbacked_symbols(e):
            return bool(self.evaluate(e))
        if not stated and not {str(written), message}.isdisjoint(self.failed):
            raise DataDependentError(f"`{written}` is not always so", kind="data-dependent")
        origin = self._origin()
        try:
            if not all(self.evaluate(one) for one in self._told_of_inputs(e)):
                return False
            self.facts.learn(e)
        except Contradiction:
            return False
        self.runtime_asserts.append(RuntimeAssert(written, message, origin, stated))
        return True

    def _told_of_inputs(self, e: Expr) -> list[Expr]:
        """What `e` says of symbols that stand for sizes of inputs alone: guards, since code that is made under it reads
        inputs, and checks it, with these in place of the symbols."""
        facts = self.facts.copy()
        facts.learn(e)
        new = [pair for pair in facts.replacements.items() if pair[0] not in self.facts.replacements]
        symbols = [(atom, rest) for atom, rest in new if isinstance(atom, Symbol)]
        told = [_holds(s, rest.value) if isinstance(rest, x.Constant) else s.eq(rest) for s, rest in symbols]
        return [one for one in told if not self.unbacked_symbols(one)]

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
