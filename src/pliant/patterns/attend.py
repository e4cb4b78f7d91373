"""Attention as one operator, in place of what a program writes out.

In:     query, key, value and masks as the program has them, and how they are arranged.
Out:    the program's result, in its shape; laid out by whoever calls.
Holds:  rows whose keys are all masked by -inf are NaN, as a softmax of them is.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import torch

# Where each axis of (batch, heads, rows, columns) is among a tensor's dimensions, or of (batch and heads as one, rows, columns); -1
# where it is not, being of size 1. All other dimensions are of size 1.
Arrangement: TypeAlias = tuple[int, ...]
# ("add" or "fill", what places are filled with, whether the places that a mask names are those that are kept).
Use: TypeAlias = tuple[str, float, bool]

# Filling with this or less is the same as adding it: no score is left of the sum, in any type.
HIDES = -1e30

_aten = torch.ops.aten
_flash = _aten._scaled_dot_product_flash_attention_for_cpu


def attend(
    *tensors: torch.Tensor, arranged: tuple[Arrangement, ...], heads: int, scale: float, uses: tuple[Use, ...], hidden_rows: str,
    result: Arrangement, flat: bool,
) -> torch.Tensor:  # fmt: skip
    """`tensors`: query, key, value and masks. `result`: for each dimension of the result its axis, or -1. `flat`: batch and heads are
    one in it. `hidden_rows`: what becomes of rows whose keys are all masked: NaN ("nan"); the mean of the values, or NaN, with gradients
    of the values alone, as filled scores have none ("values", "nan-values"); or what the operator makes."""
    query, key, value, *masks = (over_axes(x, one, heads) for x, one in zip(tensors, arranged, strict=True))
    query, key, value = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key, value))
    mask = _mask(masks, uses, query)
    found: torch.Tensor = _flash(query, key, value, 0.0, False, attn_mask=mask, scale=scale)[0]
    if hidden_rows and mask is not None:
        found = _with_hidden_rows(found, mask, value, hidden_rows)
    return _permuted(found.flatten(0, 1) if flat else found, result)


def over_axes(x: torch.Tensor, arrangement: Arrangement, heads: int) -> torch.Tensor:
    """The tensor over (batch, heads, rows, columns)."""
    x = _permuted(x, arrangement)
    if len(arrangement) == 4:
        return x
    if arrangement[0] < 0:
        return x.unsqueeze(0)
    apart: torch.Tensor = x.unflatten(0, (-1, heads))  # type: ignore[no-untyped-call]
    return apart


def _permuted(x: torch.Tensor, arrangement: Arrangement) -> torch.Tensor:
    """The dimensions in this order, new ones of size 1 for -1, without those that are not named."""
    kept = [d for d in arrangement if d >= 0]
    for d in reversed(range(x.dim())):
        if d not in kept:
            x = x.squeeze(d)
    left = sorted(kept)
    x = x.permute([left.index(d) for d in kept])
    for place, d in enumerate(arrangement):
        if d < 0:
            x = x.unsqueeze(place)
    return x


def _mask(masks: list[torch.Tensor], uses: tuple[Use, ...], query: torch.Tensor) -> torch.Tensor | None:
    """All masks as one to add, in the order in which the scores met them."""
    total: torch.Tensor | None = None
    for mask, (kind, value, keeps) in zip(masks, uses, strict=True):
        if kind == "add":
            total = mask if total is None else total + mask
        else:
            before = torch.zeros((), dtype=query.dtype, device=query.device) if total is None else total
            filled = torch.full((), value, dtype=before.dtype, device=query.device)
            total = torch.where(mask, before, filled) if keeps else torch.where(mask, filled, before)
    return total if total is None or total.dtype == torch.float32 else total.to(query.dtype)


def _with_hidden_rows(found: torch.Tensor, mask: torch.Tensor, value: torch.Tensor, kind: str) -> torch.Tensor:
    most = mask.amax(-1, keepdim=True)
    factor = torch.where(most == -math.inf, math.nan, 1.0).to(found.dtype)
    if kind == "nan":  # of its gradients too
        return found * factor
    mean = value.mean(-2, keepdim=True)
    return torch.where(most <= HIDES, mean * factor if kind == "nan-values" else mean, found)
