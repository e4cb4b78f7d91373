"""Parts of a program that are equal but for their tensors: found, compiled once, right in values and versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import pliant
from pliant.autograd import repeated
from pliant.autograd.repeats import Repeats, find_repeats

COUNT = 40


def tensors(*shape: int, count: int = COUNT) -> list[Tensor]:
    return [torch.full(shape, 0.5 + k) for k in range(count)]


def decay(xs: list[Tensor], ys: list[Tensor], rate: float) -> None:
    for x, y in zip(xs, ys):
        y.mul_(0.9).add_(x, alpha=rate)
        x.sub_(y * rate)


def decay_data(xs: list[Tensor], ys: list[Tensor], rate: float) -> None:
    for x, y in zip(xs, ys):
        x.data.add_(y.tanh() * rate)


def with_rest(xs: list[Tensor], ys: list[Tensor], rate: float) -> Tensor:
    decay(xs[1:], ys[1:], rate)
    return (xs[0] + ys[0]).sum() * rate


def chained(xs: list[Tensor], ys: list[Tensor], rate: float) -> None:
    """Each part reads what the one before wrote."""
    for one, other, y in zip(xs, xs[1:], ys):
        other.add_(one * rate).sub_(y)


def summed(xs: list[Tensor], ys: list[Tensor], rate: float) -> None:
    total = torch.stack([y.sum() for y in ys]).sum()
    for x in xs:
        x.div_(total + rate)


def returned(xs: list[Tensor], ys: list[Tensor], rate: float) -> list[Tensor]:
    return [x.mul_(y) + rate for x, y in zip(xs, ys)]


def of_one_tensor(xs: list[Tensor], ys: list[Tensor], rate: float) -> None:
    for x in xs:
        x.mul_(ys[0]).add_(rate).clamp_(-1, 1)


def returned_after_reads(xs: list[Tensor], ys: list[Tensor], rate: float) -> list[Tensor]:
    """What a part begins with reads inputs that nobody writes, as the first step of an optimizer with momentum does."""
    xs[0].mul_(rate)
    return [y.detach().clone() for y in ys + ys]


GROUPS = {decay: 1, decay_data: 1, with_rest: 1, chained: 0, summed: 0, returned: 0, of_one_tensor: 1, returned_after_reads: 0}


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Repeats | None]:
    seen: list[Repeats | None] = []

    def find(captured: Any) -> Repeats | None:
        seen.append(find_repeats(captured))
        return seen[-1]

    monkeypatch.setattr(repeated, "find_repeats", find)
    return seen


@pytest.mark.parametrize("function", GROUPS, ids=lambda f: f.__name__)
def test_values_and_versions_equal_eager(function: Callable[..., Any], found: list[Repeats | None]) -> None:
    compiled = pliant.compile(function, fullgraph=True)
    for rate in (0.5, 0.25, 0.125):
        mine, theirs = ([tensors(2, 3), tensors(2, 3)] for _ in range(2))
        torch.testing.assert_close(compiled(*mine, rate), function(*theirs, rate))
        torch.testing.assert_close(mine, theirs)
        flags = [[t._version > 0 for group in groups for t in group] for groups in (mine, theirs)]
        assert flags[0] == flags[1]
    assert [len(one.groups) if one else 0 for one in found] == [GROUPS[function]] * len(found)


def test_kinds_are_told_apart(found: list[Repeats | None]) -> None:
    groups = [tensors(3), tensors(2, 2), [t.double() for t in tensors(3)]]
    xs = [t for group in groups for t in group]
    expected = [x.clone() for x in xs]
    decay(expected, [x.clone() for x in expected], 0.5)
    pliant.compile(decay, fullgraph=True)(xs, [x.clone() for x in xs], 0.5)
    torch.testing.assert_close(xs, expected)
    assert found[0] is not None
    assert sorted(len(group.rows) for group in found[0].groups) == [COUNT] * 3


def test_shared_memory_is_seen(found: list[Repeats | None]) -> None:
    def rows(flat: Tensor) -> list[Tensor]:
        return [flat[k : k + 2] for k in range(COUNT)]

    flats = [torch.arange(COUNT + 1.0) for _ in range(2)]
    for function, flat in zip((pliant.compile(decay), decay), flats):
        function(rows(flat), tensors(2), 0.5)
    torch.testing.assert_close(*flats)
    assert found == [None] * len(found)


def test_history_is_kept() -> None:
    """Writes that gradients pass through are not taken out of the program."""

    def function(xs: list[Tensor], ys: list[Tensor], rate: float) -> None:
        for x, y in zip(xs, ys):
            x.mul_(y.sin()).add_(rate)

    results = []
    for run in (pliant.compile(function), function):
        xs, leaf = tensors(2), torch.full((2,), 0.3, requires_grad=True)
        run(xs, [leaf * k for k in range(COUNT)], 0.5)
        sum(x.sum() for x in xs).backward()  # type: ignore[union-attr]
        results.append(leaf.grad)
    torch.testing.assert_close(*results)


def test_more_work_than_one_thread_holds_the_interpreter_for() -> None:
    mine, theirs = ([tensors(600, 70), tensors(600, 70)] for _ in range(2))
    pliant.compile(decay, fullgraph=True)(*mine, 0.5)
    decay(*theirs, 0.5)
    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("addresses", [1, 5, 512])
def test_however_many_rows_are_read_at_once(addresses: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pliant.codegen.native.AT_ONCE", addresses)
    given, expected = [tensors(3), tensors(3)], [tensors(3), tensors(3)]
    pliant.reset()
    pliant.compile(decay)(*given, 0.1)
    decay(*expected, 0.1)
    torch.testing.assert_close(given, expected)
