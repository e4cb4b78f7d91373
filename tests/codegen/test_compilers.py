"""Programs whose kernels a compiler of C got wrong: the texts say less to it since."""

import pytest
import torch

import pliant


def test_selects_by_flags_that_are_related():
    """The gradient of a row has parts of two rows: gcc 12 took the wrong side where whole vectors are computed."""

    def program(x):
        spread = x.var(0, unbiased=False)
        doubled = x.select(0, 1).unsqueeze(0).expand(x.shape[0], -1)
        length = spread.norm(dim=0)
        doubled = doubled * 2
        copied = x.clone()
        copied[0].copy_(doubled[0])
        return copied, length

    torch.manual_seed(0)
    x = torch.randn(4, 6, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(4, 6, dtype=torch.float64)
    compiled = pliant.compile(program, dynamic=False)
    for factor in (0.0, 1.0):
        found, expected = (
            torch.autograd.grad((results[0] * weights).sum() + factor * results[1], x)[0]
            for results in (compiled(x), program(x))
        )
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("columns", [3, 70])
def test_extremes_of_what_is_infinite(columns, dtype):
    """A maximum that OpenMP folds begins at the least finite number for clang."""
    pliant.reset()
    x = torch.full((4, columns), -torch.inf, dtype=dtype)
    found = pliant.compile(lambda x: (x.amax(-1), (-x).amin(-1), torch._safe_softmax(x, -1)))(x)
    assert found[0].tolist() == [-torch.inf] * 4 and found[1].tolist() == [torch.inf] * 4 and not found[2].any()
