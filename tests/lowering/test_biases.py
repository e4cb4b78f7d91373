"""Loops that read a linear layer's result add its bias; the library adds it for other readers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import pliant
from pliant.debug import events


def loops(program: Callable[..., torch.Tensor], *inputs: torch.Tensor, dynamic: bool | None = None) -> str:
    """The loop program of a function, whose result is right."""
    with events.collect("loops") as found:
        got = pliant.compile(program, dynamic=dynamic)(*inputs)
    torch.testing.assert_close(got, program(*inputs))
    return "\n".join(one.fields["text"] for one in found)


def arguments(dtype: torch.dtype = torch.float32, width: int = 5) -> tuple[torch.Tensor, ...]:
    return torch.randn(4, 3, dtype=dtype), torch.randn(width, 3, dtype=dtype), torch.randn(width, dtype=dtype)


@pytest.mark.parametrize("width", [1, 5])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loops_add_the_bias(width: int, dynamic: bool | None, dtype: torch.dtype) -> None:
    text = loops(lambda x, w, b: F.linear(x, w, b).relu().t(), *arguments(dtype, width), dynamic=dynamic)
    assert "aten.mm" in text and "addmm" not in text


def test_through_views() -> None:
    assert "addmm" not in loops(lambda x, w, b: F.linear(x[None], w, b).view(2, 2, 5).softmax(1), *arguments())


@pytest.mark.parametrize(
    "program",
    [
        lambda x, w, b: F.linear(x, w, b),
        lambda x, w, b: F.linear(x, w, b) @ w,
        lambda x, w, b: torch.addmm(b, x, w.t(), beta=2).relu(),
        lambda x, w, b: torch.addmm(b.expand(4, 5) + 1, x, w.t()).relu(),
    ],
)
def test_the_library_adds_it(program: Callable[..., torch.Tensor]) -> None:
    assert "addmm" in loops(program, *arguments())


def test_half_types_round_once() -> None:
    assert "addmm" in loops(lambda x, w, b: F.linear(x, w, b).relu(), *arguments(torch.bfloat16))


def test_gradients() -> None:
    x, w, b = (one.requires_grad_() for one in arguments())

    def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, w, b)).sum()

    got = torch.autograd.grad(pliant.compile(program)(x, w, b), (x, w, b))
    for one, other in zip(got, torch.autograd.grad(program(x, w, b), (x, w, b)), strict=True):
        torch.testing.assert_close(one, other)
