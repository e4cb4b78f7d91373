"""Sparse gradients: handed on as they are; programs that use them run eagerly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
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


def test_any_number_of_rows() -> None:
    for arguments in ({"sparse": True}, {"max_norm": 1.0}, {"sparse": True, "max_norm": 1.0}):
        pliant.reset()
        torch.manual_seed(0)
        ours, theirs = (nn.Embedding(10, 4, **arguments) for _ in range(2))  # type: ignore[arg-type]
        theirs.load_state_dict(ours.state_dict())
        compiled = pliant.compile(lambda rows, table=ours: table(rows) * 2, dynamic=True)
        for n in (3, 5, 2, 7):
            rows = torch.randint(0, 10, (n, n + 1))
            for table, found in ((ours, compiled(rows)), (theirs, theirs(rows) * 2)):
                table.weight.grad = None
                found.square().sum().backward()
            torch.testing.assert_close(ours.weight, theirs.weight)
            assert ours.weight.grad.layout is theirs.weight.grad.layout
            torch.testing.assert_close(ours.weight.grad.to_dense(), theirs.weight.grad.to_dense())
        assert pliant.stats()["graphs"] == 1 and not pliant.stats()["fallbacks"]


def test_a_sparse_tensor_made_inside_is_a_break() -> None:
    def total(places: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return torch.sparse_coo_tensor(places, values * 2, (9, 9)).coalesce().values().sum()

    pliant.reset()
    given = torch.tensor([[1, 2, 1], [3, 4, 3]]), torch.randn(3)
    torch.testing.assert_close(pliant.compile(total)(*given), total(*given))
    assert set(pliant.stats()["break_reasons"]) == {"unsupported-tensor"}


SPARSE_GRADIENTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a product": lambda x: x * 2,
    "laid out otherwise": lambda x: x.t() * 3,
    "a matrix product": lambda x: x @ x.detach(),
}


@pytest.mark.fallbacks_expected
@pytest.mark.parametrize("name", SPARSE_GRADIENTS)
def test_gradients_of_results_that_are_sparse(name: str) -> None:
    """As those are that a lookup with `sparse=True` in a result gives."""
    program = SPARSE_GRADIENTS[name]
    found = []
    for run in (program, pliant.compile(program)):
        x = torch.arange(9.0).reshape(3, 3).requires_grad_()
        result = run(x)
        result.backward(torch.ones_like(result).tril().to_sparse())
        assert x.grad is not None
        found.append((x.grad.layout, x.grad.to_dense()))
    assert found[1][0] is found[0][0]
    torch.testing.assert_close(found[1][1], found[0][1])
