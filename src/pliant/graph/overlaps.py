"""Writes into memory that another argument of the call has a part of: eager refuses them, since the order would matter.

In:     a call that writes some of its arguments, which are fakes.
Out:    the error that ATen raises.
Holds:  as in ATen, only tensors without gaps are compared; those with gaps may share elements or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.graph.call_plan import CallPlan, argument
from pliant.graph.tensor_spec import dense_order


def refuse_partial_overlap(plan: CallPlan, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Raise RuntimeError if a written tensor shares some elements, but not all, with another argument."""
    tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
    if len(tensors) < 2:
        return
    for written in plan.written:
        target = argument(written, args, kwargs)
        for other in tensors if isinstance(target, torch.Tensor) else ():
            if other is not target and _base(other) is _base(target) and _share_a_part(target, other):
                raise RuntimeError(
                    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a"
                    " single memory location. Please clone() the tensor before performing the operation."
                )


def _base(tensor: Any) -> Any:
    return tensor if tensor._base is None else tensor._base


def _share_a_part(one: Any, other: Any) -> bool:
    if dense_order(one.spec) is None or dense_order(other.spec) is None:
        return False
    begin, end = one.offset_, one.offset_ + one.numel()
    if begin == other.offset_ and end == other.offset_ + other.numel():
        return bool(one.spec.stride_key != other.spec.stride_key)
    return bool(begin < other.offset_ + other.numel() and other.offset_ < end)
