"""Fakes agree with eager on size, strides, dtype, device and offset, for every ATen call that torch's samples make."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional as F

import pliant
from pliant.graph.shape_rules import RULES

from .eager_check import EagerCheck
from .opinfo import check_all

PARTS = 3  # so that processes share them


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_samples_of_every_operator(symbolic: bool, part: int) -> None:
    check = check_all(symbolic, (torch.float32, torch.int64), 4, part, PARTS)  # a sweep by hand takes 12
    assert not check.wrong, {name: calls[0] for name, calls in check.wrong.items()}
    assert len(check.right) > 300


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("weight_last", [False, True])
def test_layouts_of_convolved_signals(transposed, weight_last):
    """Where the weight's channels lie innermost they do in the result, and in the gradient."""
    layer = torch.nn.ConvTranspose1d(3, 5, 4) if transposed else torch.nn.Conv1d(3, 5, 4)
    if weight_last:
        layer.weight = torch.nn.Parameter(layer.weight.detach().mT.contiguous().mT)
    found = []
    for run in (layer, pliant.compile(layer, fullgraph=True)):
        x = torch.randn(2, 9, 3).mT.requires_grad_()
        y = run(x)
        gradients = torch.autograd.grad(y, (x, layer.weight), torch.ones(y.shape))
        found.append([one.stride() for one in (y, *gradients)])
    assert found[1] == found[0]


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_rows_of_sparse_matrices(symbolic):
    aten, check = torch.ops.aten, EagerCheck(symbolic)
    with check:
        for count, small in itertools.product((0, 1, 5), (False, True)):
            rows = torch.zeros(count, dtype=torch.int64)
            starts = aten._convert_indices_from_coo_to_csr.default(rows, 3, out_int32=small)
            for transposed in (False, True):
                aten._convert_indices_from_csr_to_coo.default(starts, rows, out_int32=small, transpose=transposed)
    assert not check.wrong and len(check.right) >= 2


def test_rows_of_sparse_matrices_are_one_graph_for_all_numbers_of_elements():
    def program(x, rows):
        starts = torch._convert_indices_from_coo_to_csr(rows, 3)
        return x * starts.diff().sum(), torch._convert_indices_from_csr_to_coo(starts, rows)

    pliant.reset()
    compiled = pliant.compile(program, dynamic=True, fullgraph=True)
    for count in (4, 5, 9):
        x, rows = torch.randn(count), torch.randint(3, (count,)).sort().values
        for ours, theirs in zip(compiled(x, rows), program(x, rows), strict=True):
            assert torch.equal(ours, theirs)
    assert pliant.stats()["graphs"] == 1


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_what_is_sampled_at_points(symbolic):
    """By a rule of its own: the decomposition is some forty operators, and some models sample dozens of times."""
    aten, check = torch.ops.aten, EagerCheck(symbolic)
    image, volume = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5, 6)
    images = (image, image.mT, image.contiguous(memory_format=torch.channels_last), image[:, :0], image[:, :, ::2])
    volumes = (volume, volume.contiguous(memory_format=torch.channels_last_3d), volume.double())
    grids = torch.rand(2, 6, 7, 2) * 2 - 1, torch.rand(2, 6, 7, 8, 3) * 2 - 1
    for rank, given, points in ((2, images, grids[0]), (3, volumes, grids[1])):
        sampler, backward = (getattr(aten, f"grid_sampler_{rank}d{end}").default for end in ("", "_backward"))
        assert sampler in RULES and backward in RULES
        for x in given:
            for grid in (points.to(x.dtype), points.to(x.dtype).transpose(1, 2), points[:, :0].to(x.dtype)):
                with check:
                    out = sampler(x, grid, 0, 0, False)
                    for mask in ([True, True], [False, True]):
                        backward(out, x, grid, 0, 0, False, mask)
    assert not check.wrong and not check.unknown and sum(check.right.values()) > 60


@pytest.mark.parametrize(
    "change",
    [
        lambda x, grid: (x, grid.double()),
        lambda x, grid: (x, grid[:1]),
        lambda x, grid: (x, torch.cat([grid, grid], -1)),
        lambda x, grid: (x, grid[0]),
        lambda x, grid: (x[:, :, :0], grid),
        lambda x, grid: (x.long(), grid.long()),
    ],
)
def test_points_that_eager_refuses(change):
    x, grid = change(torch.randn(2, 3, 4, 5), torch.rand(2, 6, 7, 2))
    errors = []
    for sample in (torch.nn.functional.grid_sample, pliant.compile(torch.nn.functional.grid_sample)):
        with pytest.raises((RuntimeError, NotImplementedError)) as caught:
            sample(x, grid, align_corners=False)
        errors.append(caught.type)
    assert errors[0] is errors[1]


@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_pooling_of_images(symbolic):
    aten, check = torch.ops.aten, EagerCheck(symbolic)
    image = torch.randn(2, 3, 7, 10)
    images = (image, image.mT, image.contiguous(memory_format=torch.channels_last), image[:0], image[0], image[:, :1], image[:, :, ::2])
    numbers = [([2], [], [0]), ([3, 2], [2, 1], [1, 0]), ([3], [2], [1]), ([2], [3], [1]), ([5, 1], [4], [2, 0])]
    for x in images:
        for (kernel, stride, padding), ceil in itertools.product(numbers, (False, True)):
            with check:
                for dilation in ([1], [1, 2]) if kernel == [3] else ([1],):
                    out, places = aten.max_pool2d_with_indices(x, kernel, stride, padding, dilation, ceil)
                    aten.max_pool2d_with_indices_backward(out, x, kernel, stride, padding, dilation, ceil, places)
                out = aten.avg_pool2d(x, kernel, stride, padding, ceil)
                aten.avg_pool2d_backward(out, x, kernel, stride, padding, ceil, True, None)
    assert not check.wrong and not check.unknown and sum(check.right.values()) > 250


@pytest.mark.parametrize("pool", [F.max_pool2d, F.avg_pool2d], ids=lambda f: f.__name__)
def test_windows_beyond_images_are_counted_without_a_guard(pool):
    """Some sizes end with such a window, and some do not."""
    compiled = pliant.compile(lambda x: pool(x, 2, 3, ceil_mode=True).sin(), dynamic=True, fullgraph=True)
    before = pliant.stats()["graphs"]
    for width in range(6, 13):
        x = torch.randn(2, 3, width + 1, width)
        torch.testing.assert_close(compiled(x), pool(x, 2, 3, ceil_mode=True).sin())
    assert pliant.stats()["graphs"] == before + 1
