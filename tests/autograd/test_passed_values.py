"""What one compiled function returns and another takes is gone when nobody else holds it, and had again if needed."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest
import torch
from torch import nn

import pliant


def _layers() -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.3)) for _ in range(3)]


def _derivatives(layers: list[nn.Module], calls: list[Callable[..., torch.Tensor]], view: bool) -> list[torch.Tensor]:
    """The result and derivatives of three orders."""
    torch.manual_seed(1)
    x = torch.randn(4, 4, requires_grad=True)
    first, *others = calls
    y = first(x)
    y = y.t()[1:].t() if view else y[:, :3]
    for call in others:
        y = call(torch.nn.functional.pad(y, (0, 1)) if y.shape[1] == 3 else y)
    found = [y]
    for _ in range(3):
        parameters = [p for layer in layers for p in layer.parameters()]
        gradients = torch.autograd.grad(found[-1].exp().sum(), [x, *parameters], create_graph=True, allow_unused=True)
        found += [g for g in gradients if g is not None][::-1]
    return found


@pytest.mark.parametrize("view", [False, True])
def test_derivatives_of_a_chain(view: bool) -> None:
    layers = _layers()
    mine = _derivatives(layers, [pliant.compile(layer) for layer in layers], view)
    torch.testing.assert_close(mine, _derivatives(layers, list(layers), view))


def test_memory_is_free() -> None:
    first, second = (pliant.compile(function) for function in (lambda x: x.sin() * 2, lambda x: (x * 2).exp()))
    x = torch.randn(3, 3, requires_grad=True)
    for _ in range(2):
        passed = first(x)
        watched = weakref.ref(passed)
        result = second(passed[:])
        del passed
    assert watched() is None
    (slope,) = torch.autograd.grad(result.sum(), x, create_graph=True)
    expected = (x.sin() * 4).exp()
    (wanted,) = torch.autograd.grad(expected.sum(), x, create_graph=True)
    torch.testing.assert_close(torch.autograd.grad(slope.sum(), x), torch.autograd.grad(wanted.sum(), x))


def test_breaks_in_a_function() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = torch.tanh(x @ w)
        print(end="")
        g = torch.sigmoid(h.t() @ w)
        print(end="")
        return (g @ w).exp().sum()

    x, w = (torch.randn(4, 4, requires_grad=True) for _ in range(2))

    def second(call: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, ...]:
        gradients = torch.autograd.grad(call(x, w), (x, w), create_graph=True)
        return torch.autograd.grad(sum(g.pow(2).sum() for g in gradients), (x, w))

    torch.testing.assert_close(second(pliant.compile(f)), second(f), rtol=1e-4, atol=1e-4)


def test_hooks_are_heard() -> None:
    def run(first: Callable[..., torch.Tensor], second: Callable[..., torch.Tensor]) -> torch.Tensor:
        x = torch.full((3,), 0.5, requires_grad=True)
        passed = first(x)
        passed.register_hook(lambda g: g * 3)
        result = second(passed)
        del passed
        (slope,) = torch.autograd.grad(result.sum(), x, create_graph=True)
        return torch.autograd.grad(slope.sum(), x)[0]

    functions = (torch.sin, torch.exp)
    torch.testing.assert_close(run(*[pliant.compile(lambda t, f=f: f(t)) for f in functions]), run(*functions))


def test_results_that_depend_on_what_is_not_kept_are() -> None:
    """The derivative of a linear function needs no values: those of its inputs are not kept, so it cannot be called again."""

    def f(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = (x * 2)[1:]
        pliant.graph_break()
        return (y.exp() * w).sum()

    def second(call: Callable[..., torch.Tensor]) -> tuple[torch.Tensor, ...]:
        torch.manual_seed(0)
        x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, requires_grad=True)
        (slope,) = torch.autograd.grad(call(x, w), x, create_graph=True)
        return torch.autograd.grad(slope.sum(), (x, w))

    torch.testing.assert_close(second(pliant.compile(f)), second(f))
