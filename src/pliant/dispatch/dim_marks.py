"""What a program said about single dimensions of a tensor.

In:     `mark_dynamic` and its kin; what PyTorch's own functions leave on tensors.
Out:    the marks of a tensor, by dimension.
Holds:  marks lie on the tensor itself, and end with it. Wrong arguments raise a `ConfigError` and mark nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from pliant.errors import ConfigError
from pliant.records import dataclass


@dataclass(frozen=True, slots=True)
class DimMark:
    """What a user said about one dimension of a tensor."""

    how: str  # "marked" | "maybe" | "static" | "unbacked"
    lo: int | None = None
    hi: int | None = None


MARKS = "_pliant_dims"  # attribute of a tensor: {dim: DimMark}


def marks_of(tensor: torch.Tensor) -> dict[int, DimMark]:
    """The marks on a tensor: ours, and those that torch's own functions leave."""
    space = tensor.__dict__ if hasattr(tensor, "__dict__") else {}
    if not space:
        return {}
    found: dict[int, DimMark] = {}
    found.update({dim: DimMark("static") for dim in space.get("_dynamo_static_indices", ())})
    found.update({dim: DimMark("maybe") for dim in space.get("_dynamo_weak_dynamic_indices", ())})
    found.update({dim: DimMark("marked") for dim in space.get("_dynamo_dynamic_indices", ())})
    for bounded in space.get("_dynamo_dynamic_range", ()):
        found[bounded.dim] = DimMark("marked", bounded.min, bounded.max)
    found.update({dim: DimMark("unbacked") for dim in space.get("_dynamo_unbacked_indices", ())})
    found.update(space.get(MARKS, {}))
    return found


def mark_dims(tensor: Any, index: int | Iterable[int] | None, how: str, lo: int | None = None, hi: int | None = None) -> None:
    """Say this of a dimension, of several, or of all (None)."""
    if not isinstance(tensor, torch.Tensor):
        raise ConfigError(f"cannot mark {tensor!r}", kind="wrong-type", why="it is not a tensor", do="pass a tensor")
    dims = _dims(range(tensor.dim()) if index is None else index)
    for dim in dims:
        if not -tensor.dim() <= dim < tensor.dim():
            raise ConfigError(
                f"cannot mark dimension {dim}",
                kind="wrong-dimension",
                why=f"the tensor has {tensor.dim()} dimensions",
                do=f"pass a dimension below {tensor.dim()}",
            )
    _check_range(lo, hi)
    mark = DimMark(how, lo, hi)
    tensor.__dict__.setdefault(MARKS, {}).update((dim % tensor.dim(), mark) for dim in dims)


def _dims(index: Any) -> tuple[int, ...]:
    dims = tuple(index) if isinstance(index, Iterable) else (index,)
    if all(_is_whole(dim) for dim in dims):
        return dims
    raise ConfigError(
        f"cannot mark dimension {index!r}", kind="wrong-type", why="it is no whole number", do="pass a dimension, or several"
    )


def _check_range(lo: Any, hi: Any) -> None:
    bounds = [bound for bound in (lo, hi) if bound is not None]
    if not all(map(_is_whole, bounds)) or bounds != sorted(bounds):
        raise ConfigError(
            f"no size is from min={lo!r} to max={hi!r}", kind="wrong-range", do="pass whole numbers, the smaller one as min="
        )


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
