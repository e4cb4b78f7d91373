"""Numbers that vary are one graph for all values, or one for a range of them: what NumPy and Python compute of them is the same."""

import math

import pytest
import torch

import pliant

np = pytest.importorskip("numpy")

INTS = [5, 7, 9, 11, 14, 20]
FLOATS = [5.5, 7.1, 9.2, 11.3, 14.6, 20.5]
SIGNED = [5.5, -7.1, 9.0, -11.3, 0.25, -20.5]
NUMPY_INTS = [np.int64(n) for n in INTS]
NUMPY_FLOATS = [np.float64(n) for n in SIGNED]

# The values, the function, and how many graphs: one for the first value, one for the rest, and more where it branches.
CASES = {
    "float-floordiv": (SIGNED, lambda s: s // 2, 2),
    "float-floordiv-float": (SIGNED, lambda s: s // 0.3, 2),
    "float-floordiv-negative": (SIGNED, lambda s: s // -0.7, 2),
    "float-divided": (SIGNED, lambda s: 3.5 // s, 2),
    "float-divmod": (SIGNED, lambda s: sum(divmod(s, 0.7)), 2),
    "float-is-integer": (FLOATS, lambda s: s.is_integer(), 2),
    "int-bit-length": ([5, 7, 4, 6, 5, 7], lambda s: s.bit_length(), 2),
    "numpy-int-floordiv": (NUMPY_INTS, lambda s: s // 2, 2),
    "numpy-int-power": (NUMPY_INTS, lambda s: s**2, 2),
    "numpy-int-round": (NUMPY_INTS, round, 2),
    "numpy-float-floordiv": (NUMPY_FLOATS, lambda s: s // 2, 2),
    "numpy-float-mod": (NUMPY_FLOATS, lambda s: s % 0.7, 2),
    "numpy-float-round": (NUMPY_FLOATS, round, 2),
    "numpy-maximum": (FLOATS, lambda s: np.maximum(s, 4), 2),
    "numpy-maximum-both": (INTS, lambda s: float(np.maximum(s, 10)), 3),
    "numpy-minimum": (NUMPY_INTS, lambda s: np.minimum(s, 40), 2),
    "numpy-clip": (INTS, lambda s: float(np.clip(s, 4, 100)), 2),
    "numpy-abs": (SIGNED, lambda s: float(np.abs(s)), 3),
    "numpy-floor": (SIGNED, lambda s: float(np.floor(s)), 3),
    "numpy-ceil": (SIGNED, lambda s: float(np.ceil(s)), 3),
    "numpy-sign": (SIGNED, lambda s: float(np.sign(s)), 3),
    "numpy-int64": (INTS, lambda s: int(np.int64(s)) + 1, 2),
    "numpy-float64": (FLOATS, lambda s: float(np.float64(s) + 1), 2),
    "get": (INTS, lambda s: {3: 1}.get(s, 0) + 1, 2),
    "get-itself": (INTS, lambda s: {3: 1, 64: 2}.get(s, s), 2),
    "get-none": (INTS, lambda s: 1 if {"a": 1}.get(s) is None else 2, 2),
    "get-found": ([5, 3, 7, 3, 9, 11], lambda s: {3: 1}.get(s, 0) + 1, 3),
    "in-a-tuple": (INTS, lambda s: 2 if s in (3, 4) else 1, 2),
    "in-a-list": ([5, 3, 7, 4, 9, 3], lambda s: 2 if s in [3, 4] else 1, 4),
    "zero-in-sizes": (INTS, lambda s: 2 if 0 in torch.ones(s, 2).shape else 1, 2),
    "among-numbers": ([5, 6, 7, 4, 9, 3], lambda s: 2 if 4 in [s, s // 2, 100] else 1, 5),
    "not-among-mixed": (INTS, lambda s: 2 if "a" not in (s, None, "b") else 1, 2),
    "none-among": (INTS, lambda s: 2 if None in (s, None) else 1, 2),
    "true-among": ([5, 7, 1, 9, 11, 14], lambda s: 2 if True in (s, s + 5) else 1, 3),
    "among-floats": ([5, 7, 8, 9, 11, 14], lambda s: 2 if 8.0 in (s, 0.5) else 1, 4),
    "in-a-range": (INTS, lambda s: 2 if s in range(1, 100) else 1, 2),
    "in-a-range-of-steps": ([5, 7, 6, 8, 105, 4], lambda s: 2 if s in range(99, 1, -2) else 1, 5),
    "in-no-range": (INTS, lambda s: 2 if s in range(3, 3) else 1, 2),
    "elements": (INTS, lambda s: torch.ones(s, 2, 3).shape.numel(), 2),
    "decay-by-a-count": ([5, 7, 9, 20, 400, 90_000], lambda s: 1 - 0.9**s, 2),
    "decay-by-a-float": ([5.5, 7.5, 90.5, 4e9, 0.5], lambda s: math.pow(0.999, s), 2),
    "zero-by-a-count": ([5, 7, 9, 20, 400, 0, -0.5], lambda s: 2 if s < 0 else 2.0 - math.pow(0, s) - 0.0**s + -0.0**s, 4),
    "growth-by-a-count": ([5, 7, 9, 20, 400], lambda s: 1.5**s, 2),
    "powers-of-a-float": (FLOATS, lambda s: s**2.5 + s**-40 + s**0.0, 2),
    "in-mixed": (INTS, lambda s: 2 if s in (None, "a", 3.0) else 1, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_a_number_that_varies(name):
    values, compute, graphs = CASES[name]

    def f(x, s):
        return x * compute(s), compute(s)

    pliant.reset()
    compiled, x = pliant.compile(f), torch.ones(4, dtype=torch.float64)
    for value in values:
        (y, number), (expected, told) = compiled(x, value), f(x, value)
        assert type(number) is type(told)
        assert number == told
        assert math.copysign(1, number) == math.copysign(1, told)
        assert torch.equal(y, expected)
    assert 1 <= pliant.stats()["graphs"] <= graphs
    assert not pliant.stats()["graph_breaks"]
    assert not pliant.stats()["fallbacks"]


@pytest.mark.parametrize("divide", [lambda a, b: a // b, lambda a, b: sum(divmod(a, b))])
def test_quotients_of_floats_are_pythons(divide):
    def f(x, a, b):
        return x + 1, divide(a, b)

    compiled, x = pliant.compile(f), torch.ones(1)
    pairs = [(1.0, 0.1), (6.0, 0.1), (-1e-300, 5.0), (0.0, -5.0), (-0.0, 5.0), (1e300, 1e-10), (7.0, -0.0625), (1e17, 3.0)]
    for a, b in pairs * 2:
        found, expected = compiled(x, a, b)[1], divide(a, b)
        assert (found, math.copysign(1, found)) == (expected, math.copysign(1, expected)), (a, b)


def test_an_item_at_a_size_makes_few_graphs():
    def f(x, items):
        return x * items[len(items) // 2]

    pliant.reset()
    compiled, x = pliant.compile(f), torch.ones(2)
    for count in range(3, 30, 2):
        items = [float(n) for n in range(count)]
        assert torch.equal(compiled(x, items), f(x, items))
    assert not pliant.stats()["recompile_limits"]
    assert not pliant.stats()["fallbacks"]


INFINITE, NO_NUMBER = math.inf, math.nan
HARD = [2.5, 3.5, -2.5, -0.4, 0.4, NO_NUMBER, INFINITE, -INFINITE, -0.0, 0.0, 1e300, 0.5, -7.0, 2.0**53 + 2]
OF_HARD = {
    "floor": np.floor,
    "ceil": np.ceil,
    "rint": np.rint,
    "sign": np.sign,
    "maximum of no number": lambda s: np.maximum(s, NO_NUMBER),
    "maximum of zeros": lambda s: np.maximum(s, 0.0),
    "minimum of zeros": lambda s: np.minimum(s, -0.0),
    "clip by no number": lambda s: np.clip(s, NO_NUMBER, 1.0),
    "quotient": lambda s: s // 2.0,
    "quotient by infinity": lambda s: s // INFINITE,
    "quotient by a negative infinity": lambda s: divmod(s, -INFINITE)[0],
    "numpy's quotient by infinity": lambda s: np.float64(s) // INFINITE,
    "numpy's remainder": lambda s: np.float64(s) % 0.1,
    "numpy's negative remainder": lambda s: np.float64(s) % -0.1,
    "numpy's reciprocal": lambda s: np.float64(0.3) // s,
}


@pytest.mark.spread(2, "values", "name")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("values", [HARD, HARD[::-1]], ids=["forth", "back"])
@pytest.mark.parametrize("name", OF_HARD)
@pytest.mark.fallbacks_expected  # more special numbers than entries
def test_zeros_have_their_sign_and_no_numbers_stay_that(name, values):
    compute = OF_HARD[name]

    def f(x, s):
        found = compute(s)
        return x * float(found), found

    compiled, x = pliant.compile(f), torch.ones(2, dtype=torch.float64)
    for value in values:
        (y, found), (expected, told) = compiled(x, value), f(x, value)
        assert type(found) is type(told)
        assert np.array_equal(found, told, equal_nan=True) and math.copysign(1, found) == math.copysign(1, told), value
        torch.testing.assert_close(y, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("number", [-INFINITE, INFINITE, NO_NUMBER, -0.5])
def test_a_float_divided_by_an_infinite_one(number):
    def f(x, s):
        return x + 1, 2.0 // s

    compiled, x = pliant.compile(f), torch.ones(2)
    for value in (2.5, 3.5, number):
        assert np.array_equal(compiled(x, value)[1], 2.0 // value, equal_nan=True)
