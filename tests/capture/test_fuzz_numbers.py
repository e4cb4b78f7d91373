"""A few random programs of arithmetic, and the smallest on which they once disagreed with Python."""

import pytest
from tests.capture.fuzz_numbers import disagreement, first_difference

import pliant

FOUND = (
    "2.5 | n ;; f & m ;; f ^ 1 ;; f << 1 ;; n >> 2.5 ;; min(f, -n) ^ n",  # floats have no bits
    "(f <= flag) | (7 << n) ;; (n > 2) ^ (m > 2) ;; (n > 2) ^ m ;; (n > 2) | (m ** 0.5)",  # a truth is 0 or 1 among ints
    "-(n > 2) ;; ~(n > 2) ;; +(n > 2) ;; (n > 2) < m ;; (n > 2) >= 0.5 ;; (n > 2) << n ;; (n > 2) / 2",
    "n // (m > 2) ;; divmod(n > 2, m) ;; math.log2(n > 2) ;; math.sqrt(n > 2) ;; (n > 2) ** m ;; (n > 2) * 1j",
    "divmod(f, n) ;; divmod(n, f) ;; divmod(n, m - 2) ;; divmod(n, (1,)) ;; divmod(None, f) ;; divmod(divmod(7, f), n)",
    "(m >= m) // (f / n) ;; (7 if (3 - n) % (n - rows) else 8) ;; (f // n) // (2.5 // m)",  # guards that divide by zero
)


@pytest.mark.parametrize("expressions", FOUND)
@pytest.mark.parametrize("dynamic", [True, None])
def test_expressions_that_differed(expressions, dynamic):
    with pliant.config.patch(strict=True):
        assert first_difference(expressions.split(" ;; "), dynamic) == ""


@pytest.mark.parametrize("seed", [3, 8])
def test_random_arithmetic(seed):
    with pliant.config.patch(strict=True):
        assert disagreement(seed) == ""
