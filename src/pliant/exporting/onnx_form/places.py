"""Operators that write or read by place by ONNX operators: scattered values, masks, borders, samples.

In, Out, Holds: as `operators.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.exporting.onnx_form.operators import row_of
from pliant.graph.tensor_spec import keys_of

if TYPE_CHECKING:
    from pliant.exporting.onnx_form.writer import Writer

_LAST = -(1 << 63) + 1
_SCATTERED = {"sum": ("add", 0.0), "mean": ("add", 0.0), "prod": ("mul", 1.0), "amax": ("max", None), "amin": ("min", None)}


# ---- scattered
@row_of("scatter_add.default")
def _scatter_add(w: Writer, x: fx.Node, dim: int, index: fx.Node, new: fx.Node) -> str:
    return _scattered(w, w.value(x), dim, index, new, "add")


def _scattered(w: Writer, base: str, dim: int, index: fx.Node, new: Any, reduction: str) -> str:
    """`new`: a node or the name of a value of the index's size."""
    if isinstance(new, fx.Node) and keys_of(w.fake(new).size_) != keys_of(w.fake(index).size_) or not w.result.size_:
        raise w.refused("one number that is written by its place, or parts of what is given")
    if w.result.dtype_ is torch.bool:
        raise w.refused("bools that are added")
    given = w.value(new, w.result.dtype_) if isinstance(new, fx.Node) else new
    return w.op("ScatterElements", base, w.value(index, torch.int64), given, axis=dim, reduction=reduction)


@row_of("index_add.default", "index_copy.default")
def _rows_by_place(w: Writer, x: fx.Node, dim: int, index: fx.Node, new: fx.Node, *, alpha: Any = 1) -> str:
    """Whole rows, each to the place that it is told."""
    size, dtype, adds = list(w.fake(new).size_), w.result.dtype_, "add" in str(w.node.target)  # type: ignore[union-attr]
    if not size or dtype is torch.bool or len(w.fake(index).size_) != 1:
        raise w.refused("one number that is written by its place, or bools")
    dim %= len(size)
    column = [size[d] if d == dim else 1 for d in range(len(size))]
    at = w.op("Expand", w.op("Reshape", w.value(index, torch.int64), w.sizes(column), allowzero=1), w.sizes(size))
    given = w.value(new, dtype) if alpha == 1 else w.op("Mul", w.value(new, dtype), w.scalar(alpha, dtype))
    return w.op("ScatterElements", w.value(x), at, given, axis=dim, reduction="add" if adds else "none")


@row_of("scatter_reduce.two")
def _scatter_reduce(
    w: Writer, x: fx.Node, dim: int, index: fx.Node, new: fx.Node, reduce: str, *, include_self: bool = True
) -> str:
    """Without what was there, whatever a place gets begins from the value that changes nothing."""
    dtype, (kind, first) = w.result.dtype_, _SCATTERED[reduce]
    if reduce == "mean" and not dtype.is_floating_point:
        raise w.refused("means of whole numbers by their places")
    base = w.value(x)
    if not include_self:
        least = _least(dtype) if kind == "max" else _most(dtype)
        neutral = w.op("Expand", w.scalar(least if first is None else first, dtype), w.sizes(w.fake(index).size_))
        base = _scattered(w, base, dim, index, neutral, "none")
    found = _scattered(w, base, dim, index, new, kind)
    if reduce != "mean":
        return found
    ones = w.op("Expand", w.scalar(1, dtype), w.sizes(w.fake(index).size_))
    counts = w.op("Expand", w.scalar(int(include_self), dtype), w.sizes(w.result.size_))
    counts = _scattered(w, counts, dim, index, ones, "add")
    return w.op("Div", found, w.op("Max", counts, w.scalar(1, dtype)))


def _least(dtype: torch.dtype) -> Any:
    return -float("inf") if dtype.is_floating_point else torch.iinfo(dtype).min


def _most(dtype: torch.dtype) -> Any:
    return float("inf") if dtype.is_floating_point else torch.iinfo(dtype).max


@row_of("index_put.default")
def _index_put(w: Writer, x: fx.Node, indices: Sequence[Any], new: fx.Node, accumulate: bool = False) -> str:
    """By whole numbers for the first dimensions; by a mask where one value is written."""
    given, own, dtype = [one for one in indices if one is not None], w.fake(x), w.result.dtype_
    if len(given) == 1 and w.fake(given[0]).dtype_ is torch.bool and not accumulate and not w.fake(new).size_ and given[0] is indices[0]:
        mask = w.value(given[0])
        rest = len(own.size_) - len(w.fake(given[0]).size_)
        mask = w.op("Unsqueeze", mask, w.sizes([-1 - d for d in range(rest)])) if rest else mask
        return w.op("Where", mask, w.value(new, dtype), w.value(x))
    if len(given) < len(indices) or any(w.fake(one).dtype_ not in (torch.int64, torch.int32) for one in given):
        raise w.refused("values that are written by masks, or behind the first dimensions")
    if accumulate and dtype is torch.bool:
        raise w.refused("bools that are added")
    shape = max((list(w.fake(one).size_) for one in given), key=len)
    if any(w.fake(one).size_ and keys_of(w.fake(one).size_) != keys_of(shape) for one in given):
        raise w.refused("places of several sizes")
    columns = [w.op("Unsqueeze", w.op("Expand", w.value(one, torch.int64), w.sizes(shape)), w.sizes([-1])) for one in given]
    values = w.op("Expand", w.value(new, dtype), w.sizes([*shape, *own.size_[len(given) :]]))
    named = {"reduction": "add"} if accumulate else {}
    return w.op("ScatterND", w.value(x), w.op("Concat", *columns, axis=-1), values, **named)


@row_of("masked_scatter.default")
def _masked_scatter(w: Writer, x: fx.Node, mask: fx.Node, new: fx.Node) -> str:
    """Each element of the mask takes the next value: how many were taken before it is a running sum."""
    size = w.sizes(w.result.size_)
    chosen = w.op("Expand", w.value(mask, torch.bool), size)
    flat = w.op("Cast", w.op("Reshape", chosen, w.sizes([-1])), to=w.type(torch.int64))
    before = w.op("Sub", w.op("CumSum", flat, w.scalar(0, torch.int64)), flat)
    values = w.op("Reshape", w.value(new, w.result.dtype_), w.sizes([-1]))
    values = w.op("Concat", values, w.constant(torch.zeros(1, dtype=w.result.dtype_)), axis=0)  # for none to be taken
    last = w.op("Sub", w.op("Shape", values), w.sizes([1]))
    taken = w.op("Gather", values, w.op("Min", before, last), axis=0)
    return w.op("Where", chosen, w.op("Reshape", taken, size), w.op("Expand", w.value(x), size))


@row_of("select_scatter.default")
def _select_scatter(w: Writer, x: fx.Node, new: fx.Node, dim: int, place: Any) -> str:
    """One row along a dimension replaced."""
    size = list(w.fake(x).size_)
    dim %= len(size)
    at = w.op("Mod", w.scalar(place, torch.int64), w.scalar(size[dim], torch.int64))
    index = w.op("Expand", at, w.sizes([*size[:dim], 1, *size[dim + 1 :]]))
    given = w.op("Unsqueeze", w.value(new, w.result.dtype_), w.sizes([dim]))
    return w.op("ScatterElements", w.value(x), index, given, axis=dim)


# ---- turned, and with borders
@row_of("flip.default")
def _flip(w: Writer, x: fx.Node, dims: Sequence[int]) -> str:
    if not dims or not w.fake(x).size_:
        return w.op("Identity", w.value(x))
    count = len(dims)
    return w.op("Slice", w.value(x), *(w.sizes([one] * count) for one in (-1, _LAST)), w.sizes(dims), w.sizes([-1] * count))


def _bordered(mode: str) -> Any:
    def row(w: Writer, x: fx.Node, padding: Sequence[Any]) -> str:
        rank, count = len(w.fake(x).size_), len(padding) // 2
        if any(type(n) is int and n < 0 for n in padding):
            raise w.refused("a border that takes away")
        before, behind = ([padding[2 * (count - 1 - i) + side] for i in range(count)] for side in (0, 1))
        plain = [0] * (rank - count)
        return w.op("Pad", w.value(x), w.sizes([*plain, *before, *plain, *behind]), mode=mode)

    return row


for _rank in (1, 2, 3):
    row_of(f"reflection_pad{_rank}d.default")(_bordered("reflect"))
    row_of(f"replication_pad{_rank}d.default")(_bordered("edge"))


# ---- images
_SAMPLES, _OUTSIDE = ("linear", "nearest", "cubic"), ("zeros", "border", "reflection")


@row_of("grid_sampler_2d.default", "grid_sampler.default")
def _sampled(w: Writer, x: fx.Node, grid: fx.Node, mode: int, padding: int, corners: bool) -> str:
    if len(w.fake(x).size_) != 4:
        raise w.refused("samples of volumes")
    kind = "bilinear" if mode == 0 else "bicubic" if mode == 2 else _SAMPLES[mode]  # as opset 16 calls them
    named = {"mode": kind, "padding_mode": _OUTSIDE[padding], "align_corners": int(corners)}
    return w.op("GridSample", w.value(x), w.value(grid), **named)


@row_of("col2im.default")
def _from_columns(w: Writer, x: fx.Node, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> str:
    if len(w.fake(x).size_) != 3:
        raise w.refused("columns of an image alone")
    kernel, dilation, padding, stride = (list(one) * (2 // len(one)) for one in (kernel, dilation, padding, stride))
    named = {"dilations": dilation, "pads": padding * 2, "strides": stride}
    return w.op("Col2Im", w.value(x), w.sizes(size), w.sizes(kernel), **named)


# ---- other places
@row_of("diagonal.default")
def _diagonal(w: Writer, x: fx.Node, offset: int = 0, one: int = 0, other: int = 1) -> str:
    """Both dimensions as one, of which every so many elements are taken."""
    own, rank = w.fake(x), len(w.fake(x).size_)
    one, other = one % rank, other % rank
    order = [*(d for d in range(rank) if d not in (one, other)), one, other]
    width, count = own.size_[other], w.result.size_[-1]
    begin = offset if offset >= 0 else -offset * width
    flat = w.op("Reshape", w.op("Transpose", w.value(x), perm=order), w.sizes([*(own.size_[d] for d in order[:-2]), -1]), allowzero=0)
    steps = w.op("Range", *(w.scalar(number, torch.int64) for number in (0, count, 1)))
    places = w.op("Add", w.op("Mul", steps, w.scalar(width + 1, torch.int64)), w.scalar(begin, torch.int64))
    return w.op("Gather", flat, places, axis=-1)


@row_of("copy.default")
def _copy(w: Writer, x: fx.Node, source: fx.Node, *_: Any) -> str:
    return w.op("Expand", w.value(source, w.result.dtype_), w.sizes(w.result.size_))


@row_of("native_dropout.default")
def _dropout(w: Writer, x: fx.Node, p: float, train: Any) -> list[str]:
    if train is not False and p != 0:
        raise w.refused("dropout, which draws random numbers that ONNX draws otherwise")
    return [w.value(x), w.op("Expand", w.scalar(True, torch.bool), w.sizes(w.fake(x).size_))]
