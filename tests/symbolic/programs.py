"""Random expressions in two forms: a plain tree with Python's own meaning, and the engine's expression.

A tree is ("sym", i), ("lit", v) or (operation, child, ...). `choose(n)` picks a number below n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from pliant.symbolic import expr as x
from pliant.symbolic.rules import extrema, floats, powers, relations

Tree = tuple[Any, ...]
Choose = Callable[[int], int]

SYMBOLS = [x.Symbol(f"s{i}") for i in range(4)]

# operation: (kinds of arguments, meaning on numbers, engine's builder)
INT_OPS: dict[str, tuple[str, Callable[..., Any], Callable[..., x.Expr]]] = {
    "add": ("ii", lambda a, b: a + b, lambda a, b: a + b),
    "sub": ("ii", lambda a, b: a - b, lambda a, b: a - b),
    "mul": ("ii", lambda a, b: a * b, lambda a, b: a * b),
    "floordiv": ("ii", lambda a, b: a // b, lambda a, b: a // b),
    "mod": ("ii", lambda a, b: a % b, lambda a, b: a % b),
    "floordiv_const": ("ic", lambda a, b: a // b, lambda a, b: a // b),
    "mod_const": ("ic", lambda a, b: a % b, lambda a, b: a % b),
    "min": ("ii", min, extrema.minimum),
    "max": ("ii", max, extrema.maximum),
    "neg": ("i", lambda a: -a, lambda a: -a),
    "square": ("i", lambda a: a**2, lambda a: a**2),
    "select": ("bii", lambda c, a, b: a if c else b, relations.select),
    "and": ("ii", lambda a, b: a & b, powers.bit_and),
    "or": ("ii", lambda a, b: a | b, powers.bit_or),
    "xor": ("ii", lambda a, b: a ^ b, powers.bit_xor),
    "shift": ("ic", lambda a, b: a >> (abs(b) % 5), lambda a, b: powers.right_shift(a, x.Integer(abs(b.as_int()) % 5))),
    "floor": ("f", math.floor, floats.floor),
    "ceil": ("f", math.ceil, floats.ceil),
    "trunc": ("f", math.trunc, floats.to_int),
    "round": ("f", round, floats.round_to_int),
}
FLOAT_OPS: dict[str, tuple[str, Callable[..., Any], Callable[..., x.Expr]]] = {
    "truediv": ("ii", lambda a, b: a / b, lambda a, b: a / b),
    "half": ("i", lambda a: a * 0.5, lambda a: a * 0.5),
    "float": ("i", float, floats.to_float),
    "fadd": ("ff", lambda a, b: a + b, lambda a, b: a + b),
    "fmul": ("ff", lambda a, b: a * b, lambda a, b: a * b),
    "fsub": ("ff", lambda a, b: a - b, lambda a, b: a - b),
    "fneg": ("f", lambda a: -a, lambda a: -a),
    "fmax": ("ff", max, extrema.maximum),
}
BOOL_OPS: dict[str, tuple[str, Callable[..., Any], Callable[..., x.Expr]]] = {
    "eq": ("ii", lambda a, b: a == b, lambda a, b: a.eq(b)),
    "ne": ("ii", lambda a, b: a != b, lambda a, b: a.ne(b)),
    "lt": ("ii", lambda a, b: a < b, lambda a, b: a.lt(b)),
    "le": ("ii", lambda a, b: a <= b, lambda a, b: a.le(b)),
    "gt": ("ii", lambda a, b: a > b, lambda a, b: a.gt(b)),
    "ge": ("ii", lambda a, b: a >= b, lambda a, b: a.ge(b)),
    "flt": ("ff", lambda a, b: a < b, lambda a, b: a.lt(b)),
    "fle": ("ff", lambda a, b: a <= b, lambda a, b: a.le(b)),
    "feq": ("ff", lambda a, b: a == b, lambda a, b: a.eq(b)),
    "not": ("b", lambda a: not a, lambda a: a.not_()),
    "both": ("bb", lambda a, b: a and b, lambda a, b: a.and_(b)),
    "either": ("bb", lambda a, b: a or b, lambda a, b: a.or_(b)),
    "same": ("bb", lambda a, b: a == b, lambda a, b: a.eq(b)),
}
OPS = {"i": INT_OPS, "f": FLOAT_OPS, "b": BOOL_OPS}
ALL_OPS = INT_OPS | FLOAT_OPS | BOOL_OPS
# sums, products and divisions are what shapes are made of: draw them more often
_INT_NAMES = ["add", "sub", "mul", "floordiv_const", "mod_const", "add", "mul", "floordiv", *INT_OPS]
_NAMES = {"i": _INT_NAMES, "f": list(FLOAT_OPS), "b": ["eq", "lt", "le", "ne", *BOOL_OPS]}
_LEAVES = {"f": ["truediv", "half", "float"], "b": ["eq", "lt", "le", "ne"]}
_CONSTANTS = [0, 1, 2, 3, 4, 5, 7, 8, 12, 16, -1, -2, -3, -8]
_DIVISORS = [2, 3, 4, 6, 8, 16, 1, -1, -2, -3]


# what a solver of integer arithmetic has no words for
_OTHER = {"and", "or", "xor", "floor", "ceil", "trunc", "round", *FLOAT_OPS, "flt", "fle", "feq"}
_INTEGER_NAMES = {kind: [n for n in names if n not in _OTHER] for kind, names in _NAMES.items()}


def tree(choose: Choose, kind: str = "i", depth: int = 4, integers: bool = False) -> Tree:
    """A random tree of one kind ("i", "f" or "b"); `integers`: without floats and bit operations."""
    if kind == "c":
        return ("lit", _DIVISORS[choose(len(_DIVISORS))])
    if kind == "i" and (depth == 0 or choose(4) == 0):
        if choose(3):
            return ("sym", choose(len(SYMBOLS)))
        return ("lit", _CONSTANTS[choose(len(_CONSTANTS))])
    names = _LEAVES[kind] if depth == 0 else (_INTEGER_NAMES if integers else _NAMES)[kind]
    name = names[choose(len(names))]
    return (name, *[tree(choose, k, max(depth - 1, 0), integers) for k in ALL_OPS[name][0]])


def meaning(t: Tree, values: list[int]) -> Any:
    """The tree's value by Python alone."""
    if t[0] == "sym":
        return values[t[1]]
    if t[0] == "lit":
        return t[1]
    if t[0] == "select":
        return meaning(t[2 if meaning(t[1], values) else 3], values)
    if t[0] in ("both", "either"):
        left, right = meaning(t[1], values), meaning(t[2], values)
        return (left and right) if t[0] == "both" else (left or right)
    return ALL_OPS[t[0]][1](*[meaning(a, values) for a in t[1:]])


def build(t: Tree) -> x.Expr:
    """The tree as an expression. Raises ZeroDivisionError where a divisor is the constant 0."""
    if t[0] == "sym":
        return SYMBOLS[t[1]]
    if t[0] == "lit":
        return x.lit(t[1])
    return ALL_OPS[t[0]][2](*[build(a) for a in t[1:]])
