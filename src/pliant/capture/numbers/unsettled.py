"""Operators on what a branch on data gives as a tensor or as a number (`min(tensor, 2.0)`).

In:     the tensor of one element that `torch.where` took of both; how to start again with a break at the branch.
Out:    the same tensor where it is added to, subtracted from, multiplied with or divides a larger one: then nobody can tell
        them apart. Everything else settles it.
Holds:  of one type, without a history, in single or double precision: a number is rounded there as in the tensor.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.capture.varying_values import TensorOrNumber, concrete
from pliant.graph.fake_tensor import is_fake

PRECISE = (torch.float32, torch.float64)
_ALIKE = frozenset(("+", "-", "*", "+=", "-=", "*="))


def operands(symbol: str, left: Any, right: Any) -> tuple[Any, Any]:
    """What an operator is applied to."""
    if _is_alike(left, right) and symbol in (*_ALIKE, "/", "/="):
        return left, right.tensor
    if _is_alike(right, left) and symbol in _ALIKE and not symbol.endswith("="):
        return left.tensor, right
    return concrete(left), concrete(right)


def _is_alike(tensor: Any, other: Any) -> bool:
    """Whether the tensor is computed with a number as with the other as a tensor."""
    if type(other) is not TensorOrNumber or not is_fake(tensor) or tensor.subclass_ is not None:
        return False
    return tensor.dtype_ is other.tensor.dtype_ and tensor.dim() >= max(1, other.tensor.dim())
