"""Errors of special functions against float64: at most twice eager's, over all floats and where the functions are used."""

import numpy as np
import pytest
import torch

import pliant

inf, nan = float("inf"), float("nan")
EDGES = [
    0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -0.5, 1.5, -2.5, 3.0, 20.5, -30.0, 1e-3, inf, -inf, nan, 1e-45, -1e-45, 1e-38,
    3.4e38, -3.4e38, 7.5e36, 0.9999999, 1.0000001, 5.9999995, 6.0, 3.9999998, 4.0, 1e10,
]  # fmt: skip
FUNCTIONS = {
    "digamma": torch.digamma,
    "trigamma": lambda x: torch.polygamma(1, x),
    "entr": torch.special.entr,
    "sinc": torch.sinc,
    "celu": lambda x: torch.celu(x, 1.75),
}
PAIRS = {"xlogy": torch.xlogy, "xlog1py": torch.special.xlog1py, "logaddexp": torch.logaddexp, "ldexp": torch.ldexp}


def samples() -> torch.Tensor:
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 50_000, dtype=np.uint32).view(np.float32)
    near = [rng.uniform(-w, w, 25_000).astype(np.float32) for w in (1.0, 5.0, 30.0)]
    return torch.from_numpy(np.concatenate([bits, *near, np.array(EDGES, dtype=np.float32)]))


def errors(found: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """In units in the last place; where sums cancel, of 1."""
    size = exact.abs().clamp(min=1.0 if bool((exact.abs() < 1e-3).any()) else 1.2e-38)
    return (found.double() - exact).abs()[exact.float().isfinite()] / (size * 2**-24)[exact.float().isfinite()]


def compare(function, *args: torch.Tensor) -> None:
    exact, eager = function(*[a.double() for a in args]), function(*args)
    found = pliant.compile(lambda *a: function(*a), dynamic=False)(*args)
    assert torch.equal(found.isnan(), eager.isnan())
    assert torch.equal(found.isinf() & (found > 0), eager.isinf() & (eager > 0))
    theirs, ours = errors(eager, exact).nan_to_num(0), errors(found, exact).nan_to_num(0)
    assert ours.max() <= 2 * theirs.max() + 1
    assert ours.mean() <= 1.5 * theirs.mean() + 0.1


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_error_of_a_function(name, sign):
    compare(FUNCTIONS[name], samples().abs() * sign)


@pytest.mark.parametrize("name", PAIRS)
def test_error_of_a_function_of_two(name):
    x = samples()
    a, b = torch.meshgrid(torch.tensor(EDGES), torch.tensor(EDGES), indexing="ij")
    compare(PAIRS[name], torch.cat([x, a.flatten()]), torch.cat([x.roll(4321), b.flatten()]))


def test_series_are_not_used_for_doubles():
    x = torch.rand(100, dtype=torch.float64) * 5
    assert torch.equal(pliant.compile(torch.digamma)(x), torch.digamma(x))
