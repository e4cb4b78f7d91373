"""What one compilation knows: symbols, static answers, guards, what guards teach, and the errors that name a line."""

import math

import pytest
import torch

from pliant.errors import ConstraintError, DataDependentError
from pliant.symbolic import final_guards
from pliant.symbolic.bounds import Interval
from pliant.symbolic.expr import FALSE, TRUE, Integer, lit, symbol
from pliant.symbolic.facts import Facts
from pliant.symbolic.rules import division, extrema, relations
from pliant.symbolic.shape_env import ShapeEnv


@pytest.fixture
def env():
    return ShapeEnv()


def sizes(env, *hints):
    return [env.create_symbol(h, f"x.size({i})") for i, h in enumerate(hints)]


def texts(guards):
    return sorted(str(g) for g in guards)


def test_zero_one_and_duck_sizing(env):
    assert env.create_symbol(1, "a") is Integer(1)
    assert env.create_symbol(0, "b") is Integer(0)
    first, second = env.create_symbol(8, "c"), env.create_symbol(8, "d")
    assert first is second
    assert env.sources[first] == ["c", "d"]
    assert env.create_symbol(8, "e", duck=False) is not first
    assert str(env.create_symbol(-4, "f")) == "s2"


def test_without_specialization():
    env = ShapeEnv(duck_shape=False, specialize_zero_one=False)
    one = env.create_symbol(1, "a")
    assert not one.is_const
    assert env.bounds(one).lo == 0
    assert env.create_symbol(1, "b") is not one


ALWAYS = {
    "s0*s1 != 0": lambda a, b: (a * b).eq(0).not_(),
    "s0*4//4 == s0": lambda a, b: (a * 4 // 4).eq(a),
    "(s0*s1) % s1 == 0": lambda a, b: (a * b % b).eq(0),
    "s0*s1*64//s1 == 64*s0": lambda a, b: (a * b * 64 // b).eq(a * 64),
    "8*s0 % 8 == 0": lambda a, b: (8 * a % 8).eq(0),
    "s0 + 1 > s0": lambda a, b: (a + 1).gt(a),
    "max(1, s0) == s0": lambda a, b: extrema.maximum(Integer(1), a).eq(a),
    "s0//2 <= s0": lambda a, b: (a // 2).le(a),
    "s0//2 < s0": lambda a, b: (a // 2).lt(a),
    "s0//s1 <= s0": lambda a, b: (a // b).le(a),
    "s0 % s1 < s1": lambda a, b: (a % b).lt(b),
    "s0 - s0//2 > 0": lambda a, b: (a - a // 2).gt(0),
    "s0//2 + (s0 - s0//2) == s0": lambda a, b: (a // 2 + (a - a // 2)).eq(a),
    "(s0+15)//16*16 >= s0": lambda a, b: ((a + 15) // 16 * 16).ge(a),
    "(s0+15)//16*16 < s0+16": lambda a, b: ((a + 15) // 16 * 16).lt(a + 16),
    "padding is a remainder": lambda a, b: ((-a) % 16).le(15),
    "s0 + (-s0) % 16 is padded": lambda a, b: ((a + (-a) % 16) % 16).eq(0),
    "conv output >= 1": lambda a, b: ((a + 2 * 1 - 3) // 2 + 1).ge(1),
    "s0*s1 >= s0": lambda a, b: (a * b).ge(a),
    "s0*s1 >= s0 + s1": lambda a, b: (a * b).ge(a + b),
    "s0 != 1": lambda a, b: a.ne(1),
    "s0*s1 > 1": lambda a, b: (a * b).gt(1),
    "min(s0, s1) <= s0": lambda a, b: extrema.minimum(a, b).le(a),
    "max(s0, s1) >= min(s0, s1)": lambda a, b: extrema.maximum(a, b).ge(extrema.minimum(a, b)),
    "s0 - s0 % 16 == s0//16*16": lambda a, b: (a - a % 16).eq(a // 16 * 16),
    "s0 + s1 > 3": lambda a, b: (a + b).gt(3),
    "2*s0 != 2*s1 + 1": lambda a, b: (2 * a).ne(2 * b + 1),
    "clamped slice": lambda a, b: extrema.minimum(a // 2, a).eq(a // 2),
}


@pytest.mark.parametrize("name", ALWAYS)
def test_true_for_all_sizes(env, name):
    a, b = sizes(env, 8, 128)
    question = ALWAYS[name](a, b)
    assert env.statically_known(question) is True
    assert env.statically_known(question.not_()) is False
    assert env.evaluate(question) is True
    assert env.guards == []


def test_unknown_records_one_guard(env):
    a, b = sizes(env, 8, 128)
    assert env.statically_known(a.lt(b)) is None
    assert env.evaluate(a.lt(b)) is True
    assert env.evaluate((a + 1).le(b)) is True
    assert env.evaluate(a.ge(b)) is False
    assert env.evaluate(a.eq(b)) is False
    assert texts(env.guards) == ["s0 < s1"]
    assert env.guards[0].origin.function == "test_unknown_records_one_guard"


def test_bounds_are_learnt(env):
    (a,) = sizes(env, 8)
    assert env.evaluate(a.le(512)) is True
    assert env.statically_known((a * 2).le(1024)) is True
    assert env.statically_known((a // 8).le(64)) is True
    assert env.evaluate((a // 4).le(10)) is True  # a <= 43
    assert env.bounds(a).hi == 43


def test_equalities_are_solved(env):
    a, b, c = sizes(env, 8, 16, 128)
    assert env.evaluate((2 * a).eq(b)) is True
    assert env.simplify(b * 3) is 6 * a
    assert env.evaluate((a * b).eq(c)) is True
    assert env.simplify(c) is 2 * a * a
    assert env.expr_of(env.wrap(b)) is 2 * a
    assert len(env.guards) == 2
    assert env.specializations == []


def test_a_fixed_value_is_a_specialization(env):
    a, b = sizes(env, 8, 16)
    assert env.specialize(a) == 8
    assert env.simplify(a + b) is b + 8
    assert env.wrap(a * 2) == 16
    (record,) = env.specializations
    assert (record.symbol, record.value) == (a, 8)


def test_closing_a_range_fixes_the_value(env):
    (a,) = sizes(env, 2)
    assert env.evaluate(a.le(2)) is True
    assert env.simplify(a) is Integer(2)


def test_divisibility_is_learnt(env):
    a, b = sizes(env, 64, 5)
    assert env.evaluate((a % 8).eq(0)) is True
    assert env.simplify(a // 8 * 8) is a
    assert env.statically_known((a // 8 * 8 * b).eq(a * b)) is True
    assert env.simplify(a * b % 8) is Integer(0)
    assert env.simplify((a + 3) % 8) is Integer(3)
    assert env.statically_known((a // 8 * b * 8).ge(a)) is True
    assert len(env.guards) == 1


def test_symbolic_divisibility_is_learnt(env):
    a, b = sizes(env, 64, 8)
    assert env.evaluate((a % b).eq(0)) is True
    assert env.simplify(a // b * b) is a


def test_a_negative_divisor_may_leave_a_remainder():
    """`a % b` lies between b and 0 where b < 0, so that its upper bound says nothing."""
    facts, a, b = Facts(), symbol("s0"), symbol("s1")
    facts.set_range(a, Interval(1, 9))
    facts.set_range(b, Interval(-9, -1))
    assert facts.prove(facts.simplify((a // b * b).eq(a))) is None


def test_and_guards_each_part(env):
    a, b = sizes(env, 8, 16)
    assert env.evaluate(relations.and_(a.le(10), b.le(20))) is True
    assert env.statically_known(a.le(10)) is True
    assert texts(env.final_guards()) == ["s0 <= 10", "s0 >= 2", "s1 <= 20", "s1 >= 2"]


def test_final_guards_drop_what_others_imply(env):
    a, b = sizes(env, 8, 16)
    env.evaluate(a.le(512))
    env.evaluate(a.le(100))
    env.evaluate((2 * a).eq(b))
    assert texts(env.final_guards()) == ["s0 <= 100", "s0 >= 2", "s1 == 2*s0"] or texts(env.final_guards()) == [
        "2*s0 == s1",
        "s0 <= 100",
        "s0 >= 2",
    ]


def test_final_guards_are_reduced_once(env, monkeypatch):
    a, b = sizes(env, 8, 16)
    env.evaluate((a * 2).eq(b))
    env.final_guards().clear()  # a list of the caller's own
    found = texts(env.final_guards())
    monkeypatch.setattr(final_guards, "_not_implied_before", lambda guards: pytest.fail("again"))
    assert found and texts(env.final_guards()) == found


def test_final_guards_of_a_specialized_size(env):
    (a,) = sizes(env, 8)
    env.evaluate(a.gt(3))
    env.specialize(a)
    assert texts(env.final_guards()) == ["s0 == 8"]


def test_unbacked_needs_a_value(env):
    u = env.create_unbacked(origin="nonzero")
    with pytest.raises(DataDependentError, match=r"`u0 == 3` is needed; u0 is from nonzero") as caught:
        env.evaluate(u.eq(3))
    assert "torch._check(u != 3)" in str(caught.value)
    assert "test_unbacked_needs_a_value" in str(caught.value)
    assert env.evaluate(u.eq(3), fallback=False) is False
    assert env.guards == []


def test_runtime_asserts_teach(env):
    u = env.create_unbacked(lo=0)
    (a,) = sizes(env, 8)
    assert env.expect_true(u.le(a)) is True
    assert env.statically_known(u.le(a + 1)) is True
    assert env.expect_true((u % 4).eq(0)) is True
    assert env.simplify(u // 4 * 4) is u
    assert texts(env.runtime_asserts) == ["u0 % 4 == 0", "u0 <= s0"]
    assert env.guards == []


def test_a_check_that_cannot_hold(env):
    u = env.create_unbacked(lo=0, hi=10)
    assert env.expect_true(u.gt(10)) is False


def test_unbacked_equal_to_backed(env):
    u = env.create_unbacked(lo=0)
    (a,) = sizes(env, 8)
    env.expect_true(u.eq(a))
    assert env.simplify(u) is a
    assert env.hint(u * 2) == 16


def test_what_a_check_says_of_inputs_is_a_guard(env):
    u, least = env.create_unbacked(lo=0), env.create_unbacked(lo=0, hi=2)
    a, b, c = sizes(env, 8, 9, 2)
    assert env.expect_true(u.eq(a)) and env.guards == []
    assert env.expect_true(u.eq(b)) is False
    assert env.expect_true(least.eq(a)) is False
    assert env.expect_true(least.eq(c)) is True
    assert texts(env.guards) == ["s0 != 2", "s0 != s1", "s2 == 2"]
    assert texts(env.runtime_asserts) == ["s0 == u0", "s2 == u1"]


def test_size_oblivious_answers(env):
    u = env.create_unbacked(lo=0)
    assert env.hint(u) is None
    env.mark_size_like(u)
    assert env.evaluate(u.eq(1), size_oblivious=True) is False
    assert env.statically_known(u.eq(1)) is None


def test_marked_dynamic_refuses_a_fixed_size(env):
    a = env.create_symbol(8, "x.size(0)", must_stay_dynamic=True)
    with pytest.raises(ConstraintError, match=r"x\.size\(0\) \(s0\) was marked dynamic") as caught:
        env.specialize(a)
    assert "test_marked_dynamic_refuses_a_fixed_size" in str(caught.value)


def test_marked_range(env):
    a = env.create_symbol(8, "x.size(0)", lo=2, hi=64, must_stay_dynamic=True)
    assert env.evaluate(a.le(100)) is True
    assert env.guards == []
    with pytest.raises(ConstraintError, match=r"only for s0 in \[2, 32\]"):
        env.evaluate(a.le(32))
    with pytest.raises(ConstraintError, match="outside the range"):
        env.create_symbol(100, "y.size(0)", lo=2, hi=64, must_stay_dynamic=True)


def test_two_marked_sizes_may_be_equal(env):
    a = env.create_symbol(8, "x.size(0)", must_stay_dynamic=True)
    b = env.create_symbol(8, "y.size(0)", must_stay_dynamic=True)
    assert env.evaluate(a.eq(b)) is True
    assert env.evaluate(a.le(b)) is True
    assert texts(env.guards) == ["s0 == s1"]


def test_origin_callback(env):
    (a,) = sizes(env, 8)
    env.origin_callback = lambda: "model.py:3 in forward"
    env.evaluate(a.le(100))
    assert env.guards[0].origin == "model.py:3 in forward"


def test_wrap_and_back(env):
    a, _ = sizes(env, 8, 16)
    assert isinstance(env.wrap(a), torch.SymInt)
    assert env.wrap(a) is env.wrap(a)
    assert env.wrap(Integer(3)) == 3 and type(env.wrap(Integer(3))) is int
    assert isinstance(env.wrap(a / 2), torch.SymFloat)
    assert isinstance(env.wrap(a.lt(9)), torch.SymBool)
    for value in (3, 2.5, True):
        assert env.expr_of(value) is lit(value)
    assert env.expr_of(env.wrap(a) * 2) is 2 * a


def test_floats(env):
    f = env.create_symbol(0.5, "p", kind=float)
    assert str(f) == "z0"
    assert env.evaluate(f.lt(1.0)) is True
    assert env.evaluate(f.lt(1.0)) is True
    assert texts(env.final_guards()) == ["z0 < 1.0"]


def test_float_comparisons_of_sizes_are_static(env):
    (a,) = sizes(env, 8)
    assert env.statically_known(lit(0.0).le((a + 0.0) * 1.0)) is None  # float arithmetic is not analysed
    assert env.statically_known(lit(0.0).lt(a / 2)) is True
    assert env.statically_known((a / 2).lt(-1.0)) is False


def test_booleans(env):
    q = env.create_symbol(True, "flag", kind=bool)
    assert env.evaluate(q) is True
    assert env.simplify(q) is TRUE
    assert env.simplify(q.not_()) is FALSE


def test_no_size(env):
    n = env.create_symbol(5, "n", lo=-math.inf)
    assert env.statically_known(n.ge(0)) is None


def test_parts_of_a_conjunction_teach_each_other():
    """Else what a part solved for would be solved for again, in terms of itself."""
    facts, a, b = Facts(), symbol("s0"), symbol("s1")
    facts.learn((a + 2).eq(b // 16).and_((a + b).eq(3)))
    assert facts.simplify(a + b) is lit(3)


def test_halves_of_a_size_are_equal(env):
    """`a, b = x.chunk(2, -1); a * b`: what the product's guard says makes one size of both."""
    (n,) = sizes(env, 8)
    half = division.floordiv(n, Integer(2))
    assert env.evaluate(relations.eq(half, n - half))
    assert env.simplify(n - half) is half and env.simplify(half + half) is n
    assert env.simplify(n % Integer(2)) is Integer(0) and env.simplify(3 * n - half) is 5 * half
    m = env.create_symbol(4, "y.size(0)")
    assert env.simplify(m * n - m * half) is m * half
