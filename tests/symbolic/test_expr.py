"""Canonical forms: equal expressions are one object, and text shows what they became."""

import copy
import pickle

import pytest

from pliant.symbolic.expr import FALSE, ONE, TRUE, ZERO, Integer, Symbol, lit, scale, symbol, without
from pliant.symbolic.rules import extrema, floats, relations
from pliant.symbolic.traverse import evaluate, linear_coefficient, substitute

s0, s1, s2, f0 = symbol("s0"), symbol("s1"), symbol("s2"), symbol("f0", float)


@pytest.mark.parametrize(
    ("built", "text"),
    [
        (s0 + s1 - s0, "s1"),
        ((s0 + 1) * (s0 - 1), "s0*s0 - 1"),
        (s1 * s0 - s0 * s1, "0"),
        (s0 * 4 // 4, "s0"),
        (s0 * s1 * 64 // s1, "64*s0"),
        ((s0 * s1) % s1, "0"),
        ((8 * s0) % 8, "0"),
        ((s0 + 15) // 16 * 16, "16*((s0 + 15) // 16)"),
        ((s0 - 1) // 2 + 1, "(s0 + 1) // 2"),
        ((s0 + 2 * 1 - 3) // 2 + 1, "(s0 + 1) // 2"),
        (-(-s0 // 2), "(s0 + 1) // 2"),
        (s0 // 4 // 4, "s0 // 16"),
        ((s0 * s1 + s1) // s1, "s0 + 1"),
        ((s0 * s1 + s0) // (s1 + 1), "s0"),
        ((4 * s0 + 3) // 2, "2*s0 + 1"),
        ((4 * s0 + 2) % 8, "4*(s0 % 2) + 2"),
        ((s0 % 8) % 4, "s0 % 4"),
        ((s0 % 8) // 8, "0"),
        (s0 // -2, "-((s0 + 1) // 2)"),
        (s0 % 1, "0"),
        (extrema.maximum(s0, s0 + 1), "s0 + 1"),
        (extrema.minimum(extrema.minimum(s0, 3 * ONE), 5 * ONE), "min(3, s0)"),
        (s0.lt(s1), "s0 < s1"),
        ((2 * s0).le(7), "s0 <= 3"),
        ((2 * s0).eq(7), "False"),
        (s0.ge(2), "s0 >= 2"),
        ((s0 + 1).gt(s0), "True"),
        (s0.eq(s1 * 2), "s0 == 2*s1"),
        (s0.le(s1).not_(), "s1 < s0"),
        (relations.and_(s0.ge(2), s0.ge(2).not_()), "False"),
        (relations.select(TRUE, s0, s1), "s0"),
        (floats.to_int(lit(-2.5)), "-2"),
        (s0 / 2, "s0 / 2"),
        (f0 * 2 + 1, "f0 * 2.0 + 1.0"),
        (s0**2, "s0*s0"),
    ],
)
def test_canonical_form(built, text):
    assert str(built) == text


def test_equal_expressions_are_one_object():
    assert (s0 + 1) * 2 is 2 * s0 + 2
    assert (s0 + s1) * s2 is s2 * s1 + s2 * s0
    assert s0.lt(s1) is (s1 - s0).gt(0)
    assert Integer(3) is lit(3)
    assert lit(True) is TRUE is not lit(1)
    assert lit(0.0) is not lit(-0.0)


def test_copies_and_pickles_are_the_same_object():
    for e in (s0 // 3 + s1 * 2, s0.lt(s1), lit(float("nan")), floats.math_call("sqrt", s0), TRUE, f0 + 1):
        assert copy.deepcopy(e) is e
        assert pickle.loads(pickle.dumps(e)) is e


def test_truth_is_not_guessed():
    with pytest.raises(TypeError, match="shape environment"):
        bool(s0.eq(s1))


def test_division_by_the_constant_zero():
    with pytest.raises(ZeroDivisionError):
        s0 // 0
    with pytest.raises(ZeroDivisionError):
        s0 % 0


def test_long_products_stay_factored():
    e = ONE
    for i in range(12):
        e = e * (symbol(f"s{i}") + symbol(f"t{i}"))
    assert len(str(e)) < 2000
    assert evaluate(e, dict.fromkeys(e.free, 1)) == 2**12


def test_substitute_and_linear_coefficient():
    e = 3 * s0 * s1 + s0 + s1 // 2
    assert substitute(e, {s1: lit(4)}) is 13 * s0 + 2
    assert linear_coefficient(e, s0) is 3 * s1 + 1
    assert linear_coefficient(e, s1) is None
    assert linear_coefficient(e, s2) is ZERO
    assert e.drop(s0) is s1 // 2


def test_sums_without_a_term():
    n, m = symbol("s0"), symbol("s1")
    for const in (0, 3):
        e = 2 * n * m + n - 4 * m + const
        for mono, coef in e.terms:
            assert without(e, mono) is e - scale(mono, coef)
    assert without(n + 5, n) is Integer(5)
    assert without(n + m, n) is m
    assert without(n, n) is ZERO
    assert without(2 * n, m) is 2 * n


def test_atoms_can_be_replaced():
    assert substitute(s0 % 8 + s0, {s0 % 8: ZERO}) is s0


def test_symbols_sort_by_number():
    assert str(symbol("s10") + symbol("s2")) == "s2 + s10"


def test_not_a_number():
    nan = lit(float("nan"))
    assert nan.eq(nan) is FALSE
    assert nan.le(1.0).not_() is TRUE


def test_symbol_kinds_are_distinct():
    assert Symbol("a", int) is not Symbol("a", float)
    assert (Symbol("a", float) + 1).kind is float
