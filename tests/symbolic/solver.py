"""Trees and expressions as formulas of a solver, and the claims that they mean the same.

In:     what `checks.check_random` looked at.
Out:    for each claim "equal", "unknown" (no answer in time) or "outside" (floats, bits: not integer arithmetic);
        an AssertionError with the solver's counterexample.
Holds:  a claim is about all integers for which every division of the original is defined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import z3
from tests.symbolic.checks import UNDEFINED, Round, build_or_none
from tests.symbolic.programs import SYMBOLS, Tree

from pliant.symbolic import expr as x
from pliant.symbolic.facts import Contradiction, Facts

VARIABLES = z3.Ints("s0 s1 s2 s3")


class Outside(Exception):
    """Not integer arithmetic."""


def floordiv(p: Any, q: Any) -> Any:
    """Python's `//`: z3 divides so that the remainder is not negative, which is the same for q > 0."""
    return z3.If(q > 0, p / q, (-p) / (-q))


def mod(p: Any, q: Any) -> Any:
    return p - q * floordiv(p, q)


def zmax(p: Any, q: Any) -> Any:
    return z3.If(p >= q, p, q)


def zmin(p: Any, q: Any) -> Any:
    return z3.If(q < p, q, p)


_TREE: dict[str, Callable[..., Any]] = {
    "add": lambda p, q: p + q,
    "sub": lambda p, q: p - q,
    "mul": lambda p, q: p * q,
    "neg": lambda p: -p,
    "square": lambda p: p * p,
    "floordiv": floordiv,
    "mod": mod,
    "floordiv_const": floordiv,
    "mod_const": mod,
    "min": zmin,
    "max": zmax,
    "select": z3.If,
    "eq": lambda p, q: p == q,
    "ne": lambda p, q: p != q,
    "lt": lambda p, q: p < q,
    "le": lambda p, q: p <= q,
    "gt": lambda p, q: p > q,
    "ge": lambda p, q: p >= q,
    "same": lambda p, q: p == q,
    "not": z3.Not,
    "both": z3.And,
    "either": z3.Or,
}
_DIVISIONS = ("floordiv", "mod", "floordiv_const", "mod_const")

_NODES: dict[type[x.Expr], Callable[..., Any]] = {
    x.Product: lambda *p: reduce(lambda a, b: a * b, p),
    x.FloorDiv: floordiv,
    x.Mod: mod,
    x.Min: lambda *p: reduce(zmin, p),
    x.Max: lambda *p: reduce(zmax, p),
    x.Select: z3.If,
    x.Eq: lambda p: p == 0,
    x.Ne: lambda p: p != 0,
    x.Le: lambda p: p <= 0,
    x.Not: z3.Not,
    x.And: z3.And,
    x.Or: z3.Or,
    x.BoolEq: lambda p, q: p == q,
}


def of_tree(t: Tree, defined: list[Any]) -> Any:
    """The tree's meaning; what must hold for it to be defined is added to `defined`."""
    if t[0] == "sym":
        return VARIABLES[t[1]]
    if t[0] == "lit":
        return z3.IntVal(t[1])
    if t[0] == "shift" and t[2][0] == "lit":
        return floordiv(of_tree(t[1], defined), z3.IntVal(2 ** (abs(t[2][1]) % 5)))
    if t[0] not in _TREE:
        raise Outside(t[0])
    parts = [of_tree(part, defined) for part in t[1:]]
    if t[0] in _DIVISIONS:
        defined.append(parts[1] != 0)
    return _TREE[t[0]](*parts)


def of_expr(e: x.Expr) -> Any:
    if isinstance(e, x.Bool):
        return z3.BoolVal(e.value)
    if isinstance(e, x.Integer):
        return z3.IntVal(e.value)
    if isinstance(e, x.Symbol):
        return VARIABLES[SYMBOLS.index(e)]
    if type(e) is x.Sum:
        return sum((coef * of_expr(mono) for mono, coef in e.terms), z3.IntVal(e.const))
    if type(e) not in _NODES:
        raise Outside(type(e).__name__)
    return _NODES[type(e)](*[of_expr(part) for part in e.args])


def refute(claim: Any, conditions: Iterable[Any] = (), milliseconds: int = 5000) -> Any:
    """z3.unsat: the claim holds wherever the conditions do."""
    solver = z3.Solver()
    solver.set("timeout", milliseconds)
    solver.add(*conditions, z3.Not(claim))
    answer = solver.check()
    return solver.model() if answer == z3.sat else answer


def verdict(claim: Callable[[list[Any]], Any], what: Callable[[], str], milliseconds: int) -> str:
    """`claim` gets a list to which it adds the conditions under which it is made."""
    conditions: list[Any] = []
    try:
        formula = claim(conditions)
    except Outside:
        return "outside"
    answer = refute(formula, conditions, milliseconds)
    assert not isinstance(answer, z3.ModelRef), f"{what()} at {answer}"
    return "equal" if answer == z3.unsat else "unknown"


def check_round(made: Round, milliseconds: int) -> list[str]:
    """The canonical form means what the tree means; what facts simplify it to does so where they hold."""
    results = []
    canonical = build_or_none(made.tree)
    if canonical is not None:
        results.append(
            verdict(
                lambda conditions: of_tree(made.tree, conditions) == of_expr(canonical),
                lambda: f"{made.tree} became {canonical}",
                milliseconds,
            )
        )
    simple = simplified(made)
    if simple is not None:
        results.append(
            verdict(
                lambda conditions: _under(made, conditions) == of_expr(simple),
                lambda: f"{made.question} became {simple} under {made.facts} over {made.range}",
                milliseconds,
            )
        )
    return results


def _under(made: Round, conditions: list[Any]) -> Any:
    for v in VARIABLES:
        conditions += [v >= int(made.range.lo)] + ([v <= int(made.range.hi)] if made.range.hi < math.inf else [])
    conditions += [of_tree(t, conditions) for t in made.facts if build_or_none(t) is not None]
    return of_tree(made.question, conditions)


def simplified(made: Round) -> x.Expr | None:
    """The question after the facts were learnt, proved where it is; None where that is undefined."""
    asked = build_or_none(made.question)
    if asked is None:
        return None
    facts = Facts()
    for s in SYMBOLS:
        facts.set_range(s, made.range)
    try:
        for e in map(build_or_none, made.facts):
            facts.learn(x.TRUE if e is None else e)
        simple = facts.simplify(asked)
        known = facts.prove(simple) if asked.kind is bool else None
    except (Contradiction, *UNDEFINED):
        return None
    return simple if known is None else x.lit(known)
