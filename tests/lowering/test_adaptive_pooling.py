"""Windows that divide an image evenly, and windows of several sizes, are loops; results lie as eager's and are as exact."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events


def compare(function, x: torch.Tensor, dynamic: bool = False) -> bool:
    """Whether nothing was called, for values and gradients whose errors are at most twice eager's."""
    ours, theirs, exact = (x.detach().clone().to(t).requires_grad_() for t in (x.dtype, x.dtype, torch.float64))
    with events.collect("extern") as called:
        found, expected, right = pliant.compile(function, dynamic=dynamic)(ours), function(theirs), function(exact)
        grad = torch.randn(found.shape).to(x.dtype)
        found.backward(grad)
    expected.backward(grad)
    right.backward(grad.double())
    assert found.stride() == expected.stride() and ours.grad.stride() == theirs.grad.stride()
    rounding = 2e-7 if x.dtype is torch.float32 else 1e-2 if x.dtype.itemsize == 2 else 1e-15
    for got, eager, best in ((found, expected, right), (ours.grad, theirs.grad, exact.grad)):
        assert torch.equal(got.isnan(), eager.isnan())
        error, allowed = ((one.double() - best).nan_to_num(0).abs().max() for one in (got, eager))
        assert error <= 2 * allowed + rounding
    return not called


SIZES = [7, 8, (1, 5), (16, 33), (3, 2), 32, (40, 66), (16, 2)]


@pytest.mark.spread(2, "size", "dtype")
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_averages(size, dtype):
    x = torch.randn(2, 3, 16, 33)
    x[0, 0, 3, 4] = float("nan")
    assert compare(lambda a: F.adaptive_avg_pool2d(a, size), x.to(dtype))
    assert compare(lambda a: F.adaptive_avg_pool2d(a * 2, size).relu(), torch.randn(3, 16, 33).to(dtype))


def test_what_stays_a_call_is_right():
    last = torch.randn(2, 8, 16, 33).to(memory_format=torch.channels_last)
    assert not compare(lambda a: F.adaptive_avg_pool2d(a, 5), last)
    assert not compare(lambda a: F.adaptive_avg_pool2d(a, 5), torch.randn(2, 3, 400, 20))
    assert not compare(lambda a: F.adaptive_max_pool2d(a, 5), torch.randn(2, 3, 16, 33))
    compare(lambda a: F.adaptive_avg_pool2d(a, 5), torch.randn(2, 3, 16, 33), dynamic=True)


@pytest.mark.parametrize("size", [(4, 11), (16, 33), (8, 11), (4, 33)])
def test_maxima(size):
    x = torch.randn(2, 3, 16, 33).round()
    assert compare(lambda a: F.adaptive_max_pool2d(a, size), x)
    values, positions = pliant.compile(lambda a: F.adaptive_max_pool2d(a, size, return_indices=True))(x)
    assert torch.equal(positions, F.adaptive_max_pool2d(x, size, return_indices=True)[1])


@pytest.mark.parametrize("size", [(20, 40), (32, 66), (31, 67)])
def test_areas_of_a_larger_image(size):
    assert compare(lambda a: F.interpolate(a, size=size, mode="area"), torch.randn(2, 3, 16, 33))


UNEVEN = [  # size, step, padding, rounded up, padding counts
    (3, 1, 1, False, False), (2, 2, 0, True, True), (3, 2, 1, True, True), (3, 2, 1, True, False), ((2, 3), (1, 2), (1, 0), True, False),
    ((3, 4), (2, 3), (1, 2), False, False),
]  # fmt: skip


@pytest.mark.spread(2, "window", "dynamic", "last")
@pytest.mark.parametrize("window", UNEVEN, ids=str)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("last", [False, True], ids=["rows", "channels last"])
def test_averages_over_windows_of_several_sizes(window, dynamic, last):
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.randn(2, 3, 16, 33).to(dtype)
        x = x.to(memory_format=torch.channels_last) if last else x
        none_called = compare(lambda a: F.avg_pool2d(a, *window), x, dynamic)
        assert none_called or dynamic
