"""Sums of products are computed by one accumulating call each."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import pliant
from pliant.debug import events

NAMES = ("addmm", "add.Tensor", "mm.default")


def products(function: Callable[..., torch.Tensor], *inputs: torch.Tensor) -> list[str]:
    """The products and sums in the compiled graph, whose result is right."""
    with events.collect("partition") as found:
        got = pliant.compile(function)(*inputs)
    torch.testing.assert_close(got, function(*inputs), rtol=1e-4, atol=1e-4)
    lines = found[0].fields["text"].splitlines()
    return [name for line in lines for name in NAMES if f"aten.{name}" in line]


def test_a_chain() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y + y @ x) + x @ x

    assert products(function, torch.randn(5, 5), torch.randn(5, 5)) == ["mm.default", "addmm", "addmm"]


def test_seen_through_equal_views() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x @ y).view(2, 3, 4) + (x @ x @ y).view(2, 3, 4)

    assert products(function, torch.randn(6, 6), torch.randn(6, 4)) == ["mm.default", "mm.default", "addmm"]


def test_different_views_are_not_added_up() -> None:
    assert "add.Tensor" in products(lambda x: (x @ x).t() + x @ x.t(), torch.randn(4, 4))


@pytest.mark.parametrize("dtype", [torch.int64, torch.float64])
def test_dtypes(dtype: torch.dtype) -> None:
    x = torch.arange(16).view(4, 4).to(dtype)
    expected = ["mm.default", "mm.default", "add.Tensor"] if dtype is torch.int64 else ["mm.default", "addmm"]
    assert products(lambda a: a @ a + a.t() @ a, x) == expected


def test_products_that_are_read_elsewhere_stay() -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        product, other = x @ y, y @ x
        return (product + other) * product * other

    assert "add.Tensor" in products(function, torch.randn(5, 5), torch.randn(5, 5))
