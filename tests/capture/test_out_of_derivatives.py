"""`out=` has no derivative: that eager says so is seen whatever memory it names."""

import pytest
import torch

import pliant


@pytest.mark.parametrize("size", [(0,), (2, 2)])
@pytest.mark.parametrize("operator", [torch.mm, torch.add])
def test_out_of_what_requires_grad_is_eagers_error(operator, size):
    def f(x, y):
        return operator(x, y, out=torch.empty(size))

    x, y = torch.ones(2, 2), torch.ones(2, 2)
    compiled = pliant.compile(f)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        compiled(x.clone().requires_grad_(), y)
    assert torch.equal(compiled(x, y), f(x, y))
