"""Depthwise convolutions of channels-last images are loops where a target wants them; others are the library's calls."""

import dataclasses

import pytest
import torch
from torch.nn.functional import conv2d

from lowering.tracing import check, trace
from pliant.ir.loops import Extern
from pliant.lowering.lower import lower
from pliant.targets import cpu, registry

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def target():
    """The host, with loops for depthwise convolutions."""
    there = cpu.target()
    images = frozenset((torch.float32, torch.bfloat16))
    registry.provide("cpu", lambda _: dataclasses.replace(there, depthwise_images=images, depthwise_sums=1000))
    yield
    registry.provide("cpu", lambda _: there)


def last(*shape, dtype=torch.float32):
    return torch.randn(shape).to(dtype).to(memory_format=torch.channels_last)


def calls(f, *args):
    return [c.target for c in lower(trace(f, args)).computations if isinstance(c, Extern)]


# channels, size of the images; window, step, margin, distance
LAYERS = {
    "3x3": (6, (8, 9), (3, 3), 1, 1, 1),
    "every second place": (4, (9, 12), (5, 5), 2, 2, 1),
    "apart": (4, (9, 10), (3, 3), 1, 2, 2),
    "no margin": (5, (7, 9), (2, 3), 2, 0, 1),
}


@pytest.mark.parametrize("name", LAYERS)
def test_values_and_layouts(name):
    channels, size, window, *options = LAYERS[name]
    torch.manual_seed(0)
    x, w = last(2, channels, *size), torch.randn(channels, 1, *window)
    step, margin, distance = ([n, n] for n in options)
    g = last(*conv2d(x, w, None, *options, groups=channels).shape)

    def f(g, x, w, bias):
        given = (step, margin, distance, False, [0, 0], channels)
        of_image, of_weight, of_bias = aten.convolution_backward(g, x, w, [channels], *given, [True, True, True])
        # a weight's gradient lies as eager's own kernels choose
        return aten.convolution(x, w, bias, *given), of_image, of_weight.contiguous(), of_bias

    program = check(f, g, x, w, torch.randn(channels), atol=1e-5, rtol=1e-5)
    assert not any(isinstance(c, Extern) for c in program.computations)


REFUSED = {
    "row-major images": (torch.randn(2, 4, 8, 8), (4, 1, 3, 3), {}),
    "two results of a channel": (last(2, 4, 8, 8), (8, 1, 3, 3), {}),
    "two channels of a group": (last(2, 4, 8, 8), (4, 2, 3, 3), {"groups": 2}),
    "wide windows": (last(2, 4, 12, 12), (4, 1, 9, 9), {}),
    "windows far apart": (last(2, 4, 12, 12), (4, 1, 3, 3), {"stride": 3}),
    "holes and steps": (last(2, 4, 12, 12), (4, 1, 3, 3), {"stride": 2, "dilation": 2}),
    "single elements": (last(2, 4, 8, 8), (4, 1, 1, 1), {}),
    "other dtypes": (last(2, 4, 8, 8, dtype=torch.float64), (4, 1, 3, 3), {}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_the_library_has_the_rest(name):
    x, window, options = REFUSED[name]
    w = torch.randn(window, dtype=x.dtype)
    assert aten.convolution.default in calls(lambda x, w: conv2d(x, w, **{"groups": 4, **options}), x, w)


@pytest.mark.parametrize("size, is_call", [(10, False), (11, True)])
def test_sums_over_large_images_are_the_librarys(size, is_call):
    def f(g, x, w):
        return aten.convolution_backward(g, x, w, [4], [1, 1], [1, 1], [1, 1], False, [0, 0], 4, [True, True, True])

    program = check(f, last(2, 4, size, size), last(2, 4, size, size), torch.randn(4, 1, 3, 3), atol=1e-4, rtol=1e-5)
    found = [c for c in program.computations if isinstance(c, Extern)]
    assert [c.args[-1] for c in found] == [[False, True, False]] * is_call


def test_other_targets_have_no_such_loops():
    registry.provide("cpu", lambda _: cpu.target())
    assert aten.convolution.default in calls(lambda x, w: conv2d(x, w, groups=4), last(2, 4, 8, 8), torch.randn(4, 1, 3, 3))
