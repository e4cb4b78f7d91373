"""Arguments that are conjugated or negated when they are read: whole graphs, with eager's values, memory and gradients."""

import pytest
import torch

import pliant


def numbers(n):
    return (torch.arange(n) + 1) * (1 + 2j)


KINDS = {
    "conjugated": lambda z: z.conj(),
    "negated": lambda z: z.conj().imag,
    "both": lambda z: torch._neg_view(z).conj(),
}
SEEN = []


def asked(x):
    return x * (2 if x.is_conj() else 3) + x.is_neg()


def written(x):
    x.mul_(2)
    return x + 1


def kept(x):
    SEEN.append(x)
    return x * 2, SEEN.pop()


def moved(x):
    x.data = x.data * 2
    return x + 1


PROGRAMS = {
    "computed": lambda x: (x * 2, x.sum(), x.reshape(1, -1) @ x.reshape(-1, 1)),
    "returned": lambda x: x,
    "viewed": lambda x: (x[1:], x.reshape(-1, 1), x.t()),
    "resolved": lambda x: (x.resolve_conj().resolve_neg(), x.clone(), torch.zeros_like(x)),
    "asked": asked, "written": written, "kept": kept, "moved": moved,
}  # fmt: skip


def told(result, argument):
    found = []
    for one in result if isinstance(result, tuple) else (result,):
        shares = one.untyped_storage().data_ptr() == argument.untyped_storage().data_ptr()
        found.append((one.tolist(), one.is_conj(), one.is_neg(), one is argument, shares))
    return found, argument.tolist()


@pytest.mark.spread(2, "backend", "kind", "name")
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_arguments_that_are_read_lazily(name, kind, backend):
    pliant.reset()
    program = PROGRAMS[name]
    compiled = pliant.compile(program, backend=backend, fullgraph=True)
    for n in (3, 5, 6):
        mine, theirs = (KINDS[kind](numbers(n)) for _ in range(2))
        assert told(compiled(mine), mine) == told(program(theirs), theirs)
    assert pliant.stats()["fallbacks"] == 0
    pliant.reset()


@pytest.mark.parametrize("kind", KINDS)
def test_their_gradients(kind):
    pliant.reset()
    program = lambda x: (x * x * 3).abs().sum()
    compiled = pliant.compile(program, fullgraph=True)
    for n in (3, 4, 5):
        found = []
        for f in (program, compiled):
            leaf = numbers(n).requires_grad_()
            x = KINDS[kind](leaf)
            x.retain_grad()
            f(x).backward()
            found.append((leaf.grad, x.grad.resolve_conj().resolve_neg()))
        torch.testing.assert_close(*found)
    assert pliant.stats()["fallbacks"] == 0
    pliant.reset()


@pytest.mark.fallbacks_expected  # conjugated leaves are refused
def test_writes_that_eager_refuses():
    pliant.reset()
    compiled = pliant.compile(lambda x: x.mul_(2).sum(), backend="eager")
    for view in (lambda leaf: leaf.conj(), lambda leaf: leaf.detach().conj().requires_grad_()):
        with pytest.raises(RuntimeError, match="leaf"):
            compiled(view(numbers(3).requires_grad_()))


@pytest.mark.fallbacks_expected  # conjugated leaves are refused
def test_they_are_told_from_others():
    pliant.reset()
    compiled = pliant.compile(lambda x, y: x * 2 + y, backend="eager")
    leaf = numbers(3).conj().requires_grad_()
    kinds = [lambda z: z, lambda z: z.real, lambda z: z.imag, *KINDS.values(), lambda z: leaf, lambda z: 3]
    with pliant.config.patch(recompile_limit=100):
        for x in kinds * 2:
            for y in kinds:
                x_, y_ = x(numbers(3)), y(numbers(3))
                assert torch.equal(torch.as_tensor(compiled(x_, y_)), torch.as_tensor(x_ * 2 + y_))
    pliant.reset()
