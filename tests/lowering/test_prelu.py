"""PReLU and its gradients are loops, and eager's in value."""

import pytest
import torch
from torch import nn

import pliant
from pliant.debug import events


@pytest.mark.parametrize("slopes", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_and_gradients(slopes, dtype):
    torch.manual_seed(0)
    module = nn.PReLU(slopes).to(dtype)
    x = torch.randn(2, 3, 5, 7).to(dtype)
    x[0, 0, 0, :4] = torch.tensor([0.0, -0.0, float("nan"), -float("inf")])
    found = []
    with events.collect("loops") as programs:
        for f in (module, pliant.compile(module, dynamic=True)):
            given = x.clone().requires_grad_()
            y = f(given)
            found.append((y, *torch.autograd.grad(y.float().mul(2).sum(), (given, module.weight))))
    for ours, eager in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(ours, eager, check_stride=True, equal_nan=True)
    assert "aten." not in "\n".join(e.fields["text"] for e in programs)
