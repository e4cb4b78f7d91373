"""Hooks on results whose gradient leads to no leaf: eager's engine calls them, if it is asked for no gradient in particular."""

import pytest
import torch

import pliant


def _of_a_view(v, p):
    return v.sin(), v * p


def _apart(v, p):
    return v.sin(), p.exp()


def _of_a_leaf_inside(v, p):
    return torch.ones(4, requires_grad=True) * v.detach(), v * p


def _everything(loss, p):
    loss.backward()


def _by_grad(loss, p):
    torch.autograd.grad(loss, p)


@pytest.mark.parametrize("backend", ["pliant", "aot_eager"])
@pytest.mark.parametrize("ask", [_everything, _by_grad])
@pytest.mark.parametrize("program", [_of_a_view, _apart, _of_a_leaf_inside])
def test_a_hook_behind_another_compiled_function(program, ask, backend):
    def seen(compiled):
        base, p, noted = torch.ones(4, requires_grad=True) * 2, torch.ones(4, requires_grad=True), []
        with torch.no_grad():
            view = base.view(-1)  # requires gradients, and has nowhere to put them
        first, other = compiled(program)(view, p)
        result = compiled(torch.exp)(first)
        result.register_hook(lambda gradient: noted.append(gradient.tolist()))
        ask(result.sum() + other.sum() if ask is _by_grad else result.sum(), p)
        return noted

    assert seen(lambda function: pliant.compile(function, backend=backend)) == seen(lambda function: function)


@pytest.mark.parametrize("asked", [[0], [1], [0, 1], [0, 2], [2]], ids=str)
def test_hooks_of_results_that_nobody_asked_for(asked):
    """The results of a compiled function share one function of autograd's graph, of which the engine is asked for some."""

    def seen(compiled):
        noted, leaves = [], [torch.ones(3, requires_grad=True) for _ in range(2)]
        results = compiled(lambda a, b: (a.sin(), b.cos(), a.exp()))(*leaves)
        for number, one in enumerate(results):
            one.register_hook(lambda gradient, number=number: noted.append(number))
        last = compiled(lambda *of: sum(one.tanh() for one in of).sum())(*results)
        torch.autograd.grad(last, [(*results, *leaves)[i] for i in asked], retain_graph=True)
        torch.autograd.grad(last, [results[asked[0]], leaves[1]])
        return sorted(noted)

    assert seen(pliant.compile) == seen(lambda function: function)
