"""Images, and signals and volumes: resized, unpooled, sampled at points, continued beyond their edges.

Holds:  what is resized follows the memory format of its input; what is sampled at points is row-major.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.graph.shape_rules.neural import convolved, per_dim, suggested
from pliant.graph.shape_rules.registry import Rules
from pliant.graph.tensor_spec import (
    Dim,
    Sizes,
    TensorSpec,
    channels_last_strides,
    holds,
    product,
    require,
    require_floats,
    require_same,
    suggests_channels_last,
)
from pliant.graph.unsupported import UnsupportedOperator

RULES = Rules()
rule = RULES.rule

_aten = torch.ops.aten


# -- resized, unpooled ------------------------------------------------------------------------------------------------
def _resizable(x: TensorSpec, output_size: Sequence[Dim]) -> Sizes:
    """The size that `x` gets."""
    if x.dtype is not torch.uint8:
        require_floats(x, "resizing")
    if x.ndim != len(output_size) + 2:
        raise RuntimeError(f"a tensor of {x.ndim} dimensions cannot be resized in {len(output_size)}")
    for extent in (*x.size[2:], *output_size, x.size[1]):
        require(extent > 0, "resizing: sizes must be greater than 0")
    return (*x.size[:2], *output_size)


@rule(_aten.upsample_nearest1d.default, _aten._upsample_nearest_exact1d.default, _aten.upsample_nearest3d.default,
      _aten._upsample_nearest_exact3d.default, _aten.upsample_linear1d.default, _aten.upsample_bilinear2d.default,
      _aten.upsample_bicubic2d.default, _aten.upsample_trilinear3d.default, _aten._upsample_bilinear2d_aa.default,
      _aten._upsample_bicubic2d_aa.default)  # fmt: skip
def upsample(x: TensorSpec, output_size: Sequence[Dim], *_: Any) -> TensorSpec:
    return suggested(x, _resizable(x, output_size))


@rule(_aten.upsample_nearest2d.default, _aten._upsample_nearest_exact2d.default)
def upsample_nearest2d(
    x: TensorSpec, output_size: Sequence[Dim], scales_h: float | None = None, scales_w: float | None = None
) -> TensorSpec:
    """A GPU keeps channels last from four channels on: of an image that does not lie so their number is not asked."""
    size = _resizable(x, output_size)
    last = suggests_channels_last(x) and (x.device.type != "cuda" or holds(x.size[1] >= 4))
    return x.like(size, channels_last_strides(size) if last else None)


@rule(_aten.upsample_nearest1d_backward.default, _aten._upsample_nearest_exact1d_backward.default,
      _aten.upsample_nearest2d_backward.default, _aten._upsample_nearest_exact2d_backward.default,
      _aten.upsample_linear1d_backward.default, _aten.upsample_bilinear2d_backward.default,
      _aten.upsample_bicubic2d_backward.default, _aten.upsample_trilinear3d_backward.default,
      _aten._upsample_bilinear2d_aa_backward.default, _aten._upsample_bicubic2d_aa_backward.default)  # fmt: skip
def upsample_backward(grad: TensorSpec, output_size: Sequence[Dim], size: Sequence[Dim], *_: Any) -> TensorSpec:
    return suggested(grad, tuple(size))


@rule(_aten.upsample_nearest3d_backward.default, _aten._upsample_nearest_exact3d_backward.default)
def upsample_nearest3d_backward(
    grad: TensorSpec, output_size: Sequence[Dim], size: Sequence[Dim], *_: Any
) -> TensorSpec:
    return grad.like(tuple(size))


@rule(_aten.max_unpool2d.default)
def max_unpool2d(x: TensorSpec, indices: TensorSpec, output_size: Sequence[Dim]) -> TensorSpec:
    require_same(x.size, indices.size, "max_unpool2d: input and indices differ in size")
    return suggested(x, (*x.size[:-2], *output_size))


# -- rearranged -------------------------------------------------------------------------------------------------------
@rule(_aten.im2col.default)
def im2col(
    x: TensorSpec, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> TensorSpec:
    """Blocks of images as columns, in rows whatever the images' layout is."""
    if x.dtype is not torch.bool and not x.dtype.is_complex:
        require_floats(x, "im2col")
    require(x.ndim in (3, 4), f"Expected 3D or 4D (batch mode) tensor, but got {x.ndim}D")
    for extent in x.size[-3:]:
        require(extent > 0, "Expected a tensor with non-zero dimensions for input")
    for given, least in ((kernel_size, 1), (dilation, 1), (padding, 0), (stride, 1)):
        require(len(given) in (1, 2) and min(given) >= least, "im2col: a number is too small")
    blocks = convolved(x.size[-2:], *[per_dim(given, 2) for given in (kernel_size, stride, padding, dilation)])
    return x.like((*x.size[:-3], x.size[-3] * product(per_dim(kernel_size, 2)), product(blocks)))


@rule(_aten.pixel_shuffle.default)
def pixel_shuffle(x: TensorSpec, factor: Dim) -> TensorSpec:
    if x.ndim < 3:
        raise RuntimeError(f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {x.ndim} dimension(s)")
    require(factor > 0, "pixel_shuffle expects a positive upscale_factor")
    require(x.size[-3] % (factor * factor) == 0, "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor")
    if x.ndim == 5 and suggests_channels_last(x) or x.device.type != "cpu" and holds(factor == 1):
        raise UnsupportedOperator("pixel_shuffle of such memory", kind="pixel-shuffle")
    size = (*x.size[:-3], x.size[-3] // (factor * factor), x.size[-2] * factor, x.size[-1] * factor)
    return suggested(x, size) if x.device.type == "cpu" else x.like(size)


@rule(_aten.channel_shuffle.default)
def channel_shuffle(x: TensorSpec, groups: Dim) -> TensorSpec:
    require(x.ndim > 2, "channel_shuffle expects an input with more than 2 dimensions")
    require(groups > 0, "Number of groups to divide channels in must be positive.")
    require(x.size[1] % groups == 0, "Number of channels must be divisible by groups.")
    return suggested(x) if x.device.type == "cpu" else x.like()


# -- sampled at points ------------------------------------------------------------------------------------------------
@rule(_aten.grid_sampler_2d.default, _aten.grid_sampler_3d.default)
def grid_sampler(x: TensorSpec, grid: TensorSpec, mode: int, padding: int, align_corners: bool) -> TensorSpec:
    """A point of as many coordinates as there are dimensions in space, for each point of the output."""
    if x.device.type not in ("cpu", "cuda") or grid.device != x.device:
        raise UnsupportedOperator("grid_sampler on this device", kind="grid-sampler-device")
    if x.ndim not in (4, 5) or grid.ndim != x.ndim:
        raise RuntimeError("grid_sampler(): expected input and grid with the same number of dimensions")
    require(x.size[0] == grid.size[0], "grid_sampler(): expected grid and input to have same batch size")
    require(grid.size[-1] == x.ndim - 2, f"grid_sampler(): expected grid to have size {x.ndim - 2} in last dimension")
    for extent in x.size[2:]:
        require(extent > 0, "grid_sampler(): expected input to have non-empty spatial dimensions")
    if x.dtype.is_complex:
        raise UnsupportedOperator("grid_sampler of complex numbers", kind="grid-sampler-dtype")
    require_floats(x, "grid_sampler")
    if grid.dtype is not x.dtype:
        raise RuntimeError(f"grid_sampler(): expected a grid of {x.dtype} but found {grid.dtype}")
    if x.ndim == 5 and mode == _BICUBIC:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    return x.like((*x.size[:2], *grid.size[1:-1]))


@rule(_aten.grid_sampler_2d_backward.default, _aten.grid_sampler_3d_backward.default)
def grid_sampler_backward(
    grad: TensorSpec, x: TensorSpec, grid: TensorSpec, mode: int, padding: int, align_corners: bool, mask: Sequence[bool]
) -> tuple[TensorSpec | None, TensorSpec]:
    """The grid's gradient is computed whether or not it is asked for."""
    require_same(grad.size, grid_sampler(x, grid, mode, padding, align_corners).size, "grad_output has an unexpected size")
    return x.like() if mask[0] else None, grid.like()


_BICUBIC = 2


@rule(_aten.cudnn_grid_sampler.default)
def cudnn_grid_sampler(x: TensorSpec, grid: TensorSpec) -> TensorSpec:
    return x.like((*x.size[:2], *grid.size[1:-1]))


@rule(_aten.cudnn_grid_sampler_backward.default)
def cudnn_grid_sampler_backward(x: TensorSpec, grid: TensorSpec, grad: TensorSpec) -> tuple[TensorSpec, TensorSpec]:
    return x.like(), grid.like()


@rule(_aten.affine_grid_generator.default)
def affine_grid(theta: TensorSpec, size: Sequence[Dim], align_corners: bool) -> TensorSpec:
    """A point of as many coordinates as there are dimensions in space, for each point of the output."""
    return theta.like((size[0], *size[2:], len(size) - 2))


# -- edges continued --------------------------------------------------------------------------------------------------
def _continued(x: TensorSpec, padding: Sequence[Dim], rank: int, mirrored: bool) -> TensorSpec:
    """Reflected or repeated; channels last as the input is (a GPU's results are row-major)."""
    require(len(padding) == 2 * rank, f"padding size is expected to be {2 * rank}")
    require(x.ndim in (rank + 1, rank + 2), "Expected a tensor with or without a batch dimension for input")
    size = list(x.size)
    for k in range(rank):
        d, before, behind = x.ndim - 1 - k, padding[2 * k], padding[2 * k + 1]
        if mirrored:
            require(before < size[d], "Padding size should be less than the corresponding input dimension")
            require(behind < size[d], "Padding size should be less than the corresponding input dimension")
        size[d] = size[d] + before + behind
        require(size[d] >= 1, "input is too small")
    for extent in x.size[x.ndim - rank - 1 :]:
        require(extent >= 1, "Expected a tensor with non-zero dimensions for input")
    full = tuple(size)
    return suggested(x, full) if x.device.type == "cpu" else x.like(full)


def _add_continued(name: str, rank: int, mirrored: bool) -> None:
    @rule(getattr(_aten, f"{name}{rank}d").default)
    def continued(x: TensorSpec, padding: Sequence[Dim]) -> TensorSpec:
        return _continued(x, padding, rank, mirrored)

    @rule(getattr(_aten, f"{name}{rank}d_backward").default)
    def gradient(grad: TensorSpec, x: TensorSpec, padding: Sequence[Dim]) -> TensorSpec:
        require_same(grad.size, _continued(x, padding, rank, mirrored).size, "grad_output has an unexpected size")
        return suggested(x) if x.device.type == "cpu" else x.like()


for _rank in (1, 2, 3):
    _add_continued("reflection_pad", _rank, True)
    _add_continued("replication_pad", _rank, False)
