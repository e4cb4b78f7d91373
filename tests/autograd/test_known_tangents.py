"""Gradients of results that lie as the backward was traced for are known natively after the first; all others are laid out."""

import pytest
import torch

import pliant

OTHERS = {
    "transposed": lambda: torch.arange(15.0).view(5, 3).t(),
    "expanded": lambda: torch.tensor([[1.0], [2.0], [3.0]]).expand(3, 5),
    "negative": lambda: torch.arange(15.0).view(3, 5)._neg_view(),
    "behind its memory": lambda: torch.arange(16.0)[1:].view(3, 5),
    "a subclass": lambda: torch.nn.Parameter(torch.arange(15.0).view(3, 5), requires_grad=False),
    "with a history": lambda: torch.arange(15.0).view(3, 5).requires_grad_(),
}


@pytest.mark.parametrize("name", OTHERS)
def test_gradients_that_lie_otherwise_are_right(name):
    compiled = pliant.compile(lambda x: x.sin() * 2)
    x = torch.randn(3, 5, requires_grad=True)
    for given in (torch.ones(3, 5), torch.randn(3, 5), OTHERS[name](), torch.randn(3, 5), OTHERS[name]()):
        (found,) = torch.autograd.grad(compiled(x), x, given)
        torch.testing.assert_close(found, given.detach() * 2 * x.detach().cos())
