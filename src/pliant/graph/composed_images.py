"""Pools and grids whose windows, results or images are plain integers in C++, composed of operators that take symbolic ones.

In:     the arguments of such a function, with fakes and symbols among them.
Out:    its result; NotImplemented where C++ can do it.
Holds:  values, dtypes and layouts are the function's own. Of equal elements the first has the gradient, as in the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pliant.graph.composed_counts import evenly


# -- pools: their one window may be the image; the same pool over more dimensions takes sizes -------------------------
def _average_of_image(x: Tensor, rank: int) -> Tensor:
    return x.mean(tuple(range(-rank, 0)), keepdim=True)


def _largest_of_image(x: Tensor, rank: int) -> Tensor:
    largest = x.flatten(-rank).max(-1, keepdim=True).values
    return largest.reshape(largest.shape + (1,) * (rank - 1))


def _per_dim(value: Any, rank: int) -> tuple[Any, ...]:
    """The integers for each dimension, that one of them stands for; none where they are something else."""
    found = tuple(value) if isinstance(value, (list, tuple)) else (value,) * rank
    found = found * rank if len(found) == 1 else found
    return found if len(found) == rank and all(type(n) is int or _is_known(n) for n in found) else ()


def _is_known(n: Any) -> bool:
    """Whether it is symbolic, and what it is here is known."""
    return type(n) is torch.SymInt and n.node.hint is not None


def _is_one_window(x: Tensor, window: Any, stride: Any, padding: Any, rank: int) -> bool:
    """Whether a pool has one window, an image of a size that varies."""
    if not x.is_floating_point() or x.dim() not in (rank + 1, rank + 2):
        return False
    window, padding = _per_dim(window, rank), _per_dim(padding, rank)
    stride = window if stride is None or stride in ([], ()) else _per_dim(stride, rank)
    if not any(map(_is_known, window)) or padding != (0,) * rank or not stride:
        return False
    fits = all(a == b for a, b in zip(window, x.shape[-rank:]))
    return fits and all(n > 0 for n in stride) and x.is_contiguous()


def _average_pool(rank: int) -> Callable[..., Any]:
    def pool(
        x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: Any = False,
        count_include_pad: Any = True, divisor_override: Any = None,
    ) -> Any:  # fmt: skip
        whole = divisor_override is None and _is_one_window(x, kernel_size, stride, padding, rank)
        return _average_of_image(x, rank) if whole else NotImplemented

    return pool


def _max_pool(rank: int) -> Callable[..., Any]:
    def pool(
        x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: Any = False,
        return_indices: Any = False,
    ) -> Any:  # fmt: skip
        plain = _per_dim(dilation, rank) == (1,) * rank and return_indices is False
        return _largest_of_image(x, rank) if plain and _is_one_window(x, kernel_size, stride, padding, rank) else NotImplemented

    return pool


_max_pool_of_row = _max_pool(1)


def _max_pool1d(
    x: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: Any = False,
    return_indices: Any = False,
) -> Any:  # fmt: skip
    """Of integers eager has it on GPUs alone."""
    if return_indices:
        return NotImplemented
    if not x.is_floating_point() and x.device.type == "cpu":
        raise NotImplementedError(f'"max_pool1d_impl" not implemented for {x.dtype}')
    found = _max_pool_of_row(x, kernel_size, stride, padding, dilation, ceil_mode)
    if found is not NotImplemented or all(type(n) is int for n in x.shape):
        return found
    window, padding, dilation = (_per_dim(one, 1) for one in (kernel_size, padding, dilation))
    stride = window if stride is None or stride in ([], ()) else _per_dim(stride, 1)
    if not all(len(one) == 1 and type(one[0]) is int for one in (window, stride, padding, dilation)):
        return NotImplemented
    return F.max_pool2d(x.unsqueeze(-2), (1, *window), (1, *stride), (0, *padding), (1, *dilation), ceil_mode).squeeze(-2)


def average_of_rows(x: Tensor, output_size: Any) -> Any:
    count = _per_dim(output_size, 1)
    return F.adaptive_avg_pool2d(x.unsqueeze(-2), (1, *count)).squeeze(-2) if any(map(_is_known, count)) else NotImplemented


# -- grids ------------------------------------------------------------------------------------------------------------
def _affine_grid(theta: Tensor, size: Sequence[Any], align_corners: Any = None) -> Any:
    """Coordinates from -1 to 1 of each point of the output, times the matrices. The operator's derivative takes plain sizes."""
    fits = theta.dtype in (torch.float32, torch.float64) and theta.dim() == 3 and len(size) in (4, 5)
    if not fits or type(align_corners) is not bool or not any(map(_is_known, size)):
        return NotImplemented
    if not all(type(n) is int or _is_known(n) for n in size) or not all(n > 1 for n in size[2:]):
        return NotImplemented
    if tuple(theta.shape) != (size[0], len(size) - 2, len(size) - 1):
        return NotImplemented
    options: dict[str, Any] = {"dtype": theta.dtype, "device": theta.device}
    ends = [evenly(-1, 1, n, options) * (1 if align_corners else (n - 1) / n) for n in size[2:]]
    points = [*torch.meshgrid(ends, indexing="ij")][::-1] + [torch.ones(size[2:], **options)]
    rows = torch.stack(points, -1).reshape(1, -1, len(size) - 1).expand(size[0], -1, -1)
    return rows.bmm(theta.transpose(1, 2)).view([size[0], *size[2:], len(size) - 2])


OF_IMAGES: dict[Any, Callable[..., Any]] = {
    torch.avg_pool1d: _average_pool(1),
    F.avg_pool2d: _average_pool(2),
    F.avg_pool3d: _average_pool(3),
    **dict.fromkeys((torch.max_pool1d, F.max_pool1d), _max_pool1d),
    **dict.fromkeys((torch.max_pool2d, F.max_pool2d), _max_pool(2)),
    **dict.fromkeys((torch.max_pool3d, F.max_pool3d), _max_pool(3)),
    F.affine_grid: _affine_grid,
}
