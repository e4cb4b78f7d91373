"""The rewrite rules that comments in the engine state, read as claims.

In:     the text of the modules of rules: `# left = right      condition, condition`, or `<=` and `>=` for bounds.
Out:    `RULES`; each as Python to be evaluated on numbers, and as a formula of a solver.
Holds:  a comment with an equation in these modules is a rule, so none can be written there and not be checked.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, reduce
from types import CodeType, ModuleType
from typing import Any

import z3
from tests.symbolic import solver

from pliant.symbolic import prove, simplify
from pliant.symbolic.rules import division, extrema, floats, powers, relations

MODULES = (division, extrema, floats, powers, relations, simplify, prove)
_RULE = re.compile(r"#\s+(?P<claim>\S.*? (=|<=|>=) .*?)(\s{6}(?P<condition>.*))?$")
_BITS = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)
_EXPONENTIAL = (ast.Pow, ast.LShift, ast.RShift)
_WORD = 16
_FEW = (-3, -1, 1, 2, 3, 8)  # what a solver gets for a factor or divisor where it cannot do with a symbol
_SMALL = (0, 1, 2, 3)


@dataclass(frozen=True)
class Rule:
    """`claim` and `conditions` as expressions; `names` in it, `truths` those of booleans."""

    text: str
    module: str
    claim: ast.expr
    conditions: tuple[ast.expr, ...]
    names: tuple[str, ...]
    truths: frozenset[str]

    @property
    def has_bits(self) -> bool:
        return any(isinstance(n, ast.BinOp) and isinstance(n.op, _BITS) for n in ast.walk(self.claim))

    @property
    def has_floats(self) -> bool:
        calls = {n.func.id for n in ast.walk(self.claim) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
        return bool(calls & {"floor", "ceil", "float"}) or "NaN" in self.text

    def values(self) -> Iterator[dict[str, Any]]:
        """Small numbers for the names under which the conditions hold."""
        span = range(-3, 5) if len(self.names) > 3 else range(-8, 9)
        domains = [(False, True) if n in self.truths else span for n in self.names]
        for point in itertools.product(*domains):
            at = dict(zip(self.names, point, strict=True))
            try:
                if all(on_numbers(c, at) for c in self.conditions):
                    yield at
            except ZeroDivisionError:
                continue


def read(module: ModuleType) -> list[Rule]:
    found = [_RULE.search(line) for line in inspect.getsource(module).splitlines()]
    return [rule(m["claim"], m["condition"] or "", module.__name__) for m in found if m is not None]


def rule(claim: str, condition: str, module: str = "") -> Rule:
    parsed = _parse(_as_comparison(claim))
    conditions = tuple(_parse(c) for c in condition.split(", ") if c and c != "neither is NaN")
    trees = (parsed, *conditions)
    names = sorted({n.id for t in trees for n in ast.walk(t) if isinstance(n, ast.Name)} - _FUNCTIONS)
    return Rule(f"{claim}  {condition}", module, parsed, conditions, tuple(names), frozenset(_truths(parsed)))


def _parse(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


def _as_comparison(claim: str) -> str:
    left, equal, right = claim.partition(" = ")
    return f"({left}) == ({right})" if equal else claim


_FUNCTIONS = {"min", "max", "abs", "floor", "ceil", "float", "true", "false", "hi", "lo"}


def _truths(tree: ast.expr) -> Iterator[str]:
    for node in ast.walk(tree):
        operands: list[ast.expr] = []
        match node:
            case ast.BoolOp(values=operands):
                pass
            case ast.UnaryOp(op=ast.Not(), operand=one):
                operands = [one]
            case ast.IfExp(test=one):
                operands = [one]
            case ast.Compare(left=ast.Name(id="true" | "false"), comparators=operands):
                pass
        yield from (o.id for o in operands if isinstance(o, ast.Name) and o.id not in _FUNCTIONS)


# -- on numbers -------------------------------------------------------------------------------------------------------
_MEANING = {"floor": math.floor, "ceil": math.ceil, "true": True, "false": False}


@cache
def _code(tree: ast.expr) -> CodeType:
    return compile(ast.Expression(tree), "rule", "eval")


def on_numbers(tree: ast.expr, at: dict[str, Any]) -> Any:
    return eval(_code(tree), _MEANING, at)


# -- for the solver ---------------------------------------------------------------------------------------------------
_OPERATORS: dict[type, Any] = {
    ast.Add: lambda p, q: p + q,
    ast.Sub: lambda p, q: p - q,
    ast.Mult: lambda p, q: p * q,
    ast.FloorDiv: solver.floordiv,
    ast.Mod: solver.mod,
    ast.BitAnd: lambda p, q: p & q,
    ast.BitOr: lambda p, q: p | q,
    ast.BitXor: lambda p, q: p ^ q,
    ast.LShift: lambda p, q: p << q,
    ast.RShift: lambda p, q: p >> q,
    ast.Pow: lambda p, q: math.prod([p] * number(q), start=1 + 0 * p),
    ast.Eq: lambda p, q: p == q,
    ast.NotEq: lambda p, q: p != q,
    ast.Lt: lambda p, q: p < q,
    ast.LtE: lambda p, q: p <= q,
    ast.Gt: lambda p, q: p > q,
    ast.GtE: lambda p, q: p >= q,
    ast.And: z3.And,
    ast.Or: z3.Or,
    ast.Not: z3.Not,
    ast.USub: lambda p: -p,
}
_CALLS = {
    "min": lambda *p: reduce(solver.zmin, p),
    "max": lambda *p: reduce(solver.zmax, p),
    "abs": z3.Abs,
}


def number(value: Any) -> int:
    return int(z3.simplify(value).as_long())


def formula(tree: ast.expr, at: dict[str, Any], constant: Any, divisors: list[Any]) -> Any:
    """The tree over solver terms; `constant` makes those of numbers."""

    def of(node: ast.expr) -> Any:
        match node:
            case ast.Name(id="true" | "false"):
                return z3.BoolVal(node.id == "true")
            case ast.Name():
                return at[node.id]
            case ast.Constant():
                return constant(node.value)
            case ast.BinOp():
                left, right = of(node.left), of(node.right)
                if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
                    divisors.append(right)
                return _OPERATORS[type(node.op)](left, right)
            case ast.UnaryOp():
                return _OPERATORS[type(node.op)](of(node.operand))
            case ast.BoolOp():
                return _OPERATORS[type(node.op)](*[of(v) for v in node.values])
            case ast.Compare():
                sides = [of(node.left), *[of(c) for c in node.comparators]]
                pairs = zip(node.ops, itertools.pairwise(sides), strict=True)
                return z3.And(*[_OPERATORS[type(op)](*pair) for op, pair in pairs])
            case ast.IfExp():
                return z3.If(of(node.test), of(node.body), of(node.orelse))
            case ast.Call(func=ast.Name()):
                return _CALLS[node.func.id](*[of(a) for a in node.args])
        raise NotImplementedError(ast.dump(node))

    return of(tree)


def divide_words(p: Any, q: Any) -> Any:
    return (p - p % q) / q  # of bit vectors: the remainder has the divisor's sign


def refute(rule: Rule, milliseconds: int = 400) -> None:
    """Raise AssertionError unless the solver proves the rule: for all numbers, or for some factors and divisors."""
    exponents = [n for n in rule.names if n in _exponents(rule.claim)]
    if exponents or rule.has_bits:
        _proved(rule, 5000, exponents, _SMALL)
    elif not _holds(rule, {}, milliseconds):
        _proved(rule, 5000, fixed=[n for n in rule.names if n in "bcgkmyz" and n not in rule.truths])


def _exponents(tree: ast.expr) -> set[str]:
    powers = [n.right for n in ast.walk(tree) if isinstance(n, ast.BinOp) and isinstance(n.op, _EXPONENTIAL)]
    return {n.id for right in powers for n in ast.walk(right) if isinstance(n, ast.Name)}


def _proved(rule: Rule, milliseconds: int, fixed: list[str], few: tuple[int, ...] = _FEW) -> None:
    cases = 0
    for point in itertools.product(few, repeat=len(fixed)):
        if cases > 60:
            break
        cases += _holds(rule, dict(zip(fixed, point, strict=True)), milliseconds)
    assert cases, rule.text


def _holds(rule: Rule, fixed: dict[str, int], milliseconds: int) -> bool:
    make, constant = (z3.BitVec, lambda v: z3.BitVecVal(v, _WORD)) if rule.has_bits else (z3.Int, z3.IntVal)
    at: dict[str, Any] = {n: z3.Bool(n) for n in rule.truths}
    for name in set(rule.names) - rule.truths:
        unknown = make(name, _WORD) if rule.has_bits else make(name)
        at[name] = constant(fixed[name]) if name in fixed else unknown
    saved = _OPERATORS[ast.FloorDiv], _OPERATORS[ast.Mod]
    if rule.has_bits:
        _OPERATORS[ast.FloorDiv], _OPERATORS[ast.Mod] = divide_words, lambda p, q: p % q
    try:
        divisors: list[Any] = []
        conditions = [formula(c, at, constant, divisors) for c in rule.conditions]
        claim = formula(rule.claim, at, constant, divisors)
    finally:
        _OPERATORS[ast.FloorDiv], _OPERATORS[ast.Mod] = saved
    given = [*conditions, *(d != 0 for d in divisors)]
    answer = solver.refute(claim, given, milliseconds)
    assert not isinstance(answer, z3.ModelRef), f"{rule.text}: {answer}"
    return bool(answer == z3.unsat)


RULES = [r for module in MODULES for r in read(module)]
