"""What is looked up by groups joins the kernel that made it: loops over channels are divided into groups and channels of one."""

import pytest
import torch
import torch.nn.functional as F

from lowering.tracing import trace
from pliant import config
from pliant.lowering.lower import lower
from pliant.runtime.compile_program import compile_program
from pliant.schedule.kernel import Kernel
from pliant.schedule.schedule import schedule


def normalized(x, w, b):
    return F.silu(F.group_norm(x, 3, w, b))


def by_hand(x, w, b):
    """Each group of two channels by its largest number."""
    top = x.view(x.shape[0], x.shape[1] // 2, 2, *x.shape[2:]).amax((2, 3, 4))
    return x * w[:, None, None] - top.repeat_interleave(2, 1)[:, :, None, None]


def two_of_three(x, w, b):
    """Groups of two channels look up what groups of three made."""
    top = x.view(x.shape[0], x.shape[1] // 3, 3, *x.shape[2:]).amax((2, 3, 4))
    return x - top.repeat_interleave(2, 1)[:, :6, None, None].repeat(1, 2, 1, 1)[:, : x.shape[1]]


def kernels(function, args, dynamic=False):
    steps = schedule(lower(trace(function, args, dynamic)), config.Config().schedule).steps
    assert all(isinstance(step, Kernel) for step in steps)
    return len(steps)


def given(images, channels, height, width):
    torch.manual_seed(0)
    return torch.randn(images, channels, height, width), torch.randn(channels), torch.randn(channels)


@pytest.mark.parametrize("function", [normalized, by_hand])
@pytest.mark.parametrize("shape", [(2, 6, 8, 8), (3, 12, 5, 7), (1, 6, 1, 9)])
def test_groups_are_read_once(function, shape):
    assert kernels(function, given(*shape)) == 1


def test_other_groups_stay_apart():
    assert kernels(two_of_three, given(2, 6, 8, 8)) == 2


@pytest.mark.spread(2, "function", "shape", "odd")
@pytest.mark.parametrize("function", [normalized, by_hand, two_of_three])
@pytest.mark.parametrize("shape", [(2, 6, 8, 8), (3, 12, 5, 7), (1, 6, 1, 9), (2, 6, 65, 67), (0, 6, 8, 8)])
@pytest.mark.parametrize("odd", [0.0, float("nan"), float("inf")])
def test_values_are_eagers(function, shape, odd):
    if function is two_of_three and shape[1] != 6:
        pytest.skip("channels that make no groups of three")
    args = given(*shape)
    args[0].view(-1)[:1] += odd
    for dynamic in (False, True):
        (found,) = compile_program(lower(trace(function, args, dynamic)))([*args])
        torch.testing.assert_close(found, function(*args), equal_nan=True)
