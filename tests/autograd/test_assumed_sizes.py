"""Sizes that only the data tells, and that a derivative takes to be equal: the forward checks it, in the segment that knows
both, or eager does the call.
"""

import pytest
import torch

import pliant
from pliant.debug import events


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, k, v):
        ctx.save_for_backward(k, v)
        return k.sum() + v.sum()

    @staticmethod
    def backward(ctx, g):
        k, v = ctx.saved_tensors
        return g * k * v, g * v


@torch.library.custom_op("assumed_sizes::product", mutates_args=())
def product(k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return k.sum() + v.sum()


product.register_fake(lambda k, v: k.new_empty(()))
product.register_autograd(
    lambda ctx, g: (g * ctx.saved_tensors[0] * ctx.saved_tensors[1], g * ctx.saved_tensors[1]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def counted(x):
    n = (x[:, 0] > 0).sum().item()
    torch._check(n >= 0)
    torch._check(n <= x.shape[0])
    return n


def whole(combine):
    return lambda x, y: combine(x.sin().narrow(0, 0, counted(x)), x.cos().narrow(0, 0, counted(y)))


def cut(combine):
    """Parts that are returned, so that the caller may ask for gradients through them, are in a segment of their own."""

    def program(x, y):
        k, v = x.sin().narrow(0, 0, counted(x)), x.cos().narrow(0, 0, counted(y))
        return combine(k, v) + 2 * k.sum(), k, v

    return program


def gradient(function, x, y):
    found = function(x, y)
    loss = found if isinstance(found, torch.Tensor) else found[0] + found[1].sin().sum()
    return torch.autograd.grad(loss, x)[0]


def with_positive(x, count):
    x = x.detach().abs()
    x[count:] *= -1
    return x.requires_grad_()


@pytest.mark.parametrize("backend", ["aot_eager", "pliant"])
@pytest.mark.parametrize("combine", [Product.apply, product], ids=["function", "operator"])
@pytest.mark.parametrize("form", [whole, cut])
def test_equal_and_other_sizes(form, combine, backend):
    program = form(combine)
    compiled = pliant.compile(program, backend=backend)
    x = torch.randn(6, 2)
    for count in (3, 5):
        with events.collect("fallback", "assumption", "graph_break") as seen:
            args = with_positive(x, count), with_positive(x.cos(), count)
            torch.testing.assert_close(gradient(compiled, *args), gradient(program, *args))
        assert not seen, [e.fields for e in seen]
    args = with_positive(x, 3), with_positive(x, 4)
    for function in (program, compiled):
        with pytest.raises(RuntimeError, match="must match"):
            gradient(function, *args)


def test_a_size_from_before_a_cut_is_checked_where_it_is_made():
    def program(x, counts):
        ids = torch.repeat_interleave(torch.arange(3), counts)
        y = x * 2
        z = y.exp()  # of what the caller gets, too
        return y, z, ids == torch.arange(9)

    pliant.reset()
    compiled = pliant.compile(program)
    x = torch.ones(3, 4, requires_grad=True)
    for counts in ([3, 3, 3], [1, 2, 6]):
        found, expected = (one(x, torch.tensor(counts)) for one in (compiled, program))
        assert torch.equal(found[2], expected[2])
        assert torch.allclose(*(torch.autograd.grad(one[0].sum() + one[1].sum(), x)[0] for one in (found, expected)))
    assert not pliant.stats()["assumptions"]
    with pytest.raises(RuntimeError, match="size of tensor"):
        compiled(x, torch.tensor([3, 3, 2]))


@pytest.mark.parametrize("trains", [False, True])
def test_a_size_that_an_assumption_would_tell_of_an_input(trains):
    def program(x, n):
        return torch.ones(2)[: n[0].item()] + x.sum(1)

    pliant.reset()
    compiled = pliant.compile(program, dynamic=True)
    for rows, n in ((6, 2), (6, 1), (2, 2), (5, 2), (2, 1)):
        args = torch.ones(rows, 3, requires_grad=trains), torch.tensor([n])
        if n == rows or n == 1:
            torch.testing.assert_close(compiled(*args), program(*args))
            continue
        with pytest.raises(RuntimeError, match="must match"):
            compiled(*args)
