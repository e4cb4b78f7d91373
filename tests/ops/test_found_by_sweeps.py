"""The smallest programs behind what the sweeps found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from ops.gradient_check import check, compilers


@pytest.fixture(autouse=True)
def _fresh() -> None:
    pliant.reset()


def _passes(function: Callable[..., Any], *args: Any, whole: bool = True) -> None:
    verdict = check(function, args, {}, *compilers(function, False))
    assert (verdict.status, verdict.fallback) == ("pass", ""), verdict
    assert verdict.whole or not whole, verdict.why


def test_named_results() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    _passes(lambda x: (torch.max(x, 1), torch.sort(x), torch.linalg.slogdet(x @ x.T)), x)
    assert type(pliant.compile(torch.topk)(x, 2)) is torch.return_types.topk


def test_results_that_no_gradient_reaches() -> None:
    x = torch.randn(3, requires_grad=True)
    _passes(lambda x: torch.linalg.vector_norm(x, 0), x)
    norm = pliant.compile(lambda x: torch.linalg.vector_norm(x, 0))(x)
    assert torch.autograd.grad(norm, x, allow_unused=True, create_graph=True) == (None,)


def test_sizes_that_only_the_backward_learns() -> None:
    x, value = torch.randn(2, 4, requires_grad=True), torch.randn((), requires_grad=True)
    mask = torch.tensor([True, False])
    _passes(lambda x, value: x.index_put((mask,), value), x, value)
    _passes(lambda x, value: x.index_fill(1, torch.tensor([0, 0, 2]), value), x, value)


def test_what_resizes_breaks_the_graph() -> None:
    _passes(lambda x: torch.resize_as_(x.clone(), torch.empty(2, 2)) + 1, torch.randn(4), whole=False)
