"""Random numbers of compiled programs: eager's own stream, drawn once, also where work is done again in the backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import pliant

F = nn.functional


def dropouts(x: Tensor) -> Tensor:
    return F.dropout(F.dropout(x.sin(), 0.3) * 2, 0.5)


def samplers(x: Tensor) -> Tensor:
    return x * torch.rand_like(x) + torch.randn(x.shape) + torch.bernoulli(torch.full_like(x, 0.5)) + torch.rand(1)


def attention(x: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.2)[0]


def checkpointed(x: Tensor) -> Tensor:
    return checkpoint(lambda t: F.dropout(t.exp(), 0.5).tanh(), x, use_reentrant=False)


def numbers(call: Callable[[Tensor], Tensor], size: int) -> list[Tensor]:
    """Two calls with their gradients, and what is drawn behind them."""
    torch.manual_seed(size)
    found = []
    for _ in range(2):
        x = torch.linspace(-1, 1, size * 4).view(size, 4).requires_grad_()
        y = call(x)
        found += [y, *torch.autograd.grad((y**2).sum(), x)]
    return [*found, torch.rand(3)]


@pytest.mark.spread(2, "budget", "dynamic", "function")
@pytest.mark.parametrize("budget", [1.0, 0.0])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [dropouts, samplers, attention, checkpointed])
def test_eagers_stream(function: Any, dynamic: bool, budget: float) -> None:
    compiled = pliant.compile(function, dynamic=dynamic, options={"memory_budget": budget})
    for size in (5, 9):
        torch.testing.assert_close(numbers(compiled, size), numbers(function, size))


def test_the_mask_of_the_backward_is_that_of_the_forward() -> None:
    x = torch.rand(1000).add(0.1).requires_grad_()
    y = pliant.compile(lambda t: F.dropout(t * 2, 0.5))(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert 300 < (y == 0).sum() < 700
    torch.testing.assert_close(gradient * x, y)


def test_seeded_inside() -> None:
    def function(x: Tensor) -> Tensor:
        torch.manual_seed(3)
        return F.dropout(x, 0.5)

    x = torch.ones(50)
    torch.testing.assert_close(pliant.compile(function)(x), function(x))
