"""What `docs/numerics.md` states of rounding: errors against float64 beside eager's, the same bits at every call."""

import pytest
import torch
from torch.nn import functional

import pliant

ALLOWED, FLOOR = 4, 2e-7  # times eager's own error, and what counts as none: about one rounding of float32

PROGRAMS = {
    "sum": lambda x: (x + 1).sum(),
    "sums of rows": lambda x: x.sum(-1),  # of terms that cancel: one sum alone is exact by chance, on some processor
    "mean of columns": lambda x: (x * x).mean(0),
    "variance far from zero": lambda x: (x + 100).var(-1),
    "standard deviation": lambda x: (x + 10).std(),
    "product": lambda x: torch.prod(1 + x / 100, -1),
    "cumulative sum": lambda x: torch.cumsum(x, -1),
    "norm": lambda x: x / x.norm(dim=-1, keepdim=True),
    "softmax": lambda x: torch.softmax(x * 3, -1),
    "softmax of columns": lambda x: torch.log_softmax(x, 0),
    "logsumexp": lambda x: torch.logsumexp(x * 10, 0),
    "layer norm far from zero": lambda x: functional.layer_norm(x * 5 + 100, x.shape[1:]),
    "batch norm far from zero": lambda x: functional.batch_norm(x * 2 + 30, None, None, training=True),
    "root mean square norm": lambda x: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6),
    "cross entropy": lambda x: functional.cross_entropy(x, torch.arange(len(x)) % x.shape[1]),
    "activations": lambda x: functional.gelu(x * 3) * torch.sigmoid(x) + functional.softplus(x) * torch.tanh(x),
    "exponentials": lambda x: torch.exp(x * 8) + torch.expm1(x) + torch.exp2(x),
    "logarithms": lambda x: torch.log(x.abs() + 1e-6) + torch.log1p(x.abs()) + torch.log2(x.abs() + 1),
    "angles": lambda x: torch.sin(x * 100) * torch.cos(x) + torch.atan(x),
    "powers": lambda x: (x.abs() + 0.1) ** 2.7 + x**3,
    "error function": lambda x: torch.erf(x) + torch.erfc(x) + torch.lgamma(x.abs() + 0.5),
}


def value_and_gradient(function, x):
    x = x.detach().clone().requires_grad_()
    y = function(x)
    tangent = torch.cos(torch.arange(y.numel(), dtype=torch.float64)).view(y.shape)
    return y.detach(), torch.autograd.grad(y, x, tangent.to(y.dtype))[0]


def error(found, exact):
    return float((found.double() - exact).norm() / exact.norm())


FAST = ["softmax", "layer norm far from zero", "cross entropy", "activations", "exponentials", "error function"]


@pytest.mark.parametrize(("name", "mode"), [*((name, "default") for name in PROGRAMS), *((name, "fast") for name in FAST)])
def test_errors_are_a_small_multiple_of_eagers(name, mode):
    program = PROGRAMS[name]
    x = torch.randn(300, 500, generator=torch.Generator().manual_seed(0))
    exact, eager = value_and_gradient(program, x.double()), value_and_gradient(program, x)
    ours = value_and_gradient(pliant.compile(program, options={"numerics": mode}), x)
    for mine, theirs, right in zip(ours, eager, exact, strict=True):
        assert error(mine, right) <= ALLOWED * error(theirs, right) + FLOOR


@pytest.mark.parametrize(("name", "mode"), [*((name, "default") for name in PROGRAMS), ("softmax", "fast"), ("activations", "fast")])
def test_bits_are_the_same_at_every_call(name, mode):
    compiled = pliant.compile(PROGRAMS[name], options={"numerics": mode})
    x = torch.randn(300, 500, generator=torch.Generator().manual_seed(1))
    first, *others = [value_and_gradient(compiled, x) for _ in range(3)]
    for other in others:
        assert all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_scatters_add_in_one_order():
    """Many rows meet in few: an order that threads decide would show in the last bits."""

    def program(x, index):
        return torch.zeros(7, x.shape[1]).index_add(0, index, x), functional.embedding(index, x[:7]).cumsum(0)

    compiled = pliant.compile(program)
    x, index = torch.randn(5000, 33, requires_grad=True), torch.randint(0, 7, (5000,))
    found = []
    for _ in range(3):
        results = compiled(x, index)
        found.append((*results, *torch.autograd.grad([r.sin().sum() for r in results], x)))
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(found[0], other, strict=True))


def test_products_and_sums_round_twice():
    """`a * b + c` is no fused multiply-add: eager rounds the product."""
    a, b = torch.rand(2, 10_000)
    assert torch.equal(pliant.compile(lambda a, b: a * b - a)(a, b), a * b - a)


def test_half_precision_rounds_what_is_stored_only():
    x = torch.randn(10_000, generator=torch.Generator().manual_seed(0)).bfloat16()

    def program(x):
        return ((x * 1.234 + 0.77) * x).exp() / 3

    exact = program(x.double())
    ours, eager = (f(x) for f in (pliant.compile(program), program))
    assert ours.dtype is torch.bfloat16
    assert error(ours, exact) <= 2**-8 < error(eager, exact)


def test_deterministic_algorithms_fill_new_memory():
    compiled = pliant.compile(lambda x: (torch.empty(4) + x, torch.are_deterministic_algorithms_enabled()))
    assert compiled(torch.ones(()))[1] is False
    torch.use_deterministic_algorithms(True)
    try:
        filled, asked = compiled(torch.ones(()))
    finally:
        torch.use_deterministic_algorithms(False)
    assert asked is True and filled.isnan().all()


def test_an_iteration_in_half_precision_is_as_near_as_eagers():
    """Muon's: products of bfloat16 matrices. The norm that it divides by is rounded in eager, and not here."""

    def orthogonal(x):
        x = x.clone()
        x.div_(x.norm().clamp(min=1e-7))
        for _ in range(5):
            gram = x @ x.T
            x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=-4.775, alpha=2.0315), x, beta=3.4445)
        return x

    compiled, errors = pliant.compile(orthogonal), []
    for seed in range(100):
        x = torch.randn(16, 24, generator=torch.Generator().manual_seed(seed))
        exact = orthogonal(x.double())
        errors.append([error(call(x.bfloat16()), exact) for call in (compiled, orthogonal)])
    ours, eager = torch.tensor(errors).mean(0)
    assert ours <= 1.1 * eager
