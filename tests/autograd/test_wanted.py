"""Gradients that lead to nothing that was asked for: a compiled function's results share one function of autograd's graph."""

import pytest
import torch

import pliant


def both(x, p):
    return x * 2, p.sin()


def written_over(a):
    y = a.exp()
    y.mul_(2)
    return y


def leaves():
    return torch.linspace(0.1, 1, 3).requires_grad_(), torch.linspace(1, 2, 3).requires_grad_()


@pytest.mark.parametrize("asked", [0, 1])
def test_hooks_are_called_for_what_is_asked_for(asked):
    def seen(way):
        found, inputs = [], leaves()
        first, second = way(both)(*inputs)
        behind = way(torch.exp)(first)
        first.register_hook(found.append)
        behind.register_hook(found.append)
        loss = behind.sum() + second.sum()
        return torch.autograd.grad(loss, inputs[asked]), found

    torch.testing.assert_close(seen(pliant.compile), seen(lambda f: f))


def test_results_that_are_asked_for_themselves_have_their_hooks_called():
    def seen(way):
        found = []
        first, _ = way(both)(*leaves())
        first.register_hook(found.append)
        return torch.autograd.grad(first.square().sum(), first), found

    torch.testing.assert_close(seen(pliant.compile), seen(lambda f: f))


@pytest.mark.parametrize("asked", [0, 1])
def test_what_was_written_over_is_an_error_where_it_is_needed(asked):
    def gradient(way):
        inputs = leaves()
        first, _ = way(both)(*inputs)
        try:
            return torch.autograd.grad(way(written_over)(first).sum(), inputs[asked], allow_unused=True)
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)

    assert gradient(pliant.compile) == gradient(lambda f: f) == [True, (None,)][asked]


@pytest.mark.parametrize("asked", [0, 1])
def test_what_was_written_over_is_no_error_for_other_inputs(asked):
    def program(x, p):
        factor = torch.full((3,), 2.0)
        product = factor * x
        factor.mul_(2)
        return product.exp() * p.sin()

    def gradient(way):
        inputs = leaves()
        try:
            return torch.autograd.grad(way(program)(*inputs).sum(), inputs[asked])
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)

    torch.testing.assert_close(gradient(pliant.compile), gradient(lambda f: f))


def test_a_written_tensor_that_is_not_needed_is_no_error():
    """`x` is saved for the gradient of `x` alone."""

    def program(x, p):
        return x * x, x + p

    def gradient(way):
        leaf, p = leaves()
        x = leaf * 1
        first, second = way(program)(x, p)
        with torch.no_grad():
            x.mul_(2)
        return torch.autograd.grad(first.sum() + second.sum(), p)

    torch.testing.assert_close(gradient(pliant.compile), gradient(lambda f: f))
