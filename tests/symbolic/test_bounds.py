"""Value ranges of every kind of node; random ones are in `test_properties.py`."""

import math

import pytest

from pliant.symbolic.bounds import ALL, INF, Interval, bounds
from pliant.symbolic.expr import symbol
from pliant.symbolic.rules import extrema, floats, powers, relations

s, n, any_int, f = symbol("s0"), symbol("n"), symbol("i"), symbol("f0", float)
RANGES = {s: Interval(2, INF), n: Interval(-3, 5), f: Interval(0.5, 2.0)}


@pytest.mark.parametrize(
    ("e", "lo", "hi"),
    [
        (s + n, -1, INF),
        (s * s, 4, INF),
        (n * n, 0, 25),
        (n * s, -INF, INF),
        (3 - n, -2, 6),
        (n // 2, -2, 2),
        (n // -2, -3, 1),
        (100 // s, 0, 50),
        (any_int % 8, 0, 7),
        (n % s, 0, INF),
        (extrema.minimum(s, n), -3, 5),
        (extrema.maximum(s, n), 2, INF),
        (powers.bit_and(s, any_int), 0, INF),
        (floats.floor(f), 0, 2),
        (floats.to_float(n), -3.0, 5.0),
        (floats.math_call("sqrt", s), math.sqrt(2), INF),
        (f + 1.0, 1.5, 3.0),
        (s.ge(1), 1, 1),
        (s.lt(2), 0, 0),
        (s.eq(7), 0, 1),
        (f.lt(0.25), 0, 0),
        (relations.select(s.ge(1), n, s), -3, 5),
        (s ** symbol("e"), 1, INF),
        (any_int, -INF, INF),
    ],
)
def test_range(e, lo, hi):
    assert bounds(e, RANGES.get) == Interval(lo, hi)


def test_a_float_comparison_is_never_true_by_range_alone():
    """The float might be NaN."""
    assert bounds(f.le(100.0), RANGES.get) == Interval(0, 1)
    assert bounds(symbol("g", float), RANGES.get) == ALL


def test_huge_numbers_become_infinite():
    assert bounds(s**16 * 2**300, {s: Interval(0, 2**63)}.get).hi == INF
