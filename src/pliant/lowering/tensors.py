"""Tensors as lowering sees them: a function from an index to a scalar, or a view of memory.

In:     rules make `Tensor`s from other tensors; `Lowering` turns them into buffers.
Out:    `at(index)`: the scalar at a point. `view`: where the elements lie, once they are in memory.
Holds:  asking for an element of a tensor that must be in memory (a reduction, a shared value) puts it there first.
        The scalar of a bf16 or f16 tensor may be the f32 value before rounding; `exact_at` rounds it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from pliant.ir.loops import Buffer, View
from pliant.ir.scalar import Scalar, cast
from pliant.symbolic.expr import ONE, ZERO, Expr, lit

if TYPE_CHECKING:
    from pliant.lowering.context import Lowering

Index = Sequence[Expr]
Shape = tuple[Expr, ...]
At = Callable[[Index], Scalar]

# dtypes that scalar code computes with; tensors of any other dtype only pass through externs
COMPUTED = frozenset((
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16, torch.int8,
    torch.uint8, torch.bool,
))  # fmt: skip
HALF = (torch.bfloat16, torch.float16)


def opmath(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which eager computes on elements of `dtype`."""
    return torch.float32 if dtype in HALF else dtype


class Tensor:
    """One tensor value.

    `weight`: cost of computing an element anew, in the operator table's units. `uses`: how many computations read it.
    `materialize`: puts the elements in memory in its own way (a reduction); None: a loop that stores `at`.
    `device`: where its elements are computed, or lie.
    `row_bytes`: its rows had best begin at multiples of so many bytes. `zeros`: how many had best lie behind a dimension.
    `rebase`: puts the tensor that this is a view of in memory (reading elements alone does not need it).
    `source`: a tensor of the same elements that may be read instead (a clone's original).
    """

    __slots__ = (
        "low",
        "dtype",
        "shape",
        "_at",
        "view",
        "weight",
        "uses",
        "fake",
        "materialize",
        "source",
        "origin",
        "rebase",
        "device",
        "row_bytes",
        "zeros",
    )

    def __init__(
        self,
        low: Lowering,
        dtype: torch.dtype,
        shape: Shape,
        at: At | None = None,
        *,
        weight: int = 0,
        view: View | None = None,
    ) -> None:
        self.low = low
        self.dtype = dtype
        self.shape = shape
        self._at = at
        self.view = view
        self.weight = weight
        self.uses = 1
        self.fake: Any = None
        self.materialize: Callable[[], View] | None = None
        self.source: Tensor | None = None
        self.origin = low.origin
        self.rebase: Callable[[], View] | None = None
        self.row_bytes = 0
        self.zeros: Mapping[int, int] = {}
        self.device = low.device if view is None else view.buffer.device

    def at(self, index: Index) -> Scalar:
        """The scalar at `index`: of `dtype`, or f32 for half types."""
        view = self.view
        if (
            view is None
            and self.rebase is None
            and (self.materialize is not None or (self.uses > 1 and self.weight > self.low.share_limit))
        ):
            view = self.low.realize(self)
        if view is not None:
            return self.low.load(view, index)
        assert self._at is not None
        return self._at(index)

    def exact_at(self, index: Index) -> Scalar:
        """The scalar at `index`, rounded to `dtype`."""
        return cast(self.at(index), self.dtype)

    def computed_at(self, index: Index) -> Scalar:
        """As `exact_at`, computed anew even if the elements are to be kept in memory: what stores them calls it."""
        assert self._at is not None
        return cast(self._at(index), self.dtype)

    def round_elements(self) -> None:
        """Have each scalar be one of `dtype`, converted: what reads it sees what would be in memory."""
        computed = self._at
        if computed is not None:
            self._at = lambda index: cast(cast(computed(index), self.dtype), opmath(self.dtype))

    def math_at(self, index: Index) -> Scalar:
        """The scalar at `index` in the dtype in which eager computes."""
        return cast(self.at(index), opmath(self.dtype))

    @property
    def is_cheap(self) -> bool:
        """True if reading an element many times costs about as much as a load."""
        return self.view is not None or (self.materialize is None and self.weight <= self.low.share_limit)


@functools.lru_cache(maxsize=4096)
def contiguous_strides(shape: Shape) -> Shape:
    """Row-major strides, in elements."""
    strides: list[Expr] = []
    step: Expr = ONE
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))


def is_row_major(b: Buffer | View) -> bool:
    """Whether it has the strides of a new tensor of its shape."""
    return b.strides == contiguous_strides(b.shape)


def aligned_strides(shape: Shape, strides: Shape, itemsize: int, row_bytes: int) -> Shape:
    """Strides of a row-major tensor whose rows begin at multiples of `row_bytes`; those given where they do anyway, or where
    that is not known."""
    if not is_unaligned(shape, itemsize, row_bytes) or strides != contiguous_strides(shape):
        return strides
    last, whole = shape[-1].as_int() or 0, row_bytes // itemsize
    return contiguous_strides((*shape[:-1], lit(-(-last // whole) * whole)))


def is_unaligned(shape: Shape, itemsize: int, row_bytes: int) -> bool:
    """Whether rows that follow each other begin elsewhere, and are long."""
    last = shape[-1].as_int() if len(shape) > 1 else None
    whole = row_bytes // itemsize
    return last is not None and whole > 1 and last % whole != 0 and last >= 16 * whole


@functools.lru_cache(maxsize=4096)
def numel(shape: Shape) -> Expr:
    count: Expr = ONE
    for size in shape:
        count = count * size
    return count


def broadcast_index(shape: Shape, out_shape: Shape, index: Index) -> Index:
    """The index into a tensor of `shape` for the point `index` of `out_shape`."""
    if shape is out_shape:
        return index
    skip = len(out_shape) - len(shape)
    return [ZERO if size is ONE else index[skip + k] for k, size in enumerate(shape)]
