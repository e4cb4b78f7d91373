"""Operators whose results' sizes come from symbols: one graph for all sizes, the same as eager."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events

SIZES = [(2, 3, 8, 11), (4, 3, 10, 12), (5, 3, 9, 7)]

PROGRAMS = {
    "interpolate to a size": lambda x: F.interpolate(x, size=(16, 5), mode="bilinear", align_corners=False),
    "interpolate to another's size": lambda x: F.interpolate(x[:, :, ::2], size=x.shape[2:], mode="bicubic"),
    "interpolate by a factor": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "interpolate by a fraction": lambda x: F.interpolate(x, scale_factor=1.5, recompute_scale_factor=True),
    "interpolate exactly": lambda x: F.interpolate(x, scale_factor=2.0, mode="nearest-exact"),
    "interpolate smoothly": lambda x: F.interpolate(x, size=(7, 9), mode="bilinear", antialias=True),
    "interpolate by area": lambda x: F.interpolate(x, size=(4, 4), mode="area"),
    "interpolate lines": lambda x: F.interpolate(x.flatten(2), scale_factor=2, mode="linear"),
    "interpolate volumes": lambda x: F.interpolate(x[:, None], scale_factor=2, mode="trilinear"),
    "pool to a size": lambda x: F.adaptive_avg_pool2d(x, (3, 5)) + F.adaptive_max_pool2d(x, (3, 5)),
    "count down in floats": lambda x: torch.arange(x.shape[2], -1, -1.0) + x.sum(),
    "count by halves": lambda x: torch.arange(0, x.shape[2], 0.5) + x.sum(),
    "count down in integers": lambda x: torch.arange(x.shape[2], -x.shape[3], -3.0, dtype=torch.int64) * x.mean(),
    "columns and back": lambda x: F.fold(F.unfold(x, 3, padding=1), x.shape[2:], 3, padding=1),
    "pad to a multiple": lambda x: F.pad(x, (0, (8 - x.shape[3] % 8) % 8)),
    "transform": lambda x: torch.fft.irfft2(torch.fft.rfft2(x), s=x.shape[2:]),
    "short-time transform": lambda x: torch.stft(
        x.flatten(1), 16, return_complex=True, window=torch.hann_window(16)
    ).abs(),
    "inverse": lambda x: torch.linalg.inv(x.flatten(1) @ x.flatten(1).T + torch.eye(x.shape[0])),
    "chunks": lambda x: torch.cat([c * 2 for c in x.chunk(3, 2)], 2),
    "least squares": lambda x: torch.linalg.lstsq(x.flatten(0, 2), x.flatten(0, 2)).solution,
    "grid": lambda x: torch.stack(torch.meshgrid(torch.arange(x.shape[2]), torch.arange(x.shape[3]), indexing="ij")),
    "roll": lambda x: torch.roll(x, (1, 2), (2, 3)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_for_all_sizes(name):
    pliant.reset()
    program = PROGRAMS[name]
    compiled = pliant.compile(program, fullgraph=True, dynamic=True)
    for size in SIZES:
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), program(x), rtol=1e-5, atol=1e-4)  # some add sums of thousands
    assert pliant.stats()["recompiles"] == 0


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name.startswith("interpolate")])
def test_interpolation_is_trained_by_its_own_derivative(name):
    program = PROGRAMS[name]
    compiled = pliant.compile(program, fullgraph=True, dynamic=True)
    with events.collect("joint") as found:
        for size in SIZES:
            x = torch.randn(size, requires_grad=True)
            torch.testing.assert_close(*(torch.autograd.grad(f(x).sin().sum(), x)[0] for f in (compiled, program)))
    assert "index_put" not in found[0].fields["text"]


SPECIALIZING = {
    "a composition in C++ that reads sizes": lambda x: torch.kron(x[0, 0], x[0, 1]),
    "derivatives that read sizes": lambda x: torch.sgn(x.to(torch.complex64)).abs(),
    "an operator without a rule for symbols": lambda x: x * torch.linalg.pinv(x[0, 0].detach()).sum(),
    "a rule that resizes": lambda x: torch.linalg.solve_triangular(torch.eye(x.shape[2]), x, upper=True),
}


@pytest.mark.parametrize("name", SPECIALIZING)
def test_what_needs_numbers_is_specialized_and_stays_whole(name):
    program = SPECIALIZING[name]
    compiled = pliant.compile(program, fullgraph=True, dynamic=True)
    for size in SIZES:
        x = torch.randn(size, requires_grad=True)
        mine, expected = compiled(x), program(x)
        torch.testing.assert_close(mine, expected)
        torch.testing.assert_close(*(torch.autograd.grad(y.sum(), x) for y in (mine, expected)))


@pytest.mark.parametrize("bound", [0.5, 0.75, 2.0])
def test_parameters_of_activations_are_symbols(bound):
    program = lambda x, b: F.hardtanh(x, -b, b) + F.softplus(x, b) + F.threshold(x, b, 0.0)  # noqa: E731
    x = torch.randn(4, 5)
    torch.testing.assert_close(pliant.compile(program, dynamic=True)(x, bound), program(x, bound))


def test_a_size_of_minus_one_is_what_fits():
    program = lambda x, n: (x.view(n, 2), x.reshape(2, n), x[:1].expand(4, n))  # noqa: E731
    compiled = pliant.compile(program, dynamic=True, fullgraph=True)
    for x, n in ((torch.randn(4, 6), -1), (torch.randn(2, 8), -1)):
        torch.testing.assert_close(compiled(x, n), program(x, n))


def test_results_that_are_reshaped_in_place_after_a_write():
    x = torch.randn(3, 5)
    torch.testing.assert_close(pliant.compile(torch.quantile)(x, 0.37), torch.quantile(x, 0.37))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", ["inv", "cholesky"])
def test_what_cannot_be_factored_is_the_error_of_eager(name, dynamic):
    program = getattr(torch.linalg, name)
    compiled = pliant.compile(program, fullgraph=True, dynamic=dynamic)
    with pytest.raises(torch.linalg.LinAlgError):
        compiled(-torch.zeros(3, 3))
    torch.testing.assert_close(compiled(torch.eye(3)), torch.eye(3))


def test_a_named_result_crosses_a_break():
    def program(x):
        largest = x.max(1)
        pliant.graph_break()
        return largest, largest.values * 2

    x = torch.randn(3, 4)
    (largest, doubled), expected = pliant.compile(program)(x), program(x)
    assert type(largest) is torch.return_types.max
    torch.testing.assert_close((largest, doubled), expected)
