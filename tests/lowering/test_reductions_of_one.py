"""Reductions of one element: what they give of values that the general rule would lose."""

import pytest
import torch

import pliant

NORMS = {
    "norm": lambda x: (x * 1).norm(),
    "of rows": lambda x: torch.linalg.vector_norm(x, dim=-1),
    "kept": lambda x: torch.linalg.vector_norm(x, 2, dim=(-1,), keepdim=True),
    "absolute": lambda x: x.norm(p=1, dim=-1),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("values", [[1e20], [-1e-30], [float("nan")]])
def test_norm_of_one(name, values):
    x = torch.tensor(values).reshape(1, 1)
    torch.testing.assert_close(pliant.compile(NORMS[name])(x), NORMS[name](x), rtol=0, atol=0, equal_nan=True)


def test_norm_of_several_rows_of_one():
    x = torch.tensor([[1e20], [3.0], [-1e-30]])
    torch.testing.assert_close(pliant.compile(NORMS["of rows"])(x), NORMS["of rows"](x), rtol=0, atol=0)


SUMS = {
    "rows": lambda x: x.sum(1),
    "columns": lambda x: (x * 1).sum(0),
    "mean": lambda x: x.mean(1),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_sum_of_negative_zero_is_zero(name, dtype):
    x = torch.full((1, 1), -0.0, dtype=dtype)
    expected, found = SUMS[name](x), pliant.compile(SUMS[name])(x)
    assert torch.equal(torch.signbit(found), torch.signbit(expected)) and not found.any()


@pytest.mark.parametrize("size, shape, dims", [((2, 0), (0, 4), 0), ((2, 0, 3), (4, 0), 1), ((2, 0, 3), (3, 0, 2), (0, 1))])
def test_reductions_of_nothing_in_another_shape(size, shape, dims):
    pliant.reset()
    x = torch.randn(size)
    compiled = pliant.compile(lambda x: (x + 1).reshape(shape).sum(dims), dynamic=False)
    assert torch.equal(compiled(x), x.reshape(shape).sum(dims))
    assert pliant.stats()["fallbacks"] == 0
