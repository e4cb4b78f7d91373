"""In-place changes of an intermediate's shape are views of it; those of an input are refused and run eagerly."""

import pytest
import torch

import pliant


def transposed(x):
    y = x * 2
    y.t_()
    y.add_(1)
    return y


def unsqueezed(x):
    y = x.sin()
    y.unsqueeze_(0)
    return y * y


def pooled(x):
    y = x.reshape(1, 3, 4, 1).to(memory_format=torch.channels_last)
    return torch.nn.functional.adaptive_avg_pool2d(y, 1)


@pytest.mark.parametrize("function", [transposed, unsqueezed, pooled])
def test_intermediates(function):
    results, grads = [], []
    for call in (function, pliant.compile(function, backend="aot_eager")):
        x = torch.arange(12.0).reshape(3, 4).requires_grad_()
        out = call(x)
        out.square().sum().backward()
        results.append(out)
        grads.append(x.grad)
    torch.testing.assert_close(results[1], results[0])
    assert results[1].stride() == results[0].stride()
    torch.testing.assert_close(grads[1], grads[0])
