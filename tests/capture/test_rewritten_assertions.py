"""Assertions on tensors, as pytest rewrites them in test files (this is one): compiled once for all sizes, and with eager's text."""

import pytest
import torch

import pliant


def checked(x):
    y = x.sigmoid()
    assert (y <= 1).all()
    assert y.shape[0] > 1 and y.dim() == 1, "a vector"
    assert torch.isfinite(y).all() and y.max() < 2
    return y * 2


def test_captures_at_further_sizes():
    pliant.reset()
    compiled = pliant.compile(checked, backend="eager")
    captures = []
    for size in (3, 5, 7, 9, 5, 3):
        x, before = torch.randn(size), pliant.stats()["graphs"]
        torch.testing.assert_close(compiled(x), checked(x))
        captures.append(pliant.stats()["graphs"] - before)
    assert captures == [4, 4, 0, 0, 0, 0]
    assert pliant.stats()["fallbacks"] == 0


def test_what_fails_is_eagers():
    def program(x):
        y = x * 2
        assert (y <= 1).all(), f"up to {y.max().item()}"
        return y

    pliant.reset()
    compiled = pliant.compile(program, backend="eager")
    assert torch.equal(compiled(-torch.ones(3)), -2 * torch.ones(3))
    for size in (3, 4, 5):
        with pytest.raises(AssertionError) as mine:
            compiled(torch.ones(size))
        with pytest.raises(AssertionError) as theirs:
            program(torch.ones(size))
        assert str(mine.value).splitlines()[0] == str(theirs.value).splitlines()[0]
    assert pliant.stats()["fallbacks"] == 0
