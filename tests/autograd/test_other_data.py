"""Inputs that the caller gives other data (`.data =`) between a call and its backward."""

import pytest
import torch

import pliant
from pliant.autograd.saved_memory import InOwnMemory


def _gradient(f, other):
    torch.manual_seed(0)
    p = torch.rand(6, 4).requires_grad_()
    f(p).sum().backward()  # what is known of saved inputs is known from here on
    result, p.grad = f(p), None
    p.data = other
    result.backward(torch.ones(6, 4))
    return p.grad


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rows", [0, 1, 100_000])
def test_data_of_another_size_is_an_error(rows, dynamic):
    with pytest.raises(RuntimeError, match=r"given data of size \[\d+, 4\]"):
        _gradient(pliant.compile(torch.sin, dynamic=dynamic), torch.rand(rows, 4))


@pytest.mark.parametrize("dynamic", [False, True])
def test_data_in_another_order_is_read_as_it_lies(dynamic):
    other = torch.rand(4, 6).t()
    compiled = pliant.compile(torch.sin, dynamic=dynamic)
    torch.testing.assert_close(_gradient(compiled, other), _gradient(torch.sin, other))


def test_data_of_another_size_where_the_graph_is_kept():
    p = torch.rand(6, 4).requires_grad_()
    result = pliant.compile(lambda x, y: (x.sin(), y * 2), dynamic=True)(p, torch.rand(3).requires_grad_())[0]
    p.data = torch.rand(2, 4)
    with pytest.raises(RuntimeError, match="given data of size"):
        torch.autograd.grad(result, p, torch.ones(6, 4), retain_graph=True)


def test_a_result_that_was_asked_for_ends_a_way():
    """Though the engine goes on from it: another input of the same program is behind it."""

    def f(x, y):
        y.add_(1)
        other = x.sin()
        result = y**2
        return result, other.exp().detach()

    def history(f):
        x, y = [(torch.ones(4, 6).requires_grad_() + 0.5)[:, ::2] for _ in range(2)]
        result, _ = f(x, y)
        return torch.autograd.grad(result.sum(), [x, y], create_graph=True, allow_unused=True)[1]

    torch.testing.assert_close(history(pliant.compile(f)), history(f))


def test_saved_inputs_are_not_compared_as_values():
    """Which asks a tensor whether it equals None: an exception each, caught."""

    class Compared(torch.Tensor):
        def __eq__(self, other):
            raise AssertionError

        __hash__ = None

    saved = [torch.ones(3), torch.ones(2).as_subclass(Compared)]
    for _ in range(9):
        assert InOwnMemory({0: ((3,), (1,)), 1: ((2,), (1,))}).as_traced(saved) is saved
