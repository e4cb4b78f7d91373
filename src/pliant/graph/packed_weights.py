"""Operators that may keep a second copy of a weight, laid out as the library reads it fastest.

In:     images or nothing, and weights of the program.
Out:    `pliant::packed_convolution`: a convolution of a channels-last image; `pliant::packed_transpose`: the weight
        [out, in, 1, 1] of a convolution as the matrix [in, out] that a product reads.
Holds:  here is their meaning: what they return depends on what the weight holds when they are called, and on nothing
        else. `runtime/packed_weights.py` has what compiled code runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_library: Any = torch.library.Library("pliant", "FRAGMENT")  # type: ignore[no-untyped-call]  # lives as long as the process


def convolution(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, stride: Sequence[int], padding: Sequence[int],
    dilation: Sequence[int], groups: int,
) -> torch.Tensor:  # fmt: skip
    """As eager computes it, on an image that lies as it does there."""
    image = x.contiguous()
    result = torch.convolution(image, weight, bias, stride, padding, dilation, False, [0, 0], groups)
    return result.contiguous(memory_format=torch.channels_last)


def transpose(weight: torch.Tensor) -> torch.Tensor:
    return weight.flatten(1).t().contiguous()


_library.define(
    "packed_convolution(Tensor x, Tensor weight, Tensor? bias, SymInt[] stride, SymInt[] padding, SymInt[] dilation, "
    "SymInt groups) -> Tensor"
)
_library.impl("packed_convolution", convolution, "CompositeExplicitAutograd")
_library.define("packed_transpose(Tensor weight) -> Tensor")
_library.impl("packed_transpose", transpose, "CompositeExplicitAutograd")

packed_convolution: Any = torch.ops.pliant.packed_convolution.default
packed_transpose: Any = torch.ops.pliant.packed_transpose.default
