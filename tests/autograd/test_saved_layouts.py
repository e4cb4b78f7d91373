"""Hooks on saved tensors may give the values back in another layout: the backward has them as they lay."""

import pytest
import torch

import pliant

LAYOUTS = {
    "dense": lambda n: torch.rand(n, 4),
    "gaps": lambda n: torch.rand(n, 8)[:, ::2],
    "turned": lambda n: torch.rand(4, n).t(),
    "expanded": lambda n: torch.rand(n, 1).expand(n, 4),
    "windows": lambda n: torch.rand(2 * n + 2).as_strided((n, 4), (2, 1)),
    "one value": lambda n: torch.rand(1, 1).expand(n, 4),
}


@pytest.mark.spread(2, "marked", "retained", "layout")
@pytest.mark.parametrize("marked", [False, True])
@pytest.mark.parametrize("retained", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dense_copies_are_saved(layout, retained, marked):
    def product(x, y):
        return (x * y).sin() * x

    def pack(t):
        return t.clone(memory_format=torch.contiguous_format)

    compiled = pliant.compile(product)
    hook = pliant.keeps_saved_values(pack) if marked else pack
    for n in (3, 3, 5):
        x, y = LAYOUTS[layout](n).requires_grad_(), torch.rand((), requires_grad=True)
        found = []
        for function in (product, compiled):
            with torch.autograd.graph.saved_tensors_hooks(hook, lambda t: t):
                result = function(x, y)
            found += [torch.autograd.grad(result.sum(), (x, y), retain_graph=retained) for _ in range(1 + retained)]
        torch.testing.assert_close(found[-1], found[0])


def test_constants_are_saved_too():
    def program(x, b):
        found = x.sin()[torch.tensor([0, 1])] * x[:2]
        b.mul_(2)
        return found

    compiled = pliant.compile(program)
    for _ in range(2):
        x, written = torch.rand(3, requires_grad=True), torch.ones(3)
        with torch.autograd.graph.saved_tensors_hooks(pliant.keeps_saved_values(lambda t: t.clone()), lambda t: t):
            result = compiled(x, written)
        assert written.tolist() == [2, 2, 2]
        expected = program(x, torch.ones(3))
        torch.testing.assert_close(torch.autograd.grad(result.sum(), x), torch.autograd.grad(expected.sum(), x))
