"""Gradients through complex numbers: formulas conjugate without a view that is read lazily."""

import pytest
import torch

import pliant

PROGRAMS = {
    "product": lambda a, b: a * b,
    "matrix product": lambda a, b: a @ b.t(),
    "spectrum": lambda a, b: torch.fft.irfft(torch.fft.rfft(a.real) * torch.fft.rfft(b.imag)),
    "polar": lambda a, b: torch.view_as_real(a * torch.polar(b.real, b.imag)),
    "absolute": lambda a, b: (a / (b + 3)).abs(),
    "einsum": lambda a, b: torch.einsum("ij,kj->ik", a, b),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_eagers(name):
    program = PROGRAMS[name]
    pliant.reset()
    compiled = pliant.compile(program, fullgraph=True)
    for rows in (3, 5):
        generator = torch.Generator().manual_seed(rows)
        a, b = (torch.randn(rows, 4, dtype=torch.cdouble, generator=generator, requires_grad=True) for _ in range(2))
        expected, found = (torch.autograd.grad(f(a, b).abs().square().sum(), (a, b)) for f in (program, compiled))
        torch.testing.assert_close(found, expected)
    assert pliant.stats()["fallbacks"] == 0
