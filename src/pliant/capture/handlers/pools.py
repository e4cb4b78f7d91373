"""Pools whose windows, results or images are of sizes that vary, as calls that take such sizes.

In:     calls of pools, whose windows and results are plain numbers in C++.
Out:    reductions where the one window is the image, the same pool over more dimensions.
Holds:  values, layout and gradients are those of the pool: of equal elements the first has the gradient.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from pliant.capture.handlers.table import Rows
from pliant.capture.signatures import Tracer
from pliant.capture.structures import is_several, several
from pliant.capture.value_kinds import SIZES, is_symbolic
from pliant.graph.fake_tensor import is_fake
from pliant.graph.unbacked import is_unbacked

ROWS = Rows()
instead = ROWS.instead


def _average_of_images(x: Any, rank: int) -> Any:
    return x.mean(tuple(range(-rank, 0)), keepdim=True)


def _largest_of_images(x: Any, rank: int) -> Any:
    largest = x.flatten(-rank).max(-1, keepdim=True).values
    return largest.reshape(largest.shape + (1,) * (rank - 1))


def _per_dim(value: Any, rank: int) -> tuple[Any, ...]:
    """The integers for each dimension, that one of them stands for; none where they are something else."""
    found = tuple(value) if is_several(value) else (value,) * rank
    known = SIZES.issuperset(map(type, found)) and not any(map(is_unbacked, filter(is_symbolic, found)))
    return found if known and len(found) == rank else ()


def _is_one_window(t: Tracer, input: Any, window: Any, stride: Any, padding: Any, rank: int) -> bool:
    """Whether a pool has one window, an image of a size that varies."""
    if not is_fake(input) or not input.dtype_.is_floating_point or input.dim() not in (rank + 1, rank + 2):
        return False
    window, padding = _per_dim(t.internalize(window), rank), _per_dim(t.internalize(padding), rank)
    stride = window if stride is None else _per_dim(t.internalize(stride), rank)
    if not any(map(is_symbolic, window)) or padding != (0,) * rank or not stride:
        return False
    fits = all(t.truth(a == b) for a, b in zip(window, input.size_[-rank:], strict=True))
    return fits and all(t.truth(n > 0) for n in stride) and input.is_contiguous()


def _average_pool(rank: int) -> Any:
    def rule(
        t: Tracer, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: Any = False,
        count_include_pad: Any = True, divisor_override: Any = None,
    ) -> Any:  # fmt: skip
        whole = divisor_override is None and _is_one_window(t, input, kernel_size, stride, padding, rank)
        return (_average_of_images, (input, rank)) if whole else None

    return rule


def _max_pool(rank: int) -> Any:
    def rule(
        t: Tracer, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
        ceil_mode: Any = False, return_indices: Any = False,
    ) -> Any:  # fmt: skip
        plain = _per_dim(dilation, rank) == (1,) * rank and return_indices is False
        whole = plain and _is_one_window(t, input, kernel_size, stride, padding, rank)
        return (_largest_of_images, (input, rank)) if whole else None

    return rule


instead(torch.avg_pool1d)(_average_pool(1))
instead(F.avg_pool2d)(_average_pool(2))
instead(F.avg_pool3d)(_average_pool(3))
instead(F.max_pool2d)(_max_pool(2))
instead(F.max_pool3d)(_max_pool(3))
_largest_of_rows = _max_pool(1)


def _pooled(x: Any, size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool) -> Any:
    pooled = F.max_pool2d(x.unsqueeze(-2), (1, size), (1, stride), (0, padding), (1, dilation), ceil_mode)
    return pooled.squeeze(-2)


@instead(torch.max_pool1d)
@instead(F.max_pool1d)
def _max_pool1d(
    t: Tracer, input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
    ceil_mode: Any = False, return_indices: Any = False,
) -> Any:  # fmt: skip
    """The operator takes plain sizes, that over two dimensions does not."""
    made = _largest_of_rows(t, input, kernel_size, stride, padding, dilation, ceil_mode, return_indices)
    if made is not None:
        return made
    numbers = [kernel_size, stride, padding, dilation]
    size, stride, *rest = (one[0] if len(one := several(n)) == 1 else n for n in numbers)
    numbers = [size, size if stride is None or stride == [] or stride == () else stride, *rest]
    varies = not return_indices and is_fake(input) and any(map(is_symbolic, input.size_))
    return (_pooled, (input, *numbers, ceil_mode)) if varies and {int}.issuperset(map(type, numbers)) else None


def _average_of_rows(x: Any, count: Any) -> Any:
    return F.adaptive_avg_pool2d(x.unsqueeze(-2), (1, count)).squeeze(-2)


@instead(torch.adaptive_avg_pool1d)
def _adaptive_pool(t: Tracer, input: Any, output_size: Any) -> Any:
    """As the operator computes it; that of images takes sizes."""
    count = _per_dim(t.internalize(output_size), 1)
    return (_average_of_rows, (input, *count)) if is_fake(input) and any(map(is_symbolic, count)) else None
