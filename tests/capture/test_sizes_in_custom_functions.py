"""Sizes stay symbolic in the forward and the backward of functions of autograd, as in the code around them."""

import pytest
import torch
from torch.nn import functional as F

import pliant

# C++ that asks for plain sizes where nothing else is tried.
CALLS = {
    "resized": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "resized in place": lambda x: F.interpolate(x, size=x.shape[-2:], mode="bicubic"),
    "product": lambda x: x @ x.transpose(-1, -2),
}


def in_forward(call):
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return call(x) * 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return x * g.sum()

    return lambda x: Function.apply(x.sin())


def in_backward(call):
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * call(x).sum()

    return lambda x: Function.apply(x.sin())


@pytest.mark.parametrize("place", [in_forward, in_backward])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_one_graph_for_all_sizes(call, place):
    function = place(call)
    compiled, before = pliant.compile(function, backend="aot_eager", dynamic=True, fullgraph=True), pliant.stats()["graphs"]
    for rows, length in ((3, 6), (4, 9), (5, 7)):
        x = torch.randn(rows, 2, 4, length)
        ours, eagers = x.clone().requires_grad_(), x.clone().requires_grad_()
        results = compiled(ours), function(eagers)
        torch.testing.assert_close(*results)
        for result in results:
            result.sum().backward()
        torch.testing.assert_close(ours.grad, eagers.grad)
    assert pliant.stats()["graphs"] == before + 1
