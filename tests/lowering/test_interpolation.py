"""Images of any other size: errors at most twice eager's, strides eager's, nothing called."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events

X = {1: torch.randn(2, 3, 33), 2: torch.randn(2, 3, 13, 33), 3: torch.randn(2, 3, 5, 6, 7)}
MODES = {"linear": 1, "bilinear": 2, "trilinear": 3, "bicubic": 2}
FORMS = [{"size": 9}, {"size": 50}, {"scale_factor": 1.7}, {"scale_factor": 0.4}, {"scale_factor": 3}, {"size": 1}]


def compare(function, x: torch.Tensor, dynamic: bool = False) -> bool:
    """Whether nothing was called, for results whose error is at most twice eager's."""
    with events.collect("extern") as called:
        found = pliant.compile(function, dynamic=dynamic)(x)
    eager, exact = function(x), function(x.double())
    assert found.stride() == eager.stride() and found.dtype is eager.dtype
    assert torch.equal(found.isnan(), eager.isnan())
    error, allowed = ((one.double() - exact).nan_to_num(0, 0, 0).abs().max() for one in (found, eager))
    rounding = 2e-7 if x.dtype is torch.float32 else 1e-2 if x.dtype.itemsize == 2 else 1e-14
    assert error <= 2 * allowed + rounding * exact.nan_to_num(0, 0, 0).abs().max()
    return not called


@pytest.mark.spread(2, "mode", "dtype", "aligned")
@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_sizes_and_scales(mode, aligned, dtype):
    for form in FORMS:
        assert compare(lambda a: F.interpolate(a, mode=mode, align_corners=aligned, **form), X[MODES[mode]].to(dtype))


def test_one_dimension_changes_alone_and_infinities():
    x = X[2].clone()
    x[0, 0, 3, 4] = float("inf")
    x[1, 2, 0, 0] = float("nan")
    for size in ((13, 50), (20, 33), (5, 50)):
        assert compare(lambda a: F.interpolate(a, size, mode="bilinear"), x)
        assert compare(lambda a: F.interpolate(a.relu(), size, mode="bicubic") + 1, X[2])


def test_what_stays_a_call_is_right():
    assert not compare(lambda a: F.interpolate(a, 20, mode="bilinear"), X[2].to(memory_format=torch.channels_last))
    assert not compare(lambda a: F.interpolate(a, 20, mode="bicubic"), X[2], dynamic=True)
    assert not compare(lambda a: F.interpolate(a, (13, 33), mode="bicubic"), X[2])


def test_gradients_are_eagers():
    ours, theirs = X[2].clone().requires_grad_(), X[2].clone().requires_grad_()

    def function(a):
        return F.interpolate(a, (20, 17), mode="bilinear").square().sum()

    pliant.compile(function)(ours).backward()
    function(theirs).backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
