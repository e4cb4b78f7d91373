"""Tensors with gradients that are views of tensors without: as these, views made while nothing is recorded require none."""

import pytest
import torch

import pliant


def view_of_constant():
    return torch.rand(4, 3).t().requires_grad_()


def leaf():
    return torch.rand(3, 4).requires_grad_()


def detached_view():
    return torch.rand(4, 3).t().detach().requires_grad_()


class PartOf(torch.autograd.Function):
    @staticmethod
    def forward(ctx, constant, weight):
        return constant[:3]

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient


def view_of_constant_by_a_function():
    return PartOf.apply(torch.rand(5, 4), torch.rand(3, 4).requires_grad_())


def view_of_leaf():
    return leaf().view(3, 4)


LEAVES = [view_of_constant, leaf, detached_view, view_of_leaf, view_of_constant_by_a_function]
VIEWS = {
    "select": lambda y: y[0],
    "transpose": lambda y: y.t(),
    "two": lambda y: y.view_as(y)[0],
    "split": lambda y: y.split(1)[0],
    "detach": lambda y: y.detach(),
    "data": lambda y: y.data,
    "copy": lambda y: y.clone()[0],
}


def states(results):
    tensors = [one for one in results if isinstance(one, torch.Tensor)]
    others = [one for one in results if not isinstance(one, torch.Tensor)]
    return [(one.requires_grad, one.is_leaf, one.grad_fn is None, one.tolist()) for one in tensors], others


@pytest.mark.spread(2, "view", "block", "backend")
@pytest.mark.parametrize("backend", ["pliant", "aot_eager", "eager"])
@pytest.mark.parametrize("block", [torch.no_grad, torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("view", VIEWS)
def test_views_of_leaves(view, block, backend):
    def program(y):
        with block():
            z = VIEWS[view](y)
            asked = z.requires_grad
        return z * 2, z, asked, z.requires_grad, z.is_leaf

    compiled = pliant.compile(program, backend=backend)
    for make in LEAVES:  # one function for all: guards tell them apart
        y = make()
        assert states(compiled(y)) == states(program(y)), make.__name__


@pytest.mark.parametrize("backend", ["pliant", "aot_eager", "eager"])
def test_gradients_of_a_leaf_that_is_a_view(backend):
    def program(y):
        with torch.no_grad():
            z = y[0]
        return (y * z).sum()

    y = view_of_constant()
    found, expected = (torch.autograd.grad(f(y), y)[0] for f in (pliant.compile(program, backend=backend), program))
    assert torch.equal(found, expected)


@pytest.mark.filterwarnings("ignore::pliant.errors.PliantWarning")
@pytest.mark.parametrize("backend", ["pliant", "eager"])
@pytest.mark.parametrize("block", [torch.no_grad, torch.enable_grad])
def test_writes_of_a_function_s_view_fail_as_in_eager(block, backend):
    def program(y):
        with block():
            y.view(-1).mul_(2)
        return y * 3

    def outcome(function):
        y = view_of_constant_by_a_function()
        try:
            return function(y).requires_grad
        except RuntimeError as error:
            return str(error)

    found = outcome(pliant.compile(program, backend=backend))
    assert found == outcome(program) and "inplace" in found


def made_before(b):
    made = b * 2
    view = made[1:]
    made.requires_grad_()
    return view


def made_before_and_returned(b):
    made = b * 2
    view = made[1:]
    made.requires_grad_()
    return view, made


def of_detached(b):
    return b.detach().requires_grad_().mT


@pytest.mark.parametrize("backend", ["pliant", "aot_eager", "eager"])
@pytest.mark.parametrize("block", [torch.no_grad, torch.enable_grad, torch.inference_mode])
@pytest.mark.parametrize("program", [made_before, made_before_and_returned, of_detached])
def test_views_of_tensors_that_are_made_leaves(program, block, backend):
    """Autograd asks the tensor that they are views of, at the time."""
    compiled, b = pliant.compile(program, backend=backend), torch.rand(4, 3)
    with block():
        found, expected = compiled(b), program(b)
    as_tuple = lambda results: results if isinstance(results, tuple) else (results,)  # noqa: E731
    assert states(as_tuple(found)) == states(as_tuple(expected))
