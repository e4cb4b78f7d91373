"""Buffers of 32 MB and more are asked to lie in large pages; values and ownership are as without."""

from __future__ import annotations

import sys

import pytest
import torch

import pliant
from pliant.debug import events
from pliant.wrappers import large_buffers

ROWS = (large_buffers.LEAST // 4 >> 10) + 1  # of 1024 floats


def asks(x: torch.Tensor, dynamic: bool | None) -> bool:
    """Whether the wrapper of a function of `x` asks for large pages; its result is right."""
    with events.collect("output_code") as found:
        got = pliant.compile(lambda a: (a + 1).sum(0, keepdim=True) + a, dynamic=dynamic)(x)
    assert torch.equal(got[-1], (x + 1).sum(0) + x[-1])
    return "in_large_pages" in found[0].fields["text"]


@pytest.mark.parametrize("dynamic", [None, True])
def test_large_results(dynamic: bool | None) -> None:
    assert asks(torch.zeros(ROWS, 1024), dynamic)


def test_the_smallest_that_is_mapped_anew() -> None:
    assert asks(torch.zeros(ROWS - 1, 1024), None)


def test_small_results() -> None:
    assert not asks(torch.zeros(ROWS // 16, 1024), None)


def test_a_size_that_was_small_when_compiled() -> None:
    compiled = pliant.compile(lambda a: a * 2, dynamic=True)
    for rows in (8, ROWS):
        assert torch.equal(compiled(torch.ones(rows, 1024)), torch.full((rows, 1024), 2.0))


@pytest.mark.parametrize("platform", [sys.platform, "darwin"])
def test_the_tensor_is_the_same(monkeypatch: pytest.MonkeyPatch, platform: str) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    large_buffers._advise.cache_clear()
    for size in (0, 1, large_buffers.LEAST // 4 + 5):
        tensor = torch.empty(size)
        assert large_buffers.in_large_pages(tensor) is tensor
        tensor.fill_(1)
        assert tensor.sum() == size
    large_buffers._advise.cache_clear()


def test_no_system_call_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_buffers, "_advise", lambda: None)
    tensor = torch.empty(large_buffers.LEAST)
    assert large_buffers.in_large_pages(tensor) is tensor
