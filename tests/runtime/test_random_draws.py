"""Draws of compiled code are PyTorch's to the bit, and leave the generator as PyTorch does."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import pliant
from pliant.runtime import random_draws
from pliant.runtime.random_draws import LEAST, bernoulli


def alike(draw: Callable[[], torch.Tensor], eager: Callable[[], torch.Tensor], generator: torch.Generator) -> None:
    """The same elements, strides and state, several times in turn."""
    for between in (0, 1, 2, 700):
        before = generator.get_state()
        got, after = draw(), generator.get_state()
        generator.set_state(before)
        expected = eager()
        assert torch.equal(got, expected) and got.stride() == expected.stride()
        assert torch.equal(after, generator.get_state())
        torch.randint(0, 5, (between,), generator=generator)


@pytest.mark.skipif(not random_draws.takes_tensors(), reason="tensors are not read in memory")
def test_this_pytorch_draws_so() -> None:
    assert random_draws._agrees()


@pytest.mark.parametrize("p", [0.0, 1e-300, 1e-17, 0.1, 1 / 3, 0.5, 1 - 2**-53, 1.0])
@pytest.mark.parametrize("size", [(LEAST,), (LEAST + 1,), (33, 40), (5000,)])
def test_bits(p: float, size: tuple[int, ...]) -> None:
    x = torch.empty(size)
    alike(lambda: bernoulli(x, p), lambda: torch.empty_like(x).bernoulli_(p), torch.default_generator)


def test_layouts_and_generators() -> None:
    generator = torch.Generator()
    generator.manual_seed(3)
    for x in (torch.empty(50, 40).t(), torch.empty(50, 40)[::2, 1:], torch.empty(2, 8, 9, 9).permute(0, 3, 1, 2)):
        alike(
            lambda x=x: bernoulli(x, 0.3, generator=generator),
            lambda x=x: torch.empty_like(x).bernoulli_(0.3, generator=generator),
            generator,
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64])
def test_other_dtypes_are_drawn_by_pytorch(dtype: torch.dtype) -> None:
    x = torch.empty(2 * LEAST, dtype=dtype)
    alike(lambda: bernoulli(x, 0.3), lambda: torch.empty_like(x).bernoulli_(0.3), torch.default_generator)


@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan])
def test_errors_are_pytorchs(p: float) -> None:
    with pytest.raises(RuntimeError, match="expects p"):
        bernoulli(torch.empty(2 * LEAST), p)


def test_who_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch where other threads may draw meanwhile, or where it draws differently."""
    drawn: list[int] = []
    monkeypatch.setattr(random_draws, "_draw", lambda result, *_: drawn.append(result.numel()))
    monkeypatch.setattr(random_draws, "_agrees", lambda: True)
    monkeypatch.setattr(random_draws.threading, "active_count", lambda: 1)
    x = torch.empty(2 * LEAST)
    bernoulli(x, 0.5)
    assert drawn == [2 * LEAST]
    bernoulli(x[: LEAST - 1], 0.5)
    monkeypatch.setattr(random_draws.threading, "active_count", lambda: 2)
    bernoulli(x, 0.5)
    monkeypatch.setattr(random_draws.threading, "active_count", lambda: 1)
    monkeypatch.setattr(random_draws, "_agrees", lambda: False)
    bernoulli(x, 0.5)
    assert drawn == [2 * LEAST]


@pytest.mark.parametrize("dynamic", [None, True])
def test_dropout(dynamic: bool | None) -> None:
    x = torch.randn(40, 50, requires_grad=True)

    def program(a: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(a * 2, 0.1) + 1, 0.7)

    compiled = pliant.compile(program, dynamic=dynamic)

    def run(function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        y = function(x)
        return torch.stack([y, *torch.autograd.grad(y.sum(), x)]).detach()

    compiled(x)
    alike(lambda: run(compiled), lambda: run(program), torch.default_generator)
