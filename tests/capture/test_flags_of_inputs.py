"""Arguments that the program itself makes require gradients: they do so from before the graph on."""

import pytest
import torch

import pliant

MODEL = torch.nn.Linear(3, 2)


def penalty(x, y):
    x.requires_grad_()
    (gradient,) = torch.autograd.grad(MODEL(x).square().sum(), x, create_graph=True)
    return gradient.square().sum() + y.sum()


def by_attribute(x, y):
    before = x.requires_grad, x.is_leaf
    x.requires_grad = True
    return (x * y).sum() * (1 + sum(before) + x.requires_grad)


def while_nothing_is_recorded(x, y):
    with torch.no_grad():
        x.requires_grad_()
        z = x * 2
    return (z * x * y).sum()


def behind_a_use(x, y):
    z = x * 2
    x.requires_grad_()
    return (z * x * y).sum()


def both(x, y):
    x.requires_grad_()
    y.requires_grad_()
    return (x * y * x).sum()


def observed(fn, kind, n):
    x = torch.arange(3.0 * n).view(n, 3)
    y = {"other": x + 1, "same": x, "view": x.view(n, 3), "detached": x.detach()}[kind]
    fn(x, y).backward()
    result = [x.requires_grad, y.requires_grad, x.grad, y.grad, MODEL.weight.grad]
    MODEL.zero_grad()
    return result


@pytest.mark.parametrize("program", [penalty, by_attribute, while_nothing_is_recorded, behind_a_use, both])
def test_the_caller_has_the_gradients(program):
    pliant.reset()
    compiled = pliant.compile(program, backend="aot_eager")
    for kind in ("other", "same", "view", "detached", "other"):
        for n in (2, 4):
            torch.testing.assert_close(observed(compiled, kind, n), observed(program, kind, n), rtol=1e-5, atol=1e-5)
    assert pliant.stats()["graph_breaks"] == 2 * (program is behind_a_use)


def test_an_argument_is_told_where_nothing_else_is_done():
    def fn(x):
        return x.requires_grad_()

    pliant.reset()
    x = torch.ones(3)
    assert pliant.compile(fn)(x) is x and x.requires_grad
    assert pliant.stats()["graph_breaks"] == 0


def test_an_argument_is_told_once_and_not_on_both_sides_of_a_branch():
    def fn(x, y):
        if y.sum() > 0:
            x.requires_grad_()
        return x * 2

    pliant.reset()
    compiled = pliant.compile(fn)
    for sign in (1, -1):
        x = torch.ones(3)
        assert compiled(x, sign * torch.ones(3)).requires_grad is x.requires_grad is (sign > 0)
