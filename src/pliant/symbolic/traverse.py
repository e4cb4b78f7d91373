"""Evaluate, substitute in and take apart expressions.

In:     an expression, and numbers or expressions for its symbols.
Out:    a Python number, or a new canonical expression.
Holds:  shared parts are visited once, so the work is linear in the number of distinct nodes.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pliant.symbolic import expr as x
from pliant.symbolic.expr import Expr, Number, Symbol
from pliant.symbolic.rules import division, extrema, floats, powers, relations


def _float_pow(a: float, b: float) -> float:
    value = a**b
    if isinstance(value, complex):
        raise ValueError(f"{a} ** {b} is not real")
    return float(value)


# class -> the Python meaning on numbers
MEANING: dict[type[Expr], Callable[..., Any]] = {
    x.Product: lambda *a: math.prod(a),
    x.Factored: lambda a, b: a * b,
    x.FloorDiv: lambda a, b: a // b,
    x.Mod: lambda a, b: a % b,
    x.Min: min,
    x.Max: max,
    x.Pow: lambda a, b: a**b,
    x.LeftShift: lambda a, b: a << b,
    x.RightShift: lambda a, b: a >> b,
    x.BitAnd: lambda a, b: a & b,
    x.BitOr: lambda a, b: a | b,
    x.BitXor: lambda a, b: a ^ b,
    x.ToInt: math.trunc,
    x.Floor: math.floor,
    x.Ceil: math.ceil,
    x.Round: round,
    x.Select: lambda c, a, b: a if c else b,
    x.ToFloat: float,
    x.TrueDiv: lambda a, b: a / b,
    x.IntTrueDiv: lambda a, b: a / b,
    x.FloatAdd: lambda a, b: a + b,
    x.FloatSub: lambda a, b: a - b,
    x.FloatMul: lambda a, b: a * b,
    x.FloatNeg: lambda a: -a,
    x.FloatMod: lambda a, b: a % b,
    x.FloatPow: _float_pow,
    x.FloatMin: min,
    x.FloatMax: max,
    x.FloatAbs: abs,
    x.RoundDigits: round,
    x.FloatSelect: lambda c, a, b: a if c else b,
    x.Eq: lambda p: p == 0,
    x.Ne: lambda p: p != 0,
    x.Le: lambda p: p <= 0,
    x.FloatEq: lambda a, b: a == b,
    x.FloatLt: lambda a, b: a < b,
    x.FloatLe: lambda a, b: a <= b,
    x.IsInteger: float.is_integer,
    x.Not: lambda a: not a,
    x.And: lambda *a: all(a),
    x.Or: lambda *a: any(a),
    x.BoolEq: lambda a, b: a == b,
    **{cls: getattr(math, cls.function) for cls in x.MATH_CLASSES},
}

# class -> the function that builds its canonical form
BUILD: dict[type[Expr], Callable[..., Expr]] = {
    x.Product: lambda *a: functools.reduce(x.mul, a),
    x.Factored: x.mul,
    x.FloorDiv: division.floordiv,
    x.Mod: division.mod,
    x.Min: lambda *a: functools.reduce(extrema.minimum, a),
    x.Max: lambda *a: functools.reduce(extrema.maximum, a),
    x.Pow: powers.power,
    x.LeftShift: powers.left_shift,
    x.RightShift: powers.right_shift,
    x.BitAnd: powers.bit_and,
    x.BitOr: powers.bit_or,
    x.BitXor: powers.bit_xor,
    x.ToInt: floats.to_int,
    x.Floor: floats.floor,
    x.Ceil: floats.ceil,
    x.Round: floats.round_to_int,
    x.Select: relations.select,
    x.ToFloat: floats.to_float,
    x.TrueDiv: floats.truediv,
    x.IntTrueDiv: floats.truediv,
    x.FloatAdd: floats.add,
    x.FloatSub: floats.sub,
    x.FloatMul: floats.mul,
    x.FloatNeg: floats.neg,
    x.FloatMod: floats.mod,
    x.FloatPow: floats.power,
    x.FloatMin: floats.minimum,
    x.FloatMax: floats.maximum,
    x.FloatAbs: floats.absolute,
    x.RoundDigits: floats.round_digits,
    x.FloatSelect: relations.select,
    x.Eq: relations.zero,
    x.Ne: lambda p: relations.not_(relations.zero(p)),
    x.Le: relations.nonpositive,
    x.FloatEq: relations.eq,
    x.FloatLt: relations.lt,
    x.FloatLe: relations.le,
    x.IsInteger: floats.is_integer,
    x.Not: relations.not_,
    x.And: relations.and_,
    x.Or: relations.or_,
    x.BoolEq: relations.eq,
    **{cls: functools.partial(floats.math_call, cls.function) for cls in x.MATH_CLASSES},
}


def evaluate(e: Expr, values: Mapping[Symbol, Number]) -> Number:
    """The number that `e` stands for. Raises KeyError for a symbol without a value."""
    return _evaluate(e, values, {})


def _evaluate(e: Expr, values: Mapping[Symbol, Number], memo: dict[Expr, Number]) -> Number:
    if isinstance(e, x.Constant):
        return e.value
    if isinstance(e, Symbol):
        return values[e]
    found = memo.get(e)
    if found is not None:
        return found
    result: Number
    if type(e) is x.Sum:
        result = e.const
        for mono, coef in e.terms:
            result += coef * _evaluate(mono, values, memo)
    elif type(e) in _LAZY:
        chosen = e.args[1] if _evaluate(e.args[0], values, memo) else e.args[2]
        result = _evaluate(chosen, values, memo)
    else:
        result = MEANING[type(e)](*[_evaluate(a, values, memo) for a in e.args])
    memo[e] = result
    return result


_LAZY = (x.Select, x.FloatSelect)  # the branch not taken may divide by zero


def substitute(e: Expr, replacements: Mapping[Any, Expr]) -> Expr:
    """`e` with symbols (or whole atoms) replaced, in canonical form. Replacements are not substituted in again."""
    if not replacements:
        return e
    return _substitute(e, replacements, {})


def _substitute(e: Expr, replacements: Mapping[Any, Expr], memo: dict[Expr, Expr]) -> Expr:
    found = replacements.get(e)
    if found is not None:
        return found
    if not e.free or isinstance(e, Symbol):
        return e
    found = memo.get(e)
    if found is None:
        found = rebuild(e, lambda part: _substitute(part, replacements, memo))
        memo[e] = found
    return found


def rebuild(e: Expr, function: Callable[[Expr], Expr]) -> Expr:
    """`e` with `function` applied to each direct part (monomials of a sum, arguments of an operation)."""
    if type(e) is x.Sum:
        parts = [(function(mono), coef) for mono, coef in e.terms]
        if all(new is old for (new, _), (old, _) in zip(parts, e.terms, strict=True)):
            return e
        const = e.const
        terms: dict[Expr, int] = {}
        for part, coef in parts:
            const += part.const * coef
            for mono, factor in part.terms:
                terms[mono] = terms.get(mono, 0) + factor * coef
        return x.from_terms(const, {mono: factor for mono, factor in terms.items() if factor})
    if not e.args:
        return e
    if type(e) in _LAZY:
        condition = function(e.args[0])
        if isinstance(condition, x.Constant):  # the other branch may divide by zero
            return function(e.args[1] if condition.value else e.args[2])
    args = tuple([function(a) for a in e.args])
    return e if args == e.args else BUILD[type(e)](*args)


def atoms(e: Expr) -> Iterator[Expr]:
    """The distinct atoms of the monomials of an integer expression, not those inside other atoms."""
    seen: set[Expr] = set()
    for mono, _ in e.terms:
        for atom in x.atoms_of(mono):
            if atom not in seen:
                seen.add(atom)
                yield atom


def linear_coefficient(e: Expr, symbol: Symbol) -> Expr | None:
    """The factor c in `e == c*symbol + e.drop(symbol)`; None if e is not linear in the symbol."""
    if symbol not in e.free:
        return x.ZERO
    result: Expr = x.ZERO
    for mono, coef in e.terms:
        if mono is symbol:
            result = x.add(result, x.Integer(coef))
            continue
        if symbol not in mono.free:
            continue
        others = [a for a in x.atoms_of(mono) if a is not symbol]
        if len(others) != len(x.atoms_of(mono)) - 1 or any(symbol in a.free for a in others):
            return None
        result = x.add(result, x.scale(x.monomial(tuple(others)), coef))
    return result


def step_along(index: Expr, symbol: Symbol) -> int | None:
    """By how much an index grows with the symbol; None if it is no number (not linear, or symbolic)."""
    step = linear_coefficient(index, symbol)
    return None if step is None else step.as_int()
