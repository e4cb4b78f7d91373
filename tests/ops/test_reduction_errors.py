"""Sums lose no more to rounding than eager's: rows and columns, long and short, with and without a vector form."""

import pytest

from ops.reduction_errors import REDUCTIONS, worse
from pliant import config

CASES = [
    ("cross entropy", (2049, 7)),
    ("selected rows", (2049, 7)),
    ("moments of columns", (1024, 300)),
    ("variance of rows", (300, 500)),
    ("mean", (40, 5000)),
]


@pytest.mark.parametrize(("name", "shape"), CASES, ids=str)
def test_errors_are_at_most_twice_eagers(name, shape):
    assert worse(REDUCTIONS[name], shape) == []


@pytest.mark.parametrize(("name", "shape"), [*CASES[:1], *CASES[3:]], ids=str)
def test_errors_of_fast_reductions(name, shape):
    with config.patch(numerics="fast"):
        assert worse(REDUCTIONS[name], shape) == []
