"""Pools whose one window is the image, and results of sizes that vary: one graph for all sizes."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events

PROGRAMS = {
    "average of images": lambda x: F.avg_pool2d(x, x.shape[2:]),
    "average of squares": lambda x: F.avg_pool2d(x, x.size(2)).flatten(1),
    "average by stride": lambda x: F.avg_pool2d(x, list(x.shape[2:]), stride=1, ceil_mode=True, count_include_pad=False),
    "average of rows": lambda x: F.avg_pool1d(x[0], x.shape[-1]),
    "average of volumes": lambda x: F.avg_pool3d(x, (3, *x.shape[2:])),
    "largest of images": lambda x: F.max_pool2d(x, kernel_size=x.shape[2:]),
    "largest of rows": lambda x: F.max_pool1d(x[0], x.shape[-1]).squeeze(-1),
    "largest of volumes": lambda x: F.max_pool3d(x, (3, *x.shape[2:]), 1),
    "fewer rows": lambda x: F.adaptive_avg_pool1d(x[0], x.shape[-1] // 2),
}
# One graph a size, as eager.
OTHERS = {
    "part of an image": lambda x: F.avg_pool2d(x, x.shape[2] // 2),
    "padded": lambda x: F.avg_pool2d(x, x.shape[2], padding=1),
    "divided": lambda x: F.avg_pool2d(x, x.shape[2:], divisor_override=3),
    "spread": lambda x: F.max_pool2d(x, x.shape[2] // 2, dilation=2),
    "with places": lambda x: F.max_pool2d(x, x.shape[2:], return_indices=True)[1],
    "in another layout": lambda x: F.avg_pool2d(x.to(memory_format=torch.channels_last), x.shape[2:]),
    "of a turned image": lambda x: F.max_pool2d(x.permute(1, 2, 3, 0), x.shape[2:3] + x.shape[:1]),
}


def run(program, backend):
    pliant.reset()
    compiled = pliant.compile(program, backend=backend, fullgraph=True)
    captures = []
    for size in (8, 12, 10, 14):
        before = pliant.stats()["graphs"]
        # Equal elements: which of them gets the gradient is told.
        mine, theirs = (torch.arange(2 * 3 * size**2).remainder(7.0).view(2, 3, size, size).requires_grad_() for _ in "ab")
        with events.collect("fallback", "skip") as failures:
            found = compiled(mine)
        expected = program(theirs)
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()
        if expected.requires_grad:
            weight = torch.linspace(0.5, 1.5, expected.numel()).view(expected.shape)
            (found * weight).sum().backward(), (expected * weight).sum().backward()
            torch.testing.assert_close(mine.grad, theirs.grad)
        assert not failures
        captures.append(pliant.stats()["graphs"] - before)
    return captures


@pytest.mark.parametrize("backend", ["eager", "pliant"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph_for_all_sizes(name, backend):
    assert run(PROGRAMS[name], backend) == [1, 1, 0, 0]


@pytest.mark.parametrize("name", OTHERS)
def test_other_windows_are_as_eager(name):
    run(OTHERS[name], "eager")


def test_integers_are_left_to_the_operator():
    program = lambda x: F.avg_pool2d(x, x.shape[2:])
    compiled = pliant.compile(program, backend="eager")
    for size in (4, 6, 8):
        x = torch.arange(3 * size**2).view(3, size, size)
        assert torch.equal(compiled(x), program(x))
