"""Which loops share what they read, and which kernels they join."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F

from lowering.tracing import trace
from pliant import config
from pliant.ir.loops import Pointwise, Reduction
from pliant.lowering.lower import lower
from pliant.schedule.fuse import fuse
from pliant.schedule.kernel import Kernel
from pliant.schedule.windows import places_of_reduction, reads_windows, widest
from pliant.targets import cpu, registry

aten = torch.ops.aten


@pytest.fixture
def target():
    """The host, whose threads take several points of windows, and sum them in loops."""
    there = cpu.target()
    made = dataclasses.replace(there, window_points=4, depthwise_images=frozenset((torch.float32,)), depthwise_sums=2048)
    registry.provide("cpu", lambda _: made)
    yield
    registry.provide("cpu", lambda _: there)


def loops(f, *args):
    return lower(trace(f, args))


def image(*shape):
    return torch.randn(shape).to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "f, expected",
    [
        (lambda x, w: F.conv2d(x, w, padding=1, groups=4), True),
        (lambda x, w: F.conv2d(x, w, stride=2, groups=4), True),  # a column of the window is the next one's too
        (lambda x, w: F.conv2d(x, w[:, :, :1, :2], stride=2, groups=4), False),
        (lambda x, w: F.avg_pool2d(x, 3, 1, 1), False),
        (lambda x, w: x * 2 + x.mean((2, 3), keepdim=True), False),
    ],
)
def test_what_reads_windows(target, f, expected):
    program = loops(f, image(2, 4, 8, 9), torch.randn(4, 1, 3, 3))
    assert any(reads_windows(c) for c in program.computations if isinstance(c, Pointwise)) == expected


def test_places_of_a_window_are_summed_together(target):
    def f(g, x, w):
        return aten.convolution_backward(g, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 16, [False, True, False])[1]

    program = loops(f, image(2, 16, 8, 8), image(2, 16, 8, 8), torch.randn(16, 1, 3, 3))
    (found,) = [c for c in program.computations if isinstance(c, Reduction)]
    assert [a.extent.as_int() for a in places_of_reduction(found)] == [3, 3]
    (rows,) = [c for c in loops(lambda x: x.sum(0), torch.randn(64, 8)).computations if isinstance(c, Reduction)]
    assert places_of_reduction(rows) == []


def test_fewer_elements_where_there_are_many_sums():
    assert [widest(8, n) for n in (1, 7, 9, 25, 49)] == [8, 8, 4, 2, 2]


def test_windows_stay_out_of_sums(target):
    """A sum of what they compute, and of what follows, is a kernel of its own."""

    def f(x, w):
        y = F.conv2d(x, w, padding=1, groups=16).relu()
        return y, y.sum((0, 2, 3))

    program = loops(f, image(2, 16, 8, 8), torch.randn(16, 1, 3, 3))
    kernels = [step for step in fuse(program, config.get().schedule) if isinstance(step, Kernel)]
    kinds = [[type(m.loops).__name__ for m in k.members] for k in kernels]
    assert ["Reduction"] in kinds and kinds[-2:-1] == [["Pointwise", "Pointwise"]], kinds
