"""Subscripts of tensors with symbolic numbers in them, which torch's C code would make constants of.

In:     a tensor and a key.
Out:    a view of the tensor, and a key without symbolic numbers that means the same on it.
Holds:  as in torch, a number in a key selects along its dimension first, whatever else the key has.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.tables import ByKind

NOTHING_LEFT = object()  # in place of a key: the tensor as it is


def select_symbolic(tensor: FakeTensor, key: Any) -> tuple[Any, Any]:
    """The view and the rest of the key."""
    parts = tuple(_element(part) for part in _parts_of(key))
    if not any(map(_varies, parts)):
        return tensor, key
    return _selected(tensor, parts, _varies, torch.select)


def _parts_of(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _varies(part: Any) -> bool:
    return type(part) is torch.SymInt


def select_by_tensors(tensor: Any, key: Any) -> tuple[Any, Any]:
    """The same for numbers in 0-d tensors that stay there: a body that is mapped or runs often has other ones each time."""

    def select(view: Any, dim: int, place: Any) -> Any:
        return view[(slice(None),) * dim + (place.reshape(1),)].squeeze(dim)

    return _selected(tensor, _parts_of(key), is_place, select)


def _selected(view: Any, parts: Any, is_chosen: Callable[[Any], bool], select: Callable[..., Any]) -> tuple[Any, Any]:
    for part, dim in reversed(list(zip(parts, _dims_of(parts, view.dim())))):
        if is_chosen(part):
            view = select(view, dim, part)
    return view, tuple(part for part in parts if not is_chosen(part)) or NOTHING_LEFT


def is_place(part: Any) -> bool:
    """Whether it is a 0-d tensor with a number in it, not a mask."""
    return is_fake(part) and not part.size_ and part.dtype_ in _INTEGERS


_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8)


def _element(part: Any) -> Any:
    """The number in a 0-d tensor, which selects as a number does."""
    if not is_fake(part) or part.size_ or part.dtype_ in (torch.bool, torch.uint8):
        return part
    return part.item() if part.fake_mode.allow_unbacked else part


def _dims_of(parts: tuple[Any, ...], rank: int) -> list[int]:
    """The first dimension of the tensor that each part of a key is about."""
    wide = [_WIDTHS.of(part)(part) for part in parts]
    free = rank - sum(wide)  # what `...` stands for
    dims, at = [], 0
    for part, width in zip(parts, wide):
        dims.append(at)
        at += free if part is Ellipsis else width
    return dims


_WIDTHS: ByKind[Callable[[Any], int]] = ByKind(
    lambda part: 1,
    dict.fromkeys((type(None), type(...), bool), lambda part: 0),
    {torch.Tensor: lambda part: part.dim() if part.dtype in (torch.bool, torch.uint8) else 1},
)
