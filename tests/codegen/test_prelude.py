"""Errors of the prelude's float functions against float64, in units in the last place, over the whole range."""

import ctypes
import platform

import numpy as np
import pytest
import scipy.special
import torch

from loop_programs import Program, get
from pliant import config
from pliant.codegen import prelude
from pliant.ir.scalar import apply
from pliant.runtime.compile_program import compile_program

EXACT = {
    "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10,
    "log1p": np.log1p, "tanh": np.tanh, "erf": scipy.special.erf, "sigmoid": scipy.special.expit,
    "sin": np.sin, "cos": np.cos, "lgamma": scipy.special.gammaln, "tan": np.tan,
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "erfc": scipy.special.erfc,
    "fast_exp": np.exp, "fast_tanh": np.tanh, "fast_erf": scipy.special.erf, "fast_sigmoid": scipy.special.expit,
}  # fmt: skip
LARGEST = {
    "exp": 1.13, "log": 1.07, "tanh": 1.13, "erf": 2.0, "sin": 1.2, "cos": 1.2, "lgamma": 1.64, "log1p": 1.19,
    "log2": 1.4, "log10": 1.4, "tan": 1.4, "asin": 1.3, "acos": 1.3, "atan": 1.3, "atan2": 1.9, "erfc": 3.0,
    "fast_exp": 2.1, "fast_tanh": 6.0, "fast_erf": 6.0, "fast_sigmoid": 4.0,
}  # fmt: skip
EDGES = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    np.inf,
    -np.inf,
    np.nan,
    1e-45,
    -1e-45,
    1e-38,
    88.7,
    88.73,
    -103.0,
    -104.5,
    3.4e38,
    -3.4e38,
]


def samples() -> np.ndarray:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint32).view(np.float32)
    near = [rng.uniform(-w, w, 50_000).astype(np.float32) for w in (1.5, 20.0, 110.0)]
    return np.concatenate([bits, *near, np.array(EDGES, dtype=np.float32)])


def errors_in_ulp(function, x: np.ndarray, found: np.ndarray) -> np.ndarray:
    """Against float64, in units in the last place of the rounded result; NaN and infinities are where they should be."""
    with np.errstate(all="ignore"):
        exact = function(x.astype(np.float64))
        expected = exact.astype(np.float32)
        assert (np.isnan(found) == np.isnan(expected)).all()
        assert (np.isinf(found) == np.isinf(expected)).all()
        ulp = np.spacing(np.maximum(np.abs(expected), np.float32(1.2e-38))).astype(np.float64)
        return np.where(np.isfinite(expected), np.abs(found - exact) / ulp, 0.0)


@pytest.fixture
def lanes_stay_together(monkeypatch):
    """Elements that are not neighbours are computed one by one, however dear that is."""
    monkeypatch.setattr("pliant.codegen.kernel_writer.DEAR", 1000)


@pytest.mark.spread(2, "step", "name")
@pytest.mark.parametrize("step", [1, 3])  # on vectors; one by one, where elements are not neighbours
@pytest.mark.parametrize("name", sorted(EXACT))
def test_error_is_a_few_ulp(name, step, lanes_stay_together):
    x = samples()
    if name == "fast_exp":
        x = x[~(x < -86.9)]  # 0 there
    if name.endswith("sigmoid"):
        x = x[~(x < -88.0)]  # exp(-x) overflows there: the result is 0 instead of a denormal, in eager too
    if name == "lgamma":  # of negative numbers the C library's
        x = np.concatenate([x[~(x < 0)], np.linspace(0, 5, 100_000, dtype=np.float32)])
    p = Program()
    a = p.tensor(len(x), strides=(step,))
    run = compile_program(p.done(p.pointwise((len(x),), lambda i: apply(name, get(a, i)))))
    assert (f"p_{name}v(" in run.source) == (step == 1)
    (got,) = run([torch.from_numpy(np.repeat(x, step))[::step]])
    found = got.numpy()
    error = errors_in_ulp(EXACT[name], x, found)
    assert error.max() <= LARGEST.get(name, 4.0)
    if name.removeprefix("fast_") in ("tanh", "erf"):  # what is added to 1, and multiplied by a large number, must be gone
        assert np.nanmax(np.abs(found)) == 1.0
        assert (np.abs(found[np.abs(x) > 10.0]) == 1.0).all()


@pytest.mark.parametrize("step", [1, 3])
def test_what_a_fast_exponential_gives_of_small_and_large_numbers(step, lanes_stay_together):
    small, near = [-86.95, -87.2, -87.5, -88.0, -100.0, -1e9, -3.4e38, -np.inf], [88.0, 88.4, 88.7, 88.72]
    large = [88.73, 89.0, 100.0, 1e9, 3.4e38, np.inf]
    x = torch.tensor([*small, *near, *large, np.nan] * 8)
    p = Program()
    a = p.tensor(len(x), strides=(step,))
    run = compile_program(p.done(p.pointwise((len(x),), lambda i: apply("fast_exp", get(a, i)))))
    found = run([x.repeat_interleave(step)[::step]])[0].view(8, -1)
    assert ((found[:, :8] == 0) | (found[:, :8] - x[:8].exp()).abs().lt(1e-44)).all()  # exact on vectors of 16 lanes
    assert (found[:, 5:8] == 0).all()
    torch.testing.assert_close(found[:, 8:12], x[8:12].expand(8, 4).exp(), rtol=3e-7, atol=0)
    assert (found[:, 12:-1] == np.inf).all() and found[:, -1].isnan().all()


def test_the_library_computes_the_logarithm_of_gamma_below_zero(lanes_stay_together):
    x = np.array([-0.0, -1e-45, -0.5, -1.0, -2.457, -2.5, -30.25, -1e10, -np.inf, 3.0] * 8, dtype=np.float32)
    p = Program()
    a = p.tensor(len(x))
    run = compile_program(p.done(p.pointwise((len(x),), lambda i: apply("lgamma", get(a, i)))))
    torch.testing.assert_close(run([torch.from_numpy(x)])[0], torch.lgamma(torch.from_numpy(x)))


@pytest.mark.parametrize("step", [1, 3])
def test_floats_next_to_each_other(step, lanes_stay_together):
    a, b = pairs()
    p = Program()
    x, y = p.tensor(len(a), strides=(step,)), p.tensor(len(a))
    run = compile_program(p.done(p.pointwise((len(a),), lambda i: apply("nextafter", get(x, i), get(y, i)))))
    found = run([a.repeat_interleave(step)[::step], b])[0]
    expected = torch.nextafter(a, b)
    assert torch.equal(found.isnan(), expected.isnan())
    assert torch.equal(found.view(torch.int32)[~found.isnan()], expected.view(torch.int32)[~found.isnan()])


def pairs() -> tuple[torch.Tensor, torch.Tensor]:
    """Dividends and divisors: of all sizes, with whole quotients, quotients too large for a lane, and edges."""
    rng = np.random.default_rng(0)
    edges = np.array([*EDGES, 0.5, -7.0], dtype=np.float32)
    bits = rng.integers(0, 2**32, (2, 50_000), dtype=np.uint32).view(np.float32)
    near = rng.uniform(-100, 100, 50_000), rng.uniform(-3, 3, 50_000)
    whole = rng.integers(-1000, 1000, 50_000) * np.float32(0.1), np.full(50_000, 0.1)
    large = rng.uniform(-3e7, 3e7, 50_000), rng.integers(-5, 6, 50_000)
    every = np.repeat(edges, len(edges)), np.tile(edges, len(edges))
    a, b = (np.concatenate([x.astype(np.float32) for x in side]) for side in zip(bits, near, whole, large, every))
    return torch.from_numpy(a), torch.from_numpy(b)


def test_square_roots_are_rounded_correctly():
    bits = np.random.default_rng(0).integers(0, 2**31, 400_000, dtype=np.uint32)
    mantissas = np.arange(2**16, dtype=np.uint32) * 256 + 0x3F800000
    squares = np.arange(4096, dtype=np.float32) ** 2
    around = np.concatenate([np.nextafter(squares, np.float32(end)) for end in (-np.inf, np.inf)])
    edges = np.tile(np.array([*EDGES, 2**-100, 2**-101], dtype=np.float32), 16)
    usual = [bits.view(np.float32), mantissas.view(np.float32), squares[1:], around[1:]]
    x = np.concatenate([*usual, edges])
    p = Program()
    a = p.tensor(len(x))
    run = compile_program(p.done(p.pointwise((len(x),), lambda i: apply("sqrt", get(a, i)))))
    assert "p_sqrtv(" in run.source
    with np.errstate(all="ignore"):
        expected = np.sqrt(x)
    found = run([torch.from_numpy(x)])[0].numpy()
    assert (np.isnan(found) == np.isnan(expected)).all()
    assert (found.view(np.int32) == expected.view(np.int32))[~np.isnan(expected)].all()


FLAGS = [("-march=native",), ("-march=native", "-DP_PLAIN=1"), ("-march=haswell",), ("-march=x86-64",)]


def options_with(flags: tuple[str, ...]) -> config.Config:
    if platform.machine() != "x86_64" and flags[0] != "-march=native":
        pytest.skip("for x86-64 processors")
    return config.get().with_options({"opt_flags": ("-O2", "-fno-math-errno", *flags)})


@pytest.mark.spread(2, "flags", "name")
@pytest.mark.parametrize("flags", FLAGS[1:], ids=str)
@pytest.mark.parametrize("name", ["acos", "asin", "atan", "erfc", "log2", "log10", "tan", "fast_exp", "fast_tanh", "fast_erf"])
def test_errors_are_small_on_other_processors(name, flags):
    x = np.concatenate([samples()[::5], np.array(EDGES, dtype=np.float32)])
    x = x[~(x < -86.9)] if name == "fast_exp" else x
    p = Program()
    a = p.tensor(len(x))
    run = compile_program(p.done(p.pointwise((len(x),), lambda i: apply(name, get(a, i)))), options_with(flags))
    fused = flags[0] != "-march=x86-64"
    found = run([torch.from_numpy(x)])[0].numpy()
    assert errors_in_ulp(EXACT[name], x, found).max() <= LARGEST[name] + (0 if fused else 2)


def angle_errors(found: torch.Tensor, y: torch.Tensor, x: torch.Tensor) -> np.ndarray:
    exact = np.arctan2(y.double().numpy(), x.double().numpy())
    assert np.array_equal(np.isnan(exact), np.isnan(found.numpy()))
    assert np.array_equal(np.signbit(exact[~np.isnan(exact)]), np.signbit(found.numpy()[~np.isnan(exact)]))
    expected = exact.astype(np.float32)
    ulp = np.spacing(np.maximum(np.abs(expected), np.float32(1.2e-38))).astype(np.float64)
    return np.where(np.isnan(exact), 0.0, np.abs(found.numpy() - exact) / ulp)


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_angles_of_two_numbers(flags, step, lanes_stay_together):
    y, x = pairs()
    p = Program()
    a, b = p.tensor(len(y), strides=(step,)), p.tensor(len(y))
    loops = p.pointwise((len(y),), lambda i: apply("atan2", get(a, i), get(b, i)))
    run = compile_program(p.done(loops), options_with(flags))
    assert ("p_atan2v(" in run.source) == (step == 1)
    found = run([y.repeat_interleave(step)[::step], x])[0]
    assert angle_errors(found, y, x).max() <= LARGEST["atan2"]


@pytest.mark.spread(2, "flags", "name")
@pytest.mark.parametrize("flags", FLAGS, ids=str)
@pytest.mark.parametrize("name", ["fmod", "remainder", "floordiv", "truncdiv"])
def test_remainders_are_the_same_on_vectors(name, flags, lanes_stay_together):
    a, b = pairs()
    options = options_with(flags)
    found = []
    for step in (1, 2):  # on vectors; one by one, where results are not neighbours
        p = Program()
        x, y = p.tensor(len(a), strides=(3,)) if step == 2 else p.tensor(len(a)), p.tensor(len(a))
        run = compile_program(p.done(p.pointwise((len(a),), lambda i: apply(name, get(x, i), get(y, i)))), options)
        assert (f"p_{name}v(" in run.source or "p_truncv(" in run.source) == (step == 1)
        given = a if step == 1 else a.repeat_interleave(3)[::3]
        found.append(run([given, b])[0].view(torch.int32))
    vectors, scalars = found
    assert ((vectors == scalars) | (vectors.view(torch.float32).isnan() & scalars.view(torch.float32).isnan())).all()


def powers() -> tuple[torch.Tensor, torch.Tensor]:
    """Bases and exponents: of all sizes, with results of all sizes, whole ones, and edges."""
    a, b = pairs()
    rng = np.random.default_rng(1)
    base = rng.integers(0, 2**31, 50_000, dtype=np.int32).view(np.float32)
    near = 1 + rng.normal(0, 1e-3, 50_000)
    with np.errstate(all="ignore"):
        fitting = np.nan_to_num(rng.uniform(-152, 130, 50_000) / np.log2(base.astype(np.float64)))
    whole = np.floor(rng.uniform(-20, 20, (2, 50_000)))
    more = [(base, fitting), (near, rng.normal(0, 3e4, 50_000)), (whole[0], whole[1])]
    exponents = [np.concatenate([one[k].astype(np.float32) for one in more]) for k in (0, 1)]
    a, b = torch.cat([a, torch.from_numpy(exponents[0])]), torch.cat([b, torch.from_numpy(exponents[1])])
    return a.nan_to_num(np.nan, np.inf, -np.inf), b  # the C library tells NaN that signal from others


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_powers(flags, step, lanes_stay_together):
    x, y = powers()
    p = Program()
    a, b = p.tensor(len(x), strides=(step,)), p.tensor(len(x))
    loops = p.pointwise((len(x),), lambda i: apply("pow", get(a, i), get(b, i)))
    run = compile_program(p.done(loops), options_with(flags))
    assert ("p_powv(" in run.source) == (step == 1)
    found = run([x.repeat_interleave(step)[::step], y])[0].numpy()
    with np.errstate(all="ignore"):
        exact = np.power(x.double().numpy(), y.double().numpy())
        expected = exact.astype(np.float32)
        fits = np.isfinite(expected)
        same = (found == expected) & (np.signbit(found) == np.signbit(expected)) | np.isnan(found) & np.isnan(expected)
        ours = step == 1 and flags[0] != "-march=x86-64"
        assert same[~fits | ours & (exact == expected)].all()  # what is a float is that
        ulp = np.spacing(np.maximum(np.abs(expected), np.float32(1.2e-38))).astype(np.float64)
        assert np.where(fits, np.abs(found - exact) / ulp, 0.0).max() <= (1.0 if ours else 4.0)


def test_only_what_is_used_is_written():
    p = Program()
    a = p.tensor(8)
    source = compile_program(p.done(p.pointwise((8,), lambda i: apply("neg", get(a, i))))).source
    assert "p_expf" not in source and "#include" not in source


def test_no_second_openmp_runtime():
    p = Program()
    a = p.tensor(8)
    compile_program(p.done(p.pointwise((8,), lambda i: apply("exp", get(a, i)))))([torch.randn(8)])
    with open("/proc/self/maps") as maps:
        loaded = {line.split()[-1] for line in maps if "libgomp" in line or "libiomp" in line}
    assert len(loaded) <= 1
    assert ctypes.CDLL(loaded.pop()).omp_get_max_threads() == torch.get_num_threads() if loaded else True


@pytest.mark.parametrize("name", ["fmod", "remainder", "floordiv", "nextafter"])
def test_functions_of_two_doubles_are_eagers(name):
    """To the bit: quotients of all sizes, edges, neighbours of zero."""
    a, b = (side.double() * 1.0000001 for side in pairs())
    p = Program()
    x, y = (p.tensor(len(a), dtype=torch.float64) for _ in range(2))
    run = compile_program(p.done(p.pointwise((len(a),), lambda i: apply(name, get(x, i), get(y, i)))), options_with(()))
    eager = {"floordiv": torch.floor_divide}.get(name) or getattr(torch, name)
    found, expected = run([a, b])[0], eager(a, b)
    same = (found.view(torch.int64) == expected.view(torch.int64)) | (found.isnan() & expected.isnan())
    assert same.all()


def test_functions_of_the_c_library_are_found_in_one_order():
    """A name that begins as another does is found whole, and the pattern does not depend on the hashes of strings."""
    names = prelude._NAMES.split("|")
    assert names == sorted(prelude._FUNCTIONS)
    for name in names:
        assert prelude._mentioned(f"{name}(x) + {name}f(y)") == [name, f"{name}f"]
