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


def _of_a_leaf_made_behind_a_hook(x):
    z = x * 2
    z.register_hook(lambda gradient: gradient * 2)
    return _of_a_leaf_made_inside(z)


PROGRAMS = [
    _of_a_leaf_made_inside, _of_what_the_result_leads_to, _of_an_input, _of_an_inner_tensor, _of_a_leaf_made_behind_a_hook
]  # fmt: skip


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


@pytest.mark.parametrize("program", PROGRAMS)
def test_where_gradients_are_off_at_first(program):
    """What follows a graph break in `no_grad` begins with gradients off: no cut belongs there for what is made later."""
    pliant.reset()
    breaking = pliant.disable(lambda: None)

    def turned_on(x):
        with torch.no_grad():
            breaking()
        return program(x)

    x = torch.rand(3, requires_grad=True)
    (expected,) = torch.autograd.grad(program(x).sum(), x)
    torch.testing.assert_close(torch.autograd.grad(pliant.compile(turned_on)(x).sum(), x), (expected,))
