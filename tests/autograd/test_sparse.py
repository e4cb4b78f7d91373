"""Sparse gradients: handed on as they are; programs that use them run eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import pliant

ROWS = [torch.tensor([i, i + 1, i]) for i in range(3)]


def test_gradients_are_sparse() -> None:
    def learn(wrap: Callable[..., Any]) -> torch.Tensor:
        torch.manual_seed(0)
        table = nn.Embedding(10, 4, sparse=True)
        optimizer = torch.optim.SparseAdam(table.parameters(), 0.1)
        loss = wrap(lambda rows: table(rows).pow(2).sum())
        for rows in ROWS:
            optimizer.zero_grad()
            loss(rows).backward()
            assert table.weight.grad.is_sparse
            optimizer.step()
        return table.weight.detach()

    torch.testing.assert_close(learn(pliant.compile), learn(lambda f: f))


def test_two_lookups() -> None:
    table = nn.Embedding(10, 4, sparse=True)
    pliant.compile(lambda a, b: (table(a) * table(b).exp()).sum())(ROWS[0], ROWS[1]).backward()
    found, table.weight.grad = table.weight.grad.to_dense(), None
    (table(ROWS[0]) * table(ROWS[1]).exp()).sum().backward()
    torch.testing.assert_close(found, table.weight.grad.to_dense())


def test_a_whole_step() -> None:
    def learn(wrap: Callable[..., Any]) -> torch.Tensor:
        torch.manual_seed(0)
        table = nn.Embedding(10, 4, sparse=True)
        optimizer = torch.optim.SGD(table.parameters(), 0.1)

        def step(rows: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = table(rows).pow(2).sum()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = wrap(step)
        return torch.stack([*[run(rows) for rows in ROWS], table.weight.detach().sum()])

    torch.testing.assert_close(learn(pliant.compile), learn(lambda f: f))


def test_values_of_a_sparse_gradient_are_not_overwritten() -> None:
    """The gradient of the sum is also what the derivative of `gelu` reads, last of all."""

    def gradient(wrap: Callable[..., Any]) -> torch.Tensor:
        torch.manual_seed(0)
        table, first, last = nn.Embedding(10, 4, sparse=True), nn.Linear(4, 4), nn.Linear(4, 4)
        program = wrap(lambda x, rows: last(nn.functional.gelu(first(x)) + table(rows)))
        program(torch.rand(3, 4), ROWS[0]).sin().sum().backward()
        return table.weight.grad.to_dense()

    torch.testing.assert_close(gradient(pliant.compile), gradient(lambda f: f))
