"""Every rewrite that a comment of the engine states, on numbers and put to a solver; then whole canonical forms."""

import math
import random

import pytest
from tests.symbolic.programs import build, tree

z3 = pytest.importorskip("z3")
from tests.symbolic import rewrites, solver  # noqa: E402

INTEGERS = [r for r in rewrites.RULES if not r.has_floats]


def test_each_module_states_its_rules():
    counts = {module.__name__: len(rewrites.read(module)) for module in rewrites.MODULES}
    assert all(counts.values()) and len(rewrites.RULES) >= 70, counts


@pytest.mark.parametrize("rule", INTEGERS, ids=lambda r: r.text)
def test_on_small_numbers(rule):
    checked = 0
    for at in rule.values():
        try:
            holds = rewrites.on_numbers(rule.claim, at)
        except (ZeroDivisionError, ValueError):  # not defined there
            continue
        assert holds, at
        checked += 1
    assert checked >= min(9, 2 ** len(rule.names))


@pytest.mark.parametrize("rule", INTEGERS, ids=lambda r: r.text)
def test_by_a_solver(rule):
    rewrites.refute(rule)


def test_a_wrong_rule_is_found():
    wrong = rewrites.rule("(x // y) // k = x // (y*k)", "")
    with pytest.raises(AssertionError):
        rewrites.refute(wrong)
    assert not rewrites.on_numbers(wrong.claim, {"x": 1, "y": 2, "k": -2})


# -- rules with floats: exact at the ends of their ranges and around them
LARGEST = 1 << 53
INTEGRAL = [0, 1, 2, 3, 7, LARGEST // 3, LARGEST - 2, LARGEST - 1, LARGEST]


def test_rounding_of_a_converted_integer():
    for n in (*INTEGRAL, *(-n for n in INTEGRAL)):
        assert math.floor(float(n)) == math.ceil(float(n)) == math.trunc(float(n)) == round(float(n)) == n
    assert math.floor(float(LARGEST + 1)) != LARGEST + 1  # the condition is needed


def test_rounding_of_a_quotient():
    some = random.Random(0)
    for p in (*INTEGRAL, *(some.randrange(LARGEST) for _ in range(200))):
        for q in (*INTEGRAL[1:], *(some.randrange(1, LARGEST) for _ in range(50)), *range(1, 40)):
            assert math.floor(p / q) == math.trunc(p / q) == p // q
            assert math.ceil(p / q) == -(-p // q)
    assert math.floor((LARGEST * 4 - 1) / 4) != (LARGEST * 4 - 1) // 4  # the condition is needed


def test_canonical_forms():
    proved = 0
    for seed in range(300):
        t = tree(random.Random(seed).randrange, "ib"[seed % 2], 3, True)
        canonical = solver.build_or_none(t)
        if canonical is None:
            continue
        conditions = []
        answer = solver.refute(solver.of_tree(t, conditions) == solver.of_expr(canonical), conditions, 500)
        assert not isinstance(answer, z3.ModelRef), f"{t} became {build(t)}"
        proved += answer == z3.unsat
    assert proved >= 200
