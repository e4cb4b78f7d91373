"""Calls of views as plain data, and what is asked of tensors that may share memory.

What finds a compiled program on disk loads this, and not `aliases`, which compiles one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.records import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class ViewStep:
    """One view call on a tensor: `func(tensor, *args, **kwargs)`, the `index`-th of its results if it has several.

    `grad_enabled`: the grad mode at the call, which decides the autograd relation of the view to its base. `counted`: the
    view and its base count writes together, which `tensor.data`, a `detach` otherwise, does not; its own are `writes`.
    """

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int | None
    grad_enabled: bool
    counted: bool = True
    writes: int = 0


def version(tensor: torch.Tensor) -> int:
    """How often it was written; inference tensors do not count."""
    return 0 if tensor.is_inference() else tensor._version


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether elements may share memory: a step that does not lead out of what smaller steps reach."""
    return tensor.numel() != 0 and steps_overlap(tensor.shape, tensor.stride())


def steps_overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """The same of a shape without zeros and its strides."""
    reached = 0
    for step, size in sorted(zip(strides, shape)):
        if size > 1:
            if step <= reached:
                return True
            reached += (size - 1) * step
    return False
