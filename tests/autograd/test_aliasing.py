"""Outputs that are inputs, views of inputs, or share memory with each other."""

import pytest
import torch
from tests.autograd.programs import check, compiled
from torch.utils._pytree import tree_leaves

import pliant
from pliant.autograd.aliasing import UnsupportedAliasing


def leaf(*size):
    return torch.randn(*size, requires_grad=True)


@pytest.mark.parametrize("make", [leaf, torch.randn, lambda *s: leaf(*s) * 1])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x,), lambda x: (x, x), lambda x: (x.t(),), lambda x: (x[1:], x * 2), lambda x: (x.view(-1)[2:], x),
        lambda x: (x.detach(),), lambda x: (x.chunk(2)), lambda x: (x.expand(2, 4, 3),),
    ],
)  # fmt: skip
def test_views_of_inputs(function, make):
    check(function, [make(4, 3)])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: [y := x * 2, y][0:2], lambda x: (y := x * 2, y.view(-1)), lambda x: (x * 2).chunk(2), lambda x: ((x *
        2).t(),),
        lambda x: (y := x * 2, y.detach()), lambda x: (y := x * 2, y.t(), y.t()[1:]), lambda x: ((x * 2)[1:],),
    ],
)  # fmt: skip
def test_outputs_that_share_memory(function):
    check(lambda x: tuple(function(x)), [leaf(4, 3)])
    check(lambda x: tuple(function(x)), [torch.randn(4, 3)])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (y := x * 2, y.detach(), y.detach())[1:], lambda x: (y := x.sum(), y.detach(), y.detach().view(1), x + 1)[1:],
        lambda x: (y := x * 2, y.detach()[1:], y.detach().requires_grad_())[1:],
    ],
)  # fmt: skip
def test_a_result_detached_several_times(function):
    check(lambda x: tuple(function(x)), [leaf(4, 3)])
    run = compiled(lambda x: tuple(function(x)), [leaf(4, 3)])
    one, other, *_ = run(leaf(4, 3))
    assert one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()


def test_equal_results_do_not_share_memory():
    check(lambda x: (x + 1, x + 1), [leaf(3)])


def test_copied_input_does_not_share_memory():
    def f(x):
        y = torch.empty_like(x)
        y.copy_(x)
        return y, x.clone()

    check(f, [torch.randn(3)])


def test_write_to_a_returned_view_reaches_the_input():
    run = check(lambda x: (x[1:],), [torch.randn(3)])
    x = torch.zeros(3)
    run(x)[0].add_(1)
    assert x.tolist() == [0, 1, 1]


def test_numbers_and_none():
    check(lambda x: (None, 3, x + 1, 2.5, x.shape[0]), [torch.randn(3)])


def test_new_leaf():
    check(lambda x: (torch.zeros(2, requires_grad=True), x * 2), [leaf(3)])


def test_strides_of_results():
    check(lambda x: ((x + 1).t().add_(1), x.t() + 1), [leaf(3, 4)])
    check(lambda x: (x.to(memory_format=torch.channels_last) * 2,), [leaf(2, 3, 4, 4)])


def test_written_input_that_overlaps_another_is_refused():
    whole = torch.zeros(4)
    with pytest.raises(UnsupportedAliasing):
        compiled(lambda a, b: (a.add_(1) + b,), [whole[:3], whole[1:]])
    compiled(lambda a, b: (a.add_(1) + b,), [whole[:2], whole[2:]])


def test_two_copies_of_one_input_do_not_share_memory():
    x = torch.randn(3, 4).t()
    one, other = compiled(lambda x: (x.contiguous(), x.reshape(-1)), [x])(x)
    one.zero_()
    torch.testing.assert_close(other, x.reshape(-1))


def test_views_made_again_lie_where_their_memory_does():
    def f(x):
        view = x.as_strided((2,), (3,))
        view.mul_(2)
        x.as_strided((2, 2), (3, 1), 4).mul_(3)
        return view.clone()

    expected = f(torch.arange(12.0).view(4, 3))
    assert torch.equal(pliant.compile(f)(torch.arange(12.0).view(4, 3)), expected)


PARTS = {
    "rows": lambda y: y[1:].clone(),
    "a column": lambda y: y[:, -1].detach().clone(),
    "a view of a copy": lambda y: y[1:].clone().t(),
    "by its dtype": lambda y: y[1:].to(torch.float32, copy=True),
    "the first row, beside all": lambda y: (y[0].clone(), y.sum()),
    "all of it": lambda y: y.view(-1).clone(),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_copied_part_does_not_keep_the_rest(part):
    """What is saved to a file, or kept, is the memory of all of a tensor."""

    def program(x):
        return PARTS[part](x.cumsum(0))

    def memory(results):
        return [(one.storage_offset(), one.stride(), one.untyped_storage().nbytes()) for one in tree_leaves(results)]

    x = torch.ones(4, 3)
    assert memory(pliant.compile(program)(x)) == memory(program(x))
