"""Warnings that only kernels give: of what arguments.

In:     calls of operators on fakes, whose kernels do not run, while warnings are collected (`given_warnings.py`).
Out:    `tell(func, args, kwargs)`: what eager's kernel would have warned of is collected too.
Holds:  the words are PyTorch's own: where a row says that the arguments deserve it, its kernel runs on a few elements. Sizes
        that vary are asked nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from pliant.graph import given_warnings
from pliant.torch_adapter import DisableTorchDispatch

_aten = torch.ops.aten


def tell(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Collect what eager's kernel warns of, if it does."""
    if given_warnings.are_collected() and ROWS[func](*args, **kwargs):
        few = tree_map_only(torch.Tensor, _few, (list(args), kwargs))
        with DisableTorchDispatch():
            func(*few[0], **few[1])


def _few(tensor: torch.Tensor) -> torch.Tensor:
    return torch.zeros([1] * tensor.dim(), dtype=tensor.dtype)


def _lacks_freedom(x: Any, dim: Sequence[int] | None = None, *, correction: Any = None, keepdim: bool = False) -> bool:
    """Whether a variance has no degrees of freedom. One element has none unless the correction is below 1."""
    sizes = list(x.shape)
    sizes = [sizes[d] for d in dim] if dim and sizes else sizes  # a single element has dimensions 0 and -1, too
    free = 1 if correction is None else correction
    known = isinstance(free, int | float) and all(isinstance(size, int) for size in sizes)
    return known and free >= 1 and 0 < math.prod(sizes) <= free


def _has_old_masks(x: Any, indices: Sequence[Any], *rest: Any) -> bool:
    return any(one is not None and one.dtype is torch.uint8 for one in indices)


def _loses_imaginary_part(x: Any, *, dtype: torch.dtype | None = None, **rest: Any) -> bool:
    return bool(x.dtype.is_complex) and dtype is not None and not dtype.is_complex


def _copies_real_part(target: Any, source: Any, *rest: Any) -> bool:
    return bool(source.dtype.is_complex) and not target.dtype.is_complex


def _always(*args: Any, **kwargs: Any) -> bool:
    return True


# Whether the kernel may warn of the arguments; one element a dimension decides.
ROWS: dict[Any, Callable[..., bool]] = {
    **dict.fromkeys(
        (_aten.var.correction, _aten.std.correction, _aten.var_mean.correction, _aten.std_mean.correction), _lacks_freedom
    ),
    **dict.fromkeys((_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default), _has_old_masks),
    _aten._to_copy.default: _loses_imaginary_part,
    **dict.fromkeys((_aten.copy_.default, _aten.copy.default), _copies_real_part),
    **dict.fromkeys((_aten.scatter.reduce, _aten.scatter_.reduce), _always),
    **dict.fromkeys((_aten.index_reduce.default, _aten.index_reduce_.default), _always),
}
