"""Views by strides (`as_strided`) that reach beyond the memory that a tensor is known to have, or read it as another type.

In:     a call of `as_strided` on fakes.
Out:    a refusal, with which the graph ends before the call: eager knows the memory, and raises its error or goes on.
Holds:  what is computed has memory for its elements alone; of what is given only what its elements cover is known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.graph.unsupported import UnsupportedOperator

_aten = torch.ops.aten
BY_STRIDES = frozenset((_aten.as_strided.default, _aten.as_strided_.default))


def refuse_outside(
    x: Any, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None, *, memory: Any
) -> None:
    """Raise UnsupportedOperator unless the view lies in what `memory`, the tensor that `x` is a view of, covers, and counts
    in elements of its type."""
    if memory.dtype_ is not x.dtype_:
        raise UnsupportedOperator("`as_strided` of memory that holds another type", kind="memory-of-another-type")
    begin = x.offset_ if storage_offset is None else storage_offset
    wanted = _span(begin, size, stride)
    covered = _span(memory.offset_, memory.size_, memory.stride_)
    if wanted is not None and (covered is None or not (covered[0] <= wanted[0] and wanted[1] <= covered[1])):
        raise UnsupportedOperator("`as_strided` beyond the elements that the tensor is known to have", kind="beyond-memory")


def _span(offset: Any, size: Sequence[Any], stride: Sequence[Any]) -> tuple[Any, Any] | None:
    """The places of the first element and of what is behind the last; None if there are none."""
    if any(n == 0 for n in size):
        return None
    return offset, offset + sum((n - 1) * step for n, step in zip(size, stride)) + 1
