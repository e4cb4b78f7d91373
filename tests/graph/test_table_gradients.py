"""A table that is looked up more than once has one gradient."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import embedding

import pliant
from pliant.debug import events


def gradients(rows: int, one: torch.Tensor, other: torch.Tensor, **options: object) -> int:
    """How many gradients of the table are computed; their sum is right."""

    def function(table: torch.Tensor) -> torch.Tensor:
        first, second = embedding(one, table, **options), embedding(other, table, **options)  # type: ignore[arg-type]
        return first.sin().sum() + (second.transpose(0, 1) * 2).exp().sum()

    table = torch.randn(rows, 3, requires_grad=True)
    with events.collect("partition") as found:
        got = torch.autograd.grad(pliant.compile(function)(table), table)
    torch.testing.assert_close(got, torch.autograd.grad(function(table), table))
    return int(found[0].fields["text"].count("aten.embedding_dense_backward"))


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}])
def test_lookups_are_joined(options: dict[str, int]) -> None:
    assert gradients(50, torch.randint(0, 50, (2, 5)), torch.randint(0, 5, (7,)), **options) == 1


def test_a_small_table_has_a_gradient_for_each() -> None:
    assert gradients(8, torch.randint(0, 8, (2, 5)), torch.randint(0, 8, (7,))) == 2


def test_counted_rows_stay_apart() -> None:
    rows = torch.randint(0, 50, (2, 5))
    assert gradients(50, rows, rows + 0, scale_grad_by_freq=True) == 2
