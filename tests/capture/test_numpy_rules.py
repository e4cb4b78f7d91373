"""Functions of NumPy of which PyTorch's of the same name compute something else: compiled, they are NumPy's."""

import numpy as np
import pytest
import torch

import pliant

SMALL = np.array([-128, -100, 3, 0, 5, 127], np.int8)
BYTES = np.array([0, 1, 3, 200, 255], np.uint8)
WHOLE = np.array([-7, 2, 15, 0], np.int64)
SINGLE = np.array([1.5, -1.5, 2.5, -0.5, -0.0, 0.0, np.nan, -np.inf, np.inf], np.float32)
DOUBLE = np.array([1.5, -8.0, 2.5, -0.0, 64.0])
ARRAYS = {"int8": SMALL, "uint8": BYTES, "int64": WHOLE, "float32": SINGLE, "float64": DOUBLE}

EXPRESSIONS = (
    "np.fix(a)", "np.cbrt(a)", "np.modf(a)", "np.sign(a)", "np.round(a, -1)", "a.round(-1)", "np.unique(a)",
    "np.searchsorted(np.sort(a), a)", "np.searchsorted(np.sort(a), a, side='right')",
    "a.clip(-1000, 1000)", "a.clip(min=-1000, max=50)", "a.clip(300)", "a.clip(max=-300)", "np.clip(a, -5, 5)",
    "a ** 0.5", "a ** -0.5", "a ** 2", "a ** -1", "2 ** a", "a ** a", "np.power(2, a)", "np.power(a, 0.5)", "2.5 ** a",
    "a % -2", "a % 2.5", "2.5 % a", "np.mod(a, -3)", "np.remainder(a, 2.5)", "divmod(a, 2)", "np.fft.ifft(a)",
    "np.conj(np.fft.fft(a))", "a.conjugate()", "np.fft.fft(a).conjugate()", "np.cumsum(-0.0 * np.abs(a))", "np.add.accumulate(-0.0 * np.abs(a))",
    "np.cumsum(-0.0 * np.abs(a), dtype=np.float32)", "np.cumsum(a)",
    "np.pad(a, 2)", "np.pad(a, (1, 0), constant_values=3)", "np.pad(a, ((2, 1),), 'constant', constant_values=-1.5)",
    "np.pad(a, -1)", "np.pad(a[None], ((0, 0), (2, 1)))", "np.pad(a[None], [(1,), (2,)])", "np.tile(a, 2)", "np.tile(a, (2, 1))",
    "np.interp(a, [-1.0, 0.5, 2.0], [3.0, -1.0, 4.0])", "np.interp(a, [-1.0, 0.5, 0.5], [3.0, -np.inf, np.inf])",
    "np.interp(a, np.sort(np.abs(a)), a)", "np.interp(a, [2.0], [1.0])", "np.interp(0.3, np.arange(3), a[:3])",
    "np.linspace(-1, 3.5, len(a)) + a",
)  # fmt: skip


def outcome(function, array):
    with np.errstate(all="ignore"):
        try:
            found = function(array.copy())
        except Exception as error:
            return type(error), str(error)
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.spread(2, "array", "expression")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("array", ARRAYS.values(), ids=ARRAYS)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_values_are_those_of_numpy(expression, array):
    program = eval(f"lambda a: {expression}", {"np": np})
    expected = outcome(program, array)
    found = outcome(pliant.compile(program, backend="eager"), array)
    if isinstance(expected[0], type):
        assert found == expected
        return
    for got, want in zip(found, expected, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        if want.dtype.kind == "f":
            known = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got[known]), np.signbit(want[known]))


@pytest.mark.parametrize(
    "expression", ["np.sign(a)", "np.fix(a)", "a.clip(-1000, 1000)", "a ** 2", "a ** 0.5", "a % 2.5", "np.fft.ifft(a)"]
)
def test_no_break_is_needed(expression):
    program = eval(f"lambda a: {expression}", {"np": np})
    pliant.reset()
    pliant.compile(program, backend="eager")(np.array([1.5, 4.0]))
    assert not pliant.stats()["graph_breaks"]


def test_a_power_that_varies_is_refused_when_it_is_negative():
    compiled = pliant.compile(lambda a, n: a**n, backend="eager")
    for n in (2, 3, 4):
        np.testing.assert_array_equal(compiled(WHOLE, n), WHOLE**n)
    with pytest.raises(ValueError, match="negative integer powers"):
        compiled(WHOLE, -1)


FLOAT_ERRORS = {
    "array / 0": lambda x, a, v: (x, a / 0.0),
    "log of an array": lambda x, a, v: (x, np.log(a - a)),
    "root of an array": lambda x, a, v: (x, np.sqrt(-a)),
    "power": lambda x, a, v: (x, a ** (1000.0 * a)),
    "scalar / 0": lambda x, a, v: (x, np.float64(v) / 0),
    "number / scalar": lambda x, a, v: (x, v / np.float64(v - v)),
    "log of a number": lambda x, a, v: (x, np.log(v - v)),
    "function of numbers": lambda x, a, v: (x, np.divide(v, 0)),
    "too large": lambda x, a, v: (x, np.exp(np.float64(v) * 1000)),
    "too large for float32": lambda x, a, v: (x, np.float32(1e38) * np.float32(v) * 10),
    "of a constant": lambda x, a, v: (x, np.log(np.zeros(2))),
    "mean of nothing": lambda x, a, v: (x, np.divide(np.float32(0), np.float32(0))),
}


@pytest.mark.parametrize("name", FLOAT_ERRORS)
def test_float_errors_are_raised_where_numpy_is_told_to(name):
    function = FLOAT_ERRORS[name]
    compiled = pliant.compile(function, backend="eager")
    given = torch.ones(2), np.array([2.0, 3.0])

    def outcome(called, number, **states):
        with np.errstate(**states):
            try:
                return str(called(*given, number))
            except FloatingPointError as error:
                return str(error)

    for number in (2.0, 3.0, 4.0):
        assert outcome(compiled, number, all="ignore") == outcome(function, number, all="ignore")
    for number in (2.0, 5.0):
        assert outcome(compiled, number, all="raise") == outcome(function, number, all="raise")
    told = []
    for called in (function, compiled):
        with np.errstate(all="call", call=lambda *about: told.append(about)):
            called(*given, 2.0)
    assert told[: len(told) // 2] == told[len(told) // 2 :] != []
    assert outcome(compiled, 2.0, all="ignore") == outcome(function, 2.0, all="ignore")


COUNTS = (
    "np.roll(a, k)", "np.roll(a, k, axis=0)", "np.repeat(a, k)", "np.pad(a, (0, k))", "np.pad(a[None], ((0, 0), (k, 1)))",
    "np.linspace(0, 1, k)", "np.clip(a, -k, k)", "np.tile(a, k)", "np.tile(a, (k, 1))", "np.maximum(a, k)", "np.add(a, k)",
    "np.where(a > 0, a, k)", "np.full_like(a, k)", "np.power(a, k)", "np.append(a, k)", "np.isclose(a, k)",
    "np.interp(a, np.arange(3.0), np.arange(3.0) * k)",
)  # fmt: skip


@pytest.mark.parametrize("expression", COUNTS)
def test_numbers_beside_arrays_are_not_fixed(expression):
    pliant.reset()
    program = eval(f"lambda a, k: {expression}", {"np": np})
    compiled = pliant.compile(program, fullgraph=True)
    for k in (4, 5, 6, 7):
        array = np.linspace(-4, 9, 8)
        found, expected = compiled(array, k), program(array, k)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert pliant.stats()["graphs"] == 2


def test_arrays_of_any_class_are_the_arrays_themselves():
    def program(x, tensor):
        same = np.asanyarray(x)
        same[0] = 5
        return same is x, np.asanyarray(tensor * 2) + same, np.asanyarray(x, dtype=np.float32), np.asanyarray((1, 2))

    pliant.reset()
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for n in (2, 3):
        mine, theirs = (one(np.arange(n) / 2, torch.ones(n)) for one in (compiled, program))
        assert mine[0] is theirs[0] is True
        for found, wanted in zip(mine[1:], theirs[1:], strict=True):
            assert found.dtype == wanted.dtype and np.array_equal(found, wanted)
    matrix = np.arange(2.0).view(np.matrix)
    assert type(pliant.compile(lambda: np.asanyarray(matrix), backend="eager")()) is np.matrix
