"""Functions by tables: neither a division nor an `exp` in them, and the numbers are those of the functions."""

import math

import numpy as np
import pytest

from pliant.codegen import float_tables
from pliant.codegen.vectors import VECTOR_FUNCTIONS

TABLES = {"tanh": (float_tables._TANH, math.tanh), "erf": (float_tables._ERF, math.erf)}


@pytest.mark.parametrize("name", [*TABLES, "normal_cdf", "gelu_slope"])
def test_neither_divides_nor_calls(name):
    wide, other = VECTOR_FUNCTIONS[f"p_{name}v"].removeprefix("#if !P_PLAIN && P_L == 16\n").split("#else")
    assert "/" not in wide and "p_exp" not in wide
    assert f"P_INLINE p_vf p_{name}v(" in wide and f"P_INLINE p_vf p_{name}v(" in other


@pytest.mark.parametrize("name", TABLES)
def test_first_coefficients_are_values_at_centres(name):
    numbers, f = TABLES[name]
    rows = np.array([int(bits, 16) for bits in numbers.split()], dtype=np.uint32).view(np.float32).reshape(-1, 32)
    centres, first, slopes = rows[0], rows[1], rows[2]
    used = first > 0
    assert used.sum() > 20 and not first[~used].any()
    exact = np.array([f(c) for c in centres.tolist()])
    rounded = np.abs(first / np.where(used, exact, 1) - 1)[used]
    assert rounded.max() < 2**-24 and np.median(rounded) < 2**-33  # near 1 there are few floats to choose from
    apart = np.array([f(c + 1e-6) - f(c - 1e-6) for c in centres.tolist()]) / 2e-6
    assert np.abs(slopes - apart)[used].max() < 1e-6
