"""Tensors that are conjugated or negated when they are read: a view as eager's, elements and gradients too."""

import pytest
import torch

import pliant


def _write_conjugate(x):
    y = x.clone()
    y.conj()[0].mul_(2j)
    return y


def _write_below(x):
    y = x.clone()
    z = y.conj()
    y.add_(1j)
    return z


def _write_imaginary(x):
    y = x.clone()
    y.conj().imag.mul_(2)
    return y


def _fill(x):
    y = x.clone()
    y.mH.fill_(2 + 1j)
    return y


def _ask(x):
    return x.mH * 2 if x.mH.is_conj() and not (x.conj() * 1).is_conj() else x


PROGRAMS = {
    "computed": lambda x: x.conj() * 2,
    "product": lambda x: x.mH @ x,
    "dot": lambda x: torch.dot(x[0].conj(), x[1]),
    "resolved": lambda x: x.conj().resolve_conj(),
    "contiguous": lambda x: x.mH.contiguous(),
    "reshaped": lambda x: x.mH.reshape(-1),
    "joined": lambda x: torch.cat([x.conj(), x]),
    "imaginary part": lambda x: x.conj().imag.exp(),
    "spectrum": lambda x: torch.fft.hfft(x.conj()),
    "returned": lambda x: x.conj(),
    "a view returned": lambda x: (x * 2).conj()[1:].t(),
    "with its base": lambda x: (x.mH, x),
    "two of one base": lambda x: (lambda y: (y.conj(), y.mH))(x * 2),
    "parts": lambda x: x.conj().split(2),
    "gapped": lambda x: x[:, ::2].conj(),
    "gapped, read": lambda x: x[:, ::2].conj() + 0,
    "negated, returned": lambda x: x.conj().imag,
    "twice": lambda x: x.conj().conj(),
    "detached": lambda x: (x.conj().detach(), x * 1),
    "without gradients": lambda x: torch.no_grad()(torch.conj)(x * 2) + x,
    "checkpoint": lambda x: torch.utils.checkpoint.checkpoint(lambda y: y.sin().conj(), x, use_reentrant=False),
    "mapped": lambda x: torch.func.vmap(torch.conj)(x),
    "write": _write_conjugate,
    "write below": _write_below,
    "write a part": _write_imaginary,
    "fill": _fill,
    "asked": _ask,
}


def described(results):
    results = results if isinstance(results, (tuple, list)) else (results,)
    return [(r.resolve_conj().resolve_neg(), r.stride(), r.is_conj(), r.is_neg(), r.requires_grad) for r in results]


def loss_of(results):
    results = results if isinstance(results, (tuple, list)) else (results,)
    weights = torch.arange(1, 100.0) + 1j
    kept = [(weights[: r.numel()] * r.reshape(-1)).real.sum() for r in results if r.requires_grad]
    return sum(kept)


@pytest.mark.spread(2, "dynamic", "name")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name, dynamic):
    program = PROGRAMS[name]
    pliant.reset()
    compiled = pliant.compile(program, fullgraph=True, dynamic=dynamic)
    for seed in range(2):
        x = torch.randn(4, 4, dtype=torch.complex64, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(described(compiled(x)), described(program(x)))
        mine, theirs = (x.clone().requires_grad_() for _ in range(2))
        found, expected = compiled(mine), program(theirs)
        torch.testing.assert_close(described(found), described(expected))
        torch.testing.assert_close(
            torch.autograd.grad(loss_of(found), mine), torch.autograd.grad(loss_of(expected), theirs)
        )
    seen = pliant.stats()
    assert not seen["fallbacks"] and not seen["assumptions"]


def test_memory_is_shared():
    compiled = pliant.compile(lambda x: x.mH, fullgraph=True)
    x = torch.randn(2, 3, dtype=torch.complex64)
    seen = compiled(x)
    x.add_(1j)
    assert torch.equal(seen, x.mH)
    seen.mul_(1j)
    assert torch.equal(seen, x.mH)


def test_an_input_is_written_through_its_conjugate():
    def program(x):
        x.conj().mul_(2j)
        return x.conj() + 1

    x = torch.randn(3, dtype=torch.complex64)
    mine, theirs = x.clone(), x.clone()
    found, expected = pliant.compile(program, fullgraph=True)(mine), program(theirs)
    torch.testing.assert_close((found, mine), (expected, theirs))


@pytest.mark.parametrize(
    "program",
    [lambda x: x.conj().as_strided((2,), (1,)), lambda x: x.imag.conj() + x.conj().as_strided((4,), (2,)).imag],
)
def test_memory_by_strides_breaks_the_graph(program):
    pliant.reset()
    x = torch.randn(4, 4, dtype=torch.complex64)
    torch.testing.assert_close(pliant.compile(program)(x), program(x))
    assert pliant.stats()["break_reasons"] == {"unsupported-operator": 1}


@pytest.mark.parametrize("program", [lambda x: x.conj().view(torch.float32), lambda x: torch.view_as_real(x.conj())])
def test_what_eager_refuses(program):
    with pytest.raises(RuntimeError, match="conjugate"):
        pliant.compile(program)(torch.randn(4, 4, dtype=torch.complex64))


def test_branches_return_conjugates():
    def program(x):
        return torch.cond(x.real.sum() > 0, lambda y: y.conj(), lambda y: (y * 2).mH, (x,)) + 1

    compiled = pliant.compile(program, fullgraph=True)
    x = torch.randn(3, 3, dtype=torch.complex64).abs() + 1j
    torch.testing.assert_close(compiled(x), x.conj() + 1)
    torch.testing.assert_close(compiled(-x), (-x * 2).mH + 1)
