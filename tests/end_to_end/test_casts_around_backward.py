"""`torch.autocast` around a compiled forward and around its backward, in blocks of their own: gradients are computed in
the dtypes in which eager computes them."""

import contextlib
import itertools

import pytest
import torch

import pliant

BLOCKS = {
    "none": contextlib.nullcontext,
    "off": lambda: torch.autocast("cpu", enabled=False),
    "bf16": lambda: torch.autocast("cpu", torch.bfloat16),
    "f16": lambda: torch.autocast("cpu", torch.float16),
}


def product(x, w):
    return x @ w


def exact_part(x, w):
    """A block without casts inside of the caller's with them."""
    y = torch.tanh(x @ w)
    with torch.autocast("cpu", enabled=False):
        return y.float() @ w


class Own(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return (x @ w).float()

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad


def hooked(x, w):
    y = x @ w
    y.register_hook(lambda grad: grad @ torch.ones(8, 8))
    return y


PROGRAMS = (product, exact_part, Own.apply, hooked)


def precision(tensor):
    """The fewest bits that hold all elements."""
    return next(dtype for dtype in (torch.bfloat16, torch.float16, torch.float32) if torch.equal(tensor.to(dtype).float(), tensor))


def gradients(fn, first, second, again):
    torch.manual_seed(0)
    x, w = torch.randn(8, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)
    with BLOCKS[first]():
        y = fn(x, w)
    with BLOCKS[second]():
        return torch.autograd.grad(y.sum(), (x, w), create_graph=again)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=["product", "exact_part", "own", "hooked"])
def test_gradients_have_the_precision_of_eager(program, again):
    for first, second in itertools.product(BLOCKS, BLOCKS):
        pliant.reset()
        compiled = pliant.compile(lambda x, w: program(x, w), backend="aot_eager")
        try:
            expected = gradients(program, first, second, again)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match="(?i)type"):
                gradients(compiled, first, second, again)
            assert "type" in str(error)
            continue
        for one, other in zip(gradients(compiled, first, second, again), expected):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
            if program is product or program is Own.apply:
                assert precision(one) == precision(other), (first, second)


def test_a_backward_whose_products_are_cast_already_is_not_made_anew():
    counts = []
    for second in ("off", "bf16"):
        pliant.reset()
        compiled = pliant.compile(lambda x, w: torch.relu(x @ w), backend="aot_eager")
        gradients(compiled, "bf16", second, False)
        counts.append(pliant.stats()["graphs"])
    assert counts[0] == counts[1]
