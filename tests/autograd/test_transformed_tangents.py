"""Gradients of compiled functions for many tangents at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch._vmap_internals import _vmap

import pliant
from pliant.graph.interpret import _Run


def _net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("again", [False, True])
def test_batched_tangents(dynamic: bool, transposed: bool, again: bool) -> None:
    net = _net()
    x = torch.randn(2, 4, requires_grad=True)
    tangents = torch.randn(6, 3, 2).transpose(1, 2) if transposed else torch.eye(6).view(6, 2, 3)

    def gradients(call: Callable[..., Any]) -> list[torch.Tensor]:
        result = call(x)
        (first,) = torch.autograd.grad(result, x, tangents, is_grads_batched=True, create_graph=again)
        return [first, *(torch.autograd.grad(first.pow(2).sum(), x) if again else ())]

    torch.testing.assert_close(gradients(pliant.compile(net, dynamic=dynamic)), gradients(net))


def test_samples_lie_otherwise_than_the_tangent_that_was_traced() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.cos().t().reshape(2, -1).t() * x.reshape(-1, 2)

    x = torch.randn(4, 4)
    found = torch.autograd.functional.jacobian(pliant.compile(f), x, vectorize=True)
    torch.testing.assert_close(found, torch.autograd.functional.jacobian(f, x))


def test_a_pullback_is_mapped() -> None:
    net = _net()
    x = torch.randn(2, 4, requires_grad=True)
    result = pliant.compile(net)(x)
    found = torch.func.vmap(lambda t: torch.autograd.grad(result, x, t, retain_graph=True)[0])(
        torch.eye(6).view(6, 2, 3)
    )
    torch.testing.assert_close(found.view(2, 3, 2, 4), torch.autograd.functional.jacobian(net, x.detach()))


def test_batched_tangents_inside() -> None:
    def f(x: torch.Tensor) -> Any:
        return torch.autograd.grad(x.sin(), x, torch.eye(4), is_grads_batched=True)

    x = torch.randn(4, requires_grad=True)
    torch.testing.assert_close(pliant.compile(f)(x), f(x))


def test_a_result_of_leaves_that_the_program_keeps_requires_gradients() -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x * torch.ones(3).requires_grad_()

    for call in (f, pliant.compile(f), pliant.compile(f, backend="aot_eager")):
        result = call(torch.ones(3))
        assert result.requires_grad and not result.is_leaf
        result.sum().backward()


def test_such_a_result_may_be_a_view() -> None:
    """The layer's parameters are made by the program; the kernel gives a view of what it allocated."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.GroupNorm(2, 4)(x)

    x = torch.randn(3, 4)
    result = pliant.compile(program)(x)
    torch.testing.assert_close(result, program(x))
    assert result.requires_grad


def test_batched_tangents_of_what_is_left() -> None:
    """What was saved for the other result is gone."""

    def program(x: torch.Tensor, p: torch.Tensor) -> Any:
        return x * x, p.atan2(p + 1)

    def gradient(f: Callable[..., Any]) -> Any:
        x, p = torch.rand(3, requires_grad=True), torch.linspace(1, 2, 3, requires_grad=True)
        first, second = f(x, p)
        first.sum().backward()
        return torch.autograd.grad(second, p, torch.eye(3), is_grads_batched=True)

    torch.testing.assert_close(gradient(pliant.compile(program)), gradient(program))


@pytest.mark.parametrize("mapped", [False, True])
def test_batched_tangents_of_strided_views(mapped: bool) -> None:
    """The gradient of such a view is written into zeros, which its tangents alone make batched."""

    def program(x: torch.Tensor) -> Any:
        return x.sin().as_strided((2, 2), (2, 1), 1).exp()

    x = torch.linspace(0, 1, 12).view(4, 3).requires_grad_()
    tangents = torch.arange(8.0).view(2, 2, 2)

    def gradient(f: Callable[..., Any]) -> Any:
        result = f(x)
        if mapped:
            return torch.func.vmap(lambda t: torch.autograd.grad(result, x, t, retain_graph=True)[0])(tangents)
        return torch.autograd.grad(result, x, tangents, is_grads_batched=True)[0]

    torch.testing.assert_close(gradient(pliant.compile(program)), gradient(program))


def _of_one_element(x):
    return (x + 0j).conj().resolve_conj().sum().real  # whose gradient is one element in every place


def test_gradients_of_one_element_in_many_places():
    x = torch.rand(3, requires_grad=True)
    first, second = (
        torch.autograd.grad(f(x), x, torch.tensor([1.0, 2.0]), is_grads_batched=True)[0]
        for f in (_of_one_element, pliant.compile(_of_one_element))
    )
    assert torch.equal(first, second)


@pytest.mark.parametrize("batched", [torch.vmap, _vmap], ids=["transform", "gradients"])
@pytest.mark.parametrize("strides", [(0, 1), (1, 0), (6, 2), (0, 2), (0, 0), (4, 1)], ids=str)
def test_what_has_a_batch_is_copied_with_strides(strides, batched):
    lies = []

    def copied(value):
        made = _Run.copied(None, value.expand(2, 3), list(strides))
        lies.append(made.stride())
        return made

    given = torch.rand(4, *[size if stride else 1 for size, stride in zip((2, 3), strides)])
    assert torch.equal(batched(copied)(given), given.expand(4, 2, 3)) and lies == [strides]
