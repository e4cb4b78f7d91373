"""Type promotion as eager does it: dimensioned tensors, then 0-dim tensors, then Python numbers."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from pliant.lowering.tensors import Tensor
from pliant.symbolic.expr import Expr

_CATEGORY = {torch.bool: 0}


def _category(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else _CATEGORY.get(dtype, 1)


def _number_dtype(x: Any) -> torch.dtype:
    kind = x.kind if isinstance(x, Expr) else type(x)
    return torch.bool if kind is bool else torch.int64 if kind is int else torch.get_default_dtype()


def common_dtype(args: Sequence[Any]) -> torch.dtype:
    """The dtype that arguments of a binary operator are converted to."""
    result: torch.dtype | None = None
    for group in _groups(args):
        if not group:
            continue
        merged = functools.reduce(torch.promote_types, group)
        result = merged if result is None else _join(result, merged)
    assert result is not None
    return result


def _join(stronger: torch.dtype, weaker: torch.dtype) -> torch.dtype:
    """A weaker group changes the dtype only by a higher category."""
    return stronger if _category(stronger) >= _category(weaker) else torch.promote_types(stronger, weaker)


def _groups(args: Sequence[Any]) -> list[list[torch.dtype]]:
    tensors = [a for a in args if isinstance(a, Tensor)]
    return [
        [t.dtype for t in tensors if t.shape],
        [t.dtype for t in tensors if not t.shape],
        [_number_dtype(a) for a in args if not isinstance(a, Tensor) and a is not None],
    ]
