"""Hooks of results in which the program asks for gradients of what it computed before."""

import pytest
import torch

import pliant


def _of_a_leaf_made_inside(x):
    """The backward of a fixed point."""
    z = x.tanh()
    start = z.detach().requires_grad_()
    again = (start * start).tanh()

    def solved(gradient):
        found = gradient
        for _ in range(2):
            found = torch.autograd.grad(again, start, found, retain_graph=True)[0] + gradient
        return found

    z.register_hook(solved)
    return z


def _of_what_the_result_leads_to(x):
    z = x * 2
    y = z.exp()
    w = (y * z).sum()
    z.register_hook(lambda gradient: torch.autograd.grad(w, y, w.detach(), retain_graph=True)[0] + gradient)
    return z


def _of_an_input(x):
    z = x * 2
    y = (x * x).tanh()
    z.register_hook(lambda gradient: torch.autograd.grad(y, x, gradient, retain_graph=True)[0] + gradient)
    return z


def _of_an_inner_tensor(x):
    return _of_a_leaf_made_inside(x) * 3


PROGRAMS = [_of_a_leaf_made_inside, _of_what_the_result_leads_to, _of_an_input, _of_an_inner_tensor]


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_are_those_of_eager(program, backend):
    compiled = pliant.compile(program, backend=backend, fullgraph=True)
    for size in (2, 3, 4):
        given = torch.rand(size)
        x, y = given.clone().requires_grad_(), given.clone().requires_grad_()
        compiled(x).sum().backward()
        program(y).sum().backward()
        torch.testing.assert_close(x.grad, y.grad)
