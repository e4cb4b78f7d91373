"""The gradients of group normalization are loops: each channel of each image is summed once."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events


def gradients(f, x, w, b, weights):
    given = [None if t is None else t.detach().requires_grad_() for t in (x, w, b)]
    return torch.autograd.grad(f(*given), [t for t in given if t is not None], weights)


@pytest.mark.spread(2, "dynamic", "affine", "dtypes", "shape")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("dtypes", [(torch.float32, torch.float32), (torch.bfloat16, torch.float32)])
@pytest.mark.parametrize("shape", [(3, 8, 5, 7), (2, 8, 33)])
def test_gradients(shape, dtypes, affine, dynamic):
    def f(x, w, b):
        return F.group_norm(x, 4, w, b)

    dtype, parameters = dtypes
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=dtype)
    w, b = torch.rand(2, 8, dtype=parameters) + 0.5 if affine else (None, None)
    weights = torch.randn(shape, dtype=dtype)
    with events.collect("output_code") as found:
        got = gradients(pliant.compile(f, dynamic=dynamic), x, w, b, weights)
    assert not any("group_norm_backward_default(" in one.fields["text"] for one in found)
    eager = gradients(f, x, w, b, weights)
    exact = gradients(f, x.double(), *(None if t is None else t.double() for t in (w, b)), weights.double())
    for ours, theirs, right in zip(got, eager, exact):
        assert (ours.dtype, ours.stride()) == (theirs.dtype, theirs.stride())
        error, allowed = ((t.double() - right).abs().max() for t in (ours, theirs))
        assert error <= 2 * allowed + 1e-6 * right.abs().max()


@pytest.mark.parametrize("mask", [(True, False, False), (False, True, True), (False, False, True)])
def test_those_that_are_asked_for(mask):
    x, grad, w = torch.randn(2, 6, 9), torch.randn(2, 6, 9), torch.rand(6)
    _, mean, rstd = torch.native_group_norm(x, w, None, 2, 6, 9, 3, 1e-5)

    def f(*given):
        return [t for t in torch.ops.aten.native_group_norm_backward(*given, 2, 6, 9, 3, mask) if t is not None]

    given = grad, x, mean, rstd, w
    torch.testing.assert_close(pliant.compile(f, dynamic=False)(*given), f(*given))
