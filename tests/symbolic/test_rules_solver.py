"""Every equation written above a rewrite rule, put to a solver; then whole canonical forms and their trees."""

import random

import pytest
from tests.symbolic.programs import SYMBOLS, build, tree

from pliant.symbolic import expr as x

z3 = pytest.importorskip("z3")

a, b, c, d = z3.Ints("a b c d")
VARIABLES = z3.Ints("s0 s1 s2 s3")


def floordiv(p, q):
    """Python's `//`: z3 divides so that the remainder is not negative, which is the same for q > 0."""
    return z3.If(q > 0, p / q, (-p) / (-q))


def mod(p, q):
    return p - q * floordiv(p, q)


def zmax(p, q):
    return z3.If(p >= q, p, q)


def refute(claim, *conditions):
    solver = z3.Solver()
    solver.set("timeout", 5000)
    solver.add(*conditions, z3.Not(claim))
    return solver.check()


KS = [2, 3, 8]
GS = [2, 3, -2]
EQUATIONS = {
    "x // -k = -x // k": [floordiv(a, -k) == floordiv(-a, k) for k in KS],
    "(k*q + r) // k = q + r // k": [floordiv(k * a + b, k) == a + floordiv(b, k) for k in KS],
    "-x // k = -((x + k - 1) // k)": [floordiv(-a, k) == -floordiv(a + k - 1, k) for k in KS],
    "(g*x + c) // (g*k) = (x + c // g) // k": [
        floordiv(g * a + b, g * k) == floordiv(a + floordiv(b, z3.IntVal(g)), k) for g in (2, 3) for k in KS
    ],
    "(g*x) // (g*y) = x // y": [floordiv(g * a, z3.IntVal(g * k)) == floordiv(a, z3.IntVal(k)) for g in GS for k in KS],
    "(x // y) // k = x // (y*k)": [
        floordiv(floordiv(a, z3.IntVal(y)), k) == floordiv(a, z3.IntVal(y * k)) for y in (2, 3, -2, -3) for k in KS
    ],
    "(x % m) // k = 0": [floordiv(mod(a, z3.IntVal(m)), k) == 0 for k in KS for m in range(1, k + 1)],
    "x % -k = -(-x % k)": [mod(a, z3.IntVal(-k)) == -mod(-a, z3.IntVal(k)) for k in KS],
    "(k*q + r) % k = r % k": [mod(k * a + b, z3.IntVal(k)) == mod(b, z3.IntVal(k)) for k in KS],
    "(g*x + c) % (g*k) = g*((x + c // g) % k) + c % g": [
        mod(g * a + b, z3.IntVal(g * k)) == g * mod(a + floordiv(b, z3.IntVal(g)), z3.IntVal(k)) + mod(b, z3.IntVal(g))
        for g in (2, 3)
        for k in KS
    ],
    "(g*x) % (g*y) = g * (x % y)": [
        mod(g * a, z3.IntVal(g * k)) == g * mod(a, z3.IntVal(k)) for g in GS for k in (*KS, -3)
    ],
    "(c*(x % m) + y) % k = (c*x + y) % k, k divides c*m": [
        mod(co * mod(a, z3.IntVal(m)) + b, z3.IntVal(k)) == mod(co * a + b, z3.IntVal(k))
        for co, m, k in ((1, 8, 4), (1, 4, 4), (2, 4, 8), (3, 8, 8))
    ],
    "max(max(x, y), z) = max(x, max(y, z))": [zmax(zmax(a, b), c) == zmax(a, zmax(b, c))],
    "x < y = x - y + 1 <= 0": [(a < b) == (a - b + 1 <= 0)],
    "not (p <= 0) = 1 - p <= 0": [z3.Not(a <= 0) == (1 - a <= 0)],
    "g*x + c <= 0 = x + ceil(c/g) <= 0": [(g * a + b <= 0) == (a - floordiv(-b, z3.IntVal(g)) <= 0) for g in (2, 3, 5)],
    "|a| = max(a, -a)": [z3.If(a >= 0, a, -a) == zmax(a, -a)],
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_equation(name):
    for claim in EQUATIONS[name]:
        assert refute(claim) == z3.unsat, claim


CONDITIONAL = {
    "a // b = 0, 0 <= a < b": (floordiv(a, b) == 0, [a >= 0, a < b]),
    "a % b = a, 0 <= a < b": (mod(a, b) == a, [a >= 0, a < b]),
    "b*(a // b) <= a, b > 0": (b * floordiv(a, b) <= a, [b > 0]),
    "b*(a // b) >= a - b + 1, b > 0": (b * floordiv(a, b) >= a - b + 1, [b > 0]),
    "a % b <= b - 1, b > 0": (mod(a, b) <= b - 1, [b > 0]),
}


@pytest.mark.parametrize("name", CONDITIONAL)
def test_conditional_equation(name):
    claim, conditions = CONDITIONAL[name]
    assert refute(claim, *conditions) == z3.unsat


_TREE = {
    "add": lambda p, q: p + q,
    "sub": lambda p, q: p - q,
    "neg": lambda p: -p,
    "floordiv_const": floordiv,
    "mod_const": mod,
    "min": lambda p, q: z3.If(q < p, q, p),
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


_LINEAR = {"sym", "lit", *_TREE}


def is_linear(t):
    return t[0] in _LINEAR and all(is_linear(part) for part in t[1:] if isinstance(part, tuple))


def tree_to_solver(t):
    if t[0] == "sym":
        return VARIABLES[t[1]]
    if t[0] == "lit":
        return z3.IntVal(t[1])
    return _TREE[t[0]](*[tree_to_solver(part) for part in t[1:]])


def fold(function, items):
    result = items[0]
    for item in items[1:]:
        result = function(result, item)
    return result


_NODES = {
    x.FloorDiv: floordiv,
    x.Mod: mod,
    x.Min: lambda *p: fold(_TREE["min"], p),
    x.Max: lambda *p: fold(zmax, p),
    x.Select: z3.If,
    x.Eq: lambda p: p == 0,
    x.Ne: lambda p: p != 0,
    x.Le: lambda p: p <= 0,
    x.Not: z3.Not,
    x.And: z3.And,
    x.Or: z3.Or,
    x.BoolEq: lambda p, q: p == q,
}


def to_solver(e):
    if isinstance(e, x.Bool):
        return z3.BoolVal(e.value)
    if isinstance(e, x.Integer):
        return z3.IntVal(e.value)
    if isinstance(e, x.Symbol):
        return VARIABLES[SYMBOLS.index(e)]
    if type(e) is x.Sum:
        return z3.IntVal(e.const) + sum(coef * to_solver(mono) for mono, coef in e.terms)
    return _NODES[type(e)](*[to_solver(part) for part in e.args])


def test_canonical_forms():
    proved = 0
    for seed in range(400):
        t = tree(random.Random(seed).randrange, "ib"[seed % 2], 3)
        if is_linear(t):
            answer = refute(tree_to_solver(t) == to_solver(build(t)))
            assert answer != z3.sat, f"{t} became {build(t)}"
            proved += answer == z3.unsat
    assert proved >= 40
