"""Counts, offsets and places that vary: few graphs serve all values, where C++ takes plain integers."""

import pytest
import torch
import torch.nn.functional as F

import pliant


def written_diagonal(x, n):
    y = x * 1
    y.diagonal(n).mul_(3)
    return y


# What is called, its numbers, how many graphs serve them all: the first number's, one for each range of the others.
OF_NUMBERS = {
    "diagonal": (lambda x, n: x.diagonal(n), (1, 2, 3, -1, -2, -4), 3),
    "diagonal beyond": (lambda x, n: x.diagonal(n, 1, 0), (1, 9, 8, 2), 3),
    "diagonal from behind": (lambda x, n: torch.linalg.diagonal(x[None], offset=n), (1, 2, 3, 4), 2),
    "written diagonal": (written_diagonal, (1, 2, 3, 4), 2),
    "diag": (lambda x, n: x.t().diag(diagonal=n), (1, 2, 3, 4), 2),
    "diag of a row": (lambda x, n: torch.diag(x[0], n), (1, 2, 3, -1, -2), 3),
    "diag_embed": (lambda x, n: torch.diag_embed(x, n), (1, 2, 3, -1, -2), 3),
    "diagflat": (lambda x, n: torch.diagflat(x[:2], offset=n), (1, 2, 3), 2),
    "triangle": (lambda x, n: torch.tril_indices(7, 5, n) + x.size(0), (1, 2, 3), 2),
    "hsplit": (lambda x, n: x.hsplit((n, 4)), (1, 2, 3), 2),
    "vsplit": (lambda x, n: torch.vsplit(x, [n]), (1, 2, 3), 2),
    "dsplit": (lambda x, n: x[None].dsplit((n,)), (1, 2, 3), 2),
    "hsplit of a row": (lambda x, n: x[0].hsplit((n,)), (1, 2, 3), 2),
    "rot90": (lambda x, n: x.rot90(n), (1, 2, 6, -2, 3, 7), 3),
    "vander": (lambda x, n: torch.vander(x.detach()[0], n, increasing=True), (3, 2, 4, 5), 2),
    "logspace": (lambda x, n: torch.logspace(0, 1, n, base=2) * x.sum(), (3, 2, 4, 5), 2),
    "bartlett": (lambda x, n: torch.bartlett_window(n) * x.sum(), (3, 2, 4, 5), 2),
    "gaussian": (lambda x, n: torch.signal.windows.gaussian(n, std=2.0) * x.sum(), (3, 2, 4, 5), 2),
    "step of a slice": (lambda x, n: x[::n, 1::n] * 2, (2, 3, 4), 2),
    "bilinear": (lambda x, n: F.bilinear(x, x, x.new_ones(n, 6, 6)), (2, 3, 4, 5), 2),
}
OF_SIZES = {
    "gradient": lambda x: torch.gradient(x, spacing=2.0),
    "gradient along": lambda x: torch.gradient(x.t(), dim=-1),
    "vander": lambda x: torch.vander(x.detach()[:, 0]),
    "linear vander": lambda x: torch.linalg.vander(x.detach()[:, 0]),
    "logspace": lambda x: torch.logspace(0, 1, x.size(0)) * x.sum(),
    "pinv": lambda x: torch.linalg.pinv(x[:, :2, None] + 1),
    "random_": lambda x: x.detach().clone().random_(0, 1),
}


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()


def check(compiled, function, x, *numbers):
    found, expected = compiled(x, *numbers), function(x, *numbers)
    found, expected = [one if isinstance(one, tuple) else (one,) for one in (found, expected)]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
        assert one.stride() == other.stride() and one.requires_grad == other.requires_grad
    if expected[0].requires_grad:
        gradients = [torch.autograd.grad(sum(one.sum() * (k + 1) for k, one in enumerate(of)), x)[0] for of in (found, expected)]
        torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", OF_NUMBERS)
def test_numbers(name):
    function, numbers, graphs = OF_NUMBERS[name]
    compiled = pliant.compile(function, backend="aot_eager")
    x = torch.rand(5, 6, requires_grad=True)
    for n in numbers:
        check(compiled, function, x, n)
    assert pliant.stats()["graphs"] == graphs


@pytest.mark.parametrize("name", OF_SIZES)
def test_sizes(name):
    compiled = pliant.compile(OF_SIZES[name], backend="aot_eager")
    for size in (3, 4, 5, 6):
        check(compiled, OF_SIZES[name], torch.rand(size, 4, requires_grad=True))
    assert pliant.stats()["graphs"] == 2


def test_step_of_a_slice_in_a_kernel():
    def function(x, n):
        y = x * 2
        y[1::n] = 5
        return y, (x + 1)[:, ::n].sum(0)

    compiled = pliant.compile(function)
    for n in (2, 3, 4):
        check(compiled, function, torch.rand(5, 6, requires_grad=True), n)
    assert pliant.stats()["graphs"] == 2


@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x.diagonal(n, 0, 7),
        lambda x, n: x[:, ::-n],
        lambda x, n: x.repeat(-n, 1),
        lambda x, n: F.conv1d(x[None], x.new_ones(2, 5, 2), stride=-n),
        lambda x, n: torch.vander(x, n),
        lambda x, n: torch.fft.rfftfreq(-n),
    ],
)
def test_errors_are_those_of_eager(function):
    compiled = pliant.compile(function, backend="aot_eager")
    x = torch.rand(5, 6, requires_grad=True)
    for n in (1, 2, 3):
        outcomes = []
        for one in (compiled, function):
            try:
                outcomes.append(tuple(one(x, n).shape))
            except Exception as error:
                outcomes.append((type(error), str(error)))
        assert outcomes[0] == outcomes[1]


def test_stacked_tensors_without_elements():
    x = torch.rand(0, 4)
    compiled = pliant.compile(lambda x: torch.stack([x, x + 1, x + 2]), backend="aot_eager")
    assert compiled(x).stride() == torch.stack([x, x, x]).stride()
