"""Operators that write a part of a copy give a copy that lies as its original, gaps included."""

import pytest
import torch

import pliant


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.slice_scatter(x[:1] * 2, 0, 1, 2),
        lambda x: x.select_scatter(x[0].sin(), 0, 2),
        lambda x: x.diagonal_scatter(x.diagonal() + 1),
    ],
)
def test_gaps_stay(write, dynamic):
    for x in (torch.randn(6, 20)[:, :10], torch.randn(8, 30).t()[:12], torch.randn(4, 1).expand(4, 5), torch.randn(4, 4)):
        want, got = write(x), pliant.compile(write, dynamic=dynamic, fullgraph=True)(x)
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()
