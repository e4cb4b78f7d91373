"""Read expressions that `printer.to_python` wrote.

In:     text, the symbols that may occur in it.
Out:    the expression; `ParseError` for any other text.
Holds:  `parse(to_python(e), symbols) is e` wherever `can_be_read` says so. Nothing is evaluated but arithmetic, comparisons
        and functions of `math` on expressions; powers of integers are bounded, shifts refused (a file could
        ask for any memory).
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Mapping

from pliant.symbolic.expr import Expr, Symbol, lit
from pliant.symbolic.printer import to_python
from pliant.symbolic.rules import extrema, floats, powers, relations

_LONGEST = 8192  # characters
_DEEPEST = 64
_LARGEST_POWER = 16


class ParseError(ValueError):
    """The text is no expression of these symbols."""


def parse(text: str, symbols: Mapping[str, Symbol]) -> Expr:
    """The expression."""
    if type(text) is not str or len(text) > _LONGEST:
        raise ParseError("no text, or too long a one")
    try:
        return _read(ast.parse(text, mode="eval").body, symbols, 0)
    except (SyntaxError, MemoryError, RecursionError, TypeError, ValueError, ArithmeticError, LookupError) as error:
        raise ParseError(f"`{text[:80]}` is no expression here: {error}") from None


def can_be_read(e: Expr) -> bool:
    """Whether its text reads as itself."""
    try:
        return parse(to_python(e), {s.name: s for s in e.free}) is e
    except ParseError:
        return False


def _read(node: ast.expr, symbols: Mapping[str, Symbol], depth: int) -> Expr:
    if depth > _DEEPEST:
        raise ParseError("it is nested too deeply")

    def read(inner: ast.expr) -> Expr:
        return _read(inner, symbols, depth + 1)

    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return lit(value)
        case ast.Name(id=name):
            return symbols[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -read(operand)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return read(operand).not_()
        case ast.BinOp(op=op, left=left, right=right):
            return _BINARY[type(op)](read(left), read(right))
        case ast.BoolOp(op=op, values=values):
            return relations.and_(*map(read, values)) if isinstance(op, ast.And) else relations.or_(*map(read, values))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            return _COMPARED[type(op)](read(left), read(right))
        case ast.IfExp(test=test, body=body, orelse=other):
            return relations.select(read(test), read(body), read(other))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            return _CALLED[name](*map(read, args))
        case ast.Call(func=ast.Attribute(value=ast.Name(id="math"), attr=name), args=args, keywords=[]):
            return _OF_MATH[name](*map(read, args))
        case ast.Call(func=ast.Attribute(value=inner, attr="is_integer"), args=[], keywords=[]):
            return floats.is_integer(read(inner))
        case ast.Attribute(value=ast.Name(id="math"), attr="inf" | "nan" as name):
            return lit(float(name))
    raise ParseError(f"a {type(node).__name__} has no place in it")


def _power(a: Expr, b: Expr) -> Expr:
    if float in (a.kind, b.kind):
        return a**b
    if b.as_int() is None or not 0 <= b.const <= _LARGEST_POWER:
        raise ParseError("a power that is no small number")
    return a**b


_BINARY: dict[type[ast.operator], Callable[[Expr, Expr], Expr]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: _power,
    ast.BitAnd: powers.bit_and,
    ast.BitOr: powers.bit_or,
    ast.BitXor: powers.bit_xor,
}
_COMPARED: dict[type[ast.cmpop], Callable[[Expr, Expr], Expr]] = {
    ast.Eq: lambda a, b: a.eq(b),
    ast.NotEq: lambda a, b: a.ne(b),
    ast.Lt: lambda a, b: a.lt(b),
    ast.LtE: lambda a, b: a.le(b),
    ast.Gt: lambda a, b: a.gt(b),
    ast.GtE: lambda a, b: a.ge(b),
}


def _extremum(rule: Callable[[Expr, Expr], Expr]) -> Callable[..., Expr]:
    def read(first: Expr, *rest: Expr) -> Expr:
        for one in rest:
            first = rule(first, one)
        return first

    return read


_CALLED: dict[str, Callable[..., Expr]] = {
    "min": _extremum(extrema.minimum),
    "max": _extremum(extrema.maximum),
    "float": floats.to_float,
    "abs": floats.absolute,
    "round": lambda a, *digits: floats.round_digits(a, *digits) if digits else floats.round_to_int(a),
}
_OF_MATH: dict[str, Callable[..., Expr]] = {
    "trunc": floats.to_int,
    "floor": floats.floor,
    "ceil": floats.ceil,
    **{name: functools.partial(floats.math_call, name) for name in floats.MATH},
}

__all__ = ["ParseError", "can_be_read", "parse"]
