"""Inputs with gaps in their memory: at most one more compile as their sizes change, none if all are symbols."""

import pytest
import torch

import pliant

LENGTHS = (8, 9, 12, 16, 32)
INPUTS = {
    "a part of a square": lambda s: torch.randn(2, 1, s, s)[:, 0, 0, :],
    "the start of a buffer": lambda s: torch.randn(3, 64)[:, :s],
    "half of each row": lambda s: torch.randn(3, 2 * s)[:, :s],
    "every other element": lambda s: torch.randn(3, 2 * s)[:, ::2],
    "a part of the columns": lambda s: torch.randn(3, s, 96)[:, :, 32:64],
    "transposed": lambda s: torch.randn(3, s, 7).transpose(0, 1),
    "a window of one image": lambda s: torch.randn(1, s, 96)[:, :, 32:64],
}


@pytest.mark.spread(2, "dynamic", "name")
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", INPUTS)
def test_compiles(name, dynamic):
    pliant.reset()

    def program(x):
        return (x * 2).sum(-1) + x.sin().sum()

    compiled = pliant.compile(program, dynamic=dynamic)
    for length in LENGTHS:
        x = INPUTS[name](length)
        torch.testing.assert_close(compiled(x), program(x))
    assert pliant.stats()["graphs"] == (1 if dynamic else 2)


@pytest.mark.parametrize("batch", [2, 1])
def test_windows_over_heads(batch):
    """`as_strided` of what was reshaped over a transposed product."""

    def program(x, w):
        h = torch.nn.functional.linear(x, w).view(batch, 64, 4, 8).transpose(1, 2).reshape(batch * 4, 64, 8)
        return h.as_strided((batch * 4, 7, 16, 8), (h.stride(0), h.stride(1) * 8, h.stride(1), 1)) * 2

    x, w = torch.randn(batch, 64, 32), torch.randn(32, 32)
    torch.testing.assert_close(pliant.compile(program)(x, w), program(x, w))


@pytest.mark.parametrize(
    "part",
    [
        lambda width: torch.randn(5, width)[:, 0],
        lambda width: torch.randn(1, width)[:, 0],
        lambda width: torch.randn(3, 1, width)[:, :, 0],
    ],
)
def test_a_column_of_matrices_of_many_widths(part):
    """Its sizes are numbers and its stride is not: one capture more, not one a width."""
    function = pliant.compile(lambda x: x * 2 + 1)
    pliant.reset()
    for width in (73, 59, 114, 98, 50):
        x = part(width)
        assert torch.equal(function(x), x * 2 + 1) and function(x).stride() == (x * 2 + 1).stride()
    assert pliant.stats()["graphs"] == 2
    pliant.reset()
