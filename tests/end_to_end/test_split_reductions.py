"""Reductions whose long inner loop is shared by threads, with values of the few outer points beside them."""

import pytest
import torch

import pliant

PROGRAMS = {
    "a value that needs no reduction": lambda x, a: ((x.sum(1) * x.mean(1)) + a.exp(), a * 2),
    "one that the reduction reads": lambda x, a: ((x * (a.exp() + 1)[:, None]).sum(1), a.exp() + 1),
    "one that is read after it": lambda x, a: ((x - a[:, None]).square().sum(1) * a.sin(), a.sin()),
    "columns": lambda x, a: ((x.T * a.cos()).sum(0) + a, a.cos()),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_split_reduction(name, dynamic):
    x, a = torch.randn(2, 70_000, dtype=torch.float64), torch.randn(2, dtype=torch.float64)
    program = PROGRAMS[name]
    torch.testing.assert_close(pliant.compile(program, dynamic=dynamic)(x, a), program(x, a))


def test_group_norm_with_derivatives_of_its_statistics():
    def program(x, w, b, n, c, size, groups):
        return torch.native_group_norm(x, w, b, n, c, size, groups, 0.5)

    arguments = [torch.randn(s, requires_grad=True) for s in ((1, 6, 3), (6,), (6,))]
    results = [f(*arguments, 1, 6, 3, 2) for f in (pliant.compile(program, dynamic=True), program)]
    torch.testing.assert_close(*results)
    tangents = [torch.randn_like(r) for r in results[0]]
    torch.testing.assert_close(*(torch.autograd.grad(r, arguments, tangents) for r in results))
