"""A tensor that is put together part by part, and read in between, is computed in one loop."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import pliant
from lowering.tracing import lowered
from pliant.debug import events


def loops(function: Callable[..., torch.Tensor], *args: torch.Tensor, dynamic: bool = False) -> int:
    """In how many loops the function is computed; its results and gradients are eager's."""
    with events.collect("loops") as found:
        ours = [a.clone().requires_grad_() for a in args]
        theirs = [a.clone().requires_grad_() for a in args]
        got, expected = pliant.compile(function, dynamic=dynamic)(*ours), function(*theirs)
        torch.testing.assert_close(got, expected)
        assert got.stride() == expected.stride()
        grad = torch.randn(expected.shape)
        got.backward(grad)
        expected.backward(grad)
    torch.testing.assert_close([a.grad for a in ours], [a.grad for a in theirs])
    return found[0].fields["text"].count("] = ")  # of the forward


def test_edges_that_are_copied_from_what_was_written() -> None:
    assert loops(lambda a: F.pad(a, (2, 2, 1, 1), mode="circular"), torch.randn(2, 3, 8, 9)) == 1
    assert loops(lambda a: F.pad(a, (3, 0), mode="circular"), torch.randn(2, 3, 40)) == 1
    assert loops(lambda a: F.pad(a, (1, 2, 0, 1, 2, 2), mode="circular"), torch.randn(2, 3, 4, 5, 6)) <= 2


def test_a_place_is_read_where_it_was_written() -> None:
    def rows(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        made = torch.empty(4, 6)
        made[0], made[1:3] = b, a[1:]
        made[3], made[-4] = made[1], made[0] + made[2]
        return made

    loops(rows, torch.randn(3, 6), torch.randn(6))
    loops(rows, torch.randn(3, 6), torch.randn(6), dynamic=True)


def test_what_costs_is_computed_once() -> None:
    def joined(a: torch.Tensor) -> torch.Tensor:
        b = a.exp().tanh()
        return torch.cat([b[:, 3:], b[:, :3]], 1)

    assert len(lowered(joined, torch.randn(4, 40)).computations) == 2


@pytest.mark.parametrize("seed", range(40))
def test_parts_that_overlap_or_not(seed: int) -> None:
    chosen = random.Random(seed)
    cuts = []
    for _ in range(chosen.randint(2, 6)):
        dim, length = chosen.randint(0, 1), chosen.randint(1, 3)
        starts = [chosen.randint(-5, 5 - length) for _ in range(2)]
        starts = [s if s >= 0 or s + length < 0 else s - 5 for s in starts]
        cuts.append((dim, length, *starts, chosen.choice(["slice", "select", "add"])))

    def program(a: torch.Tensor) -> torch.Tensor:
        made = a.clone()
        for dim, length, into, out, kind in cuts:
            if kind == "select":
                made.select(dim, into % 5).copy_(made.select(dim, out % 5))
                continue
            read = made.narrow(dim, out % 5 if out % 5 + length <= 5 else 0, length).clone()
            target = made.narrow(dim, into % 5 if into % 5 + length <= 5 else 0, length)
            target.copy_(read) if kind == "slice" else target.add_(read)
        return made

    loops(program, torch.randn(5, 5))
