"""Gradients through complex numbers: formulas conjugate without a view that is read lazily."""

import pytest
import torch

import pliant
from pliant.debug import events

PROGRAMS = {
    "product": lambda a, b: a * b,
    "matrix product": lambda a, b: a @ b.t(),
    "spectrum": lambda a, b: torch.fft.irfft(torch.fft.rfft(a.real) * torch.fft.rfft(b.imag)),
    "polar": lambda a, b: torch.view_as_real(a * torch.polar(b.real, b.imag)),
    "absolute": lambda a, b: (a / (b + 3)).abs(),
    "einsum": lambda a, b: torch.einsum("ij,kj->ik", a, b),
    "number": lambda a, b: (2j * a) * 3 - b / (1 + 2j),
    "phase of reals": lambda a, b: (1j * a.real).exp() + (1.5j - b.imag),
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


@pytest.mark.parametrize("backend", ["aot_eager", "pliant"])
def test_a_gradient_inside_through_a_product_with_a_complex_number(backend):
    def step(x):
        (2j * x).abs().square().sum().backward()
        return x.grad

    pliant.reset()
    x, y = (torch.arange(1.0, 4.0).requires_grad_() for _ in range(2))
    torch.testing.assert_close(pliant.compile(step, fullgraph=True, backend=backend)(x), step(y))
    assert pliant.stats()["fallbacks"] == 0


def _swap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    before = x.clone()
    x.copy_(y)
    y.copy_(before)
    return x * y


def _parts(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    x[0] = 1j
    x.real.mul_(3)
    return x + y


def _real_source(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    old = x.t() * 1
    x.copy_(y.real)
    return old


@pytest.mark.parametrize("write", [_swap, _parts, _real_source])
@pytest.mark.parametrize("dynamic", [False, True])
def test_complex_inputs_are_written(write, dynamic):
    x, y = (torch.randn(3, 3, dtype=torch.complex64) for _ in range(2))
    mine, theirs = (x.clone(), y.clone()), (x.clone(), y.clone())
    with events.collect("fallback") as fell:
        found = pliant.compile(write, dynamic=dynamic)(*mine)
    torch.testing.assert_close((found, *mine), (write(*theirs), *theirs))
    assert not fell


def test_complex_parameters_learn():
    def learn(wrap):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(4, 4, dtype=torch.complex64))
        optimizer = torch.optim.Adam([weight], 0.05)
        loss, step = wrap(lambda x: (x @ weight).abs().pow(2).mean()), wrap(optimizer.step)
        for _ in range(3):
            optimizer.zero_grad()
            loss(torch.ones(2, 4, dtype=torch.complex64)).backward()
            step()
        return weight.detach()

    torch.testing.assert_close(learn(pliant.compile), learn(lambda f: f))


@pytest.mark.parametrize("backend", ["aot_eager", "pliant"])
def test_gradients_that_are_conjugated_or_negated_when_they_are_read(backend):
    lazy = (torch.arange(6.0, dtype=torch.float64) + 2j).conj()

    def real(x):
        return x.sin()

    def made_complex(x):
        return x + 1j

    def gradient(call, given):
        x = torch.arange(1.0, 7.0, dtype=torch.float64).requires_grad_()
        return torch.autograd.grad(call(x), x, given)[0]

    pliant.reset()
    for function, given in ((real, lazy.imag), (made_complex, lazy)):
        assert given.is_neg() or given.is_conj()
        found = gradient(pliant.compile(function, backend=backend), given)
        torch.testing.assert_close(found, gradient(function, given))


@pytest.mark.parametrize("by_columns", [False, True])
@pytest.mark.parametrize(
    "read", [lambda a: a, lambda a: a.conj(), lambda a: a.mH, lambda a: a.conj()[0]], ids=["as it is", "conj", "mH", "one of a batch"]
)
def test_how_triangular_solutions_lie(read, by_columns):
    """A column-major matrix whose conjugate nobody has computed is read as it is, and the solution is row-major."""
    pliant.reset()

    def program(a, b):
        return torch.linalg.solve_triangular(read(a), b, upper=True)

    compiled = pliant.compile(program)
    for n in (3, 4, 5):
        a, b = (torch.randn(2, n, n, dtype=torch.complex64) for _ in "ab")
        a = a + 3 * torch.eye(n)
        a = (a.mT.contiguous().mT if by_columns else a).requires_grad_()
        results = [fn(a, b) for fn in (compiled, program)]
        gradients = [torch.autograd.grad(torch.view_as_real(r).square().sum(), a) for r in results]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*gradients)
        assert results[0].stride() == results[1].stride() and gradients[0][0].stride() == gradients[1][0].stride()
    assert pliant.stats()["graphs"] == 2 and not pliant.stats()["graph_breaks"]
