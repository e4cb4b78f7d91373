"""Expressions of sizes on PyTorch's symbolic numbers.

In:     an expression, its symbols' values by name.
Out:    its value; no branch looks at it.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from pliant.exporting.torch_form.refusal import refused
from pliant.symbolic.expr import Expr
from pliant.symbolic.printer import to_python

Values = dict[str, Any]

_sym_not: Callable[[Any], Any] = torch.sym_not
_sym_ite: Callable[[Any, Any, Any], Any] = torch.sym_ite
_BINARY: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Mod: operator.mod, ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv, ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.And: operator.and_, ast.Or: operator.or_,
}  # fmt: skip
_CALLS: dict[str, Callable[..., Any]] = {
    "min": torch.sym_min, "max": torch.sym_max, "float": torch.sym_float, "math.trunc": math.trunc, "math.floor": math.floor,
    "math.ceil": math.ceil,
}  # fmt: skip


def number(e: Expr, values: Values) -> Any:
    """The value of an expression, as one of PyTorch's symbolic numbers: no branch looks at it."""
    return _part(ast.parse(to_python(e), mode="eval").body, values)


def _part(tree: ast.expr, values: Values) -> Any:
    match tree:
        case ast.Constant(value):
            return value
        case ast.Name(name) if name in values:
            return values[name]
        case ast.UnaryOp(ast.USub(), one):
            return -_part(one, values)
        case ast.UnaryOp(ast.Not(), one):
            return _sym_not(_part(one, values))
        case ast.BinOp(one, sign, other) | ast.Compare(one, [sign], [other]) if type(sign) in _BINARY:
            return _BINARY[type(sign)](_part(one, values), _part(other, values))
        case ast.BoolOp(sign, parts):
            return _folded(_BINARY[type(sign)], [_part(one, values) for one in parts])
        case ast.Call(function, args) if ast.unparse(function) in _CALLS:
            return _folded(_CALLS[ast.unparse(function)], [_part(one, values) for one in args])
        case ast.IfExp(test, then, other):
            return _sym_ite(_part(test, values), _part(then, values), _part(other, values))
    raise refused(f"the number `{ast.unparse(tree)}` has no form in PyTorch's programs", "sizes there are of +, -, *, //, %, min and max")


def _folded(function: Callable[..., Any], parts: list[Any]) -> Any:
    """Two at a time; of one part what the function gives."""
    if len(parts) == 1:
        return function(parts[0])
    found, *rest = parts
    for one in rest:
        found = function(found, one)
    return found
