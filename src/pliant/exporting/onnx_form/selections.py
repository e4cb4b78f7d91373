"""Operators that select by ONNX operators: indices, largest elements, products of groups of rows.

In, Out, Holds: as `operators.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.exporting.onnx_form.operators import row_of
from pliant.graph.tensor_spec import at_least_one, keys_of

if TYPE_CHECKING:
    from pliant.exporting.onnx_form.writer import Writer


# ---- by indices
@row_of("embedding.default")
def _embedding(w: Writer, table: fx.Node, index: fx.Node, *_: Any, **__: Any) -> str:
    return w.op("Gather", w.value(table), w.value(index))


@row_of("index_select.default")
def _index_select(w: Writer, x: fx.Node, dim: int, index: fx.Node) -> str:
    return w.op("Gather", w.value(x), w.value(index), axis=dim)


@row_of("gather.default")
def _gather(w: Writer, x: fx.Node, dim: int, index: fx.Node, sparse_grad: bool = False) -> str:
    return w.op("GatherElements", w.value(x), w.value(index, torch.int64), axis=dim)


@row_of("index.Tensor", "_unsafe_index.Tensor")
def _index(w: Writer, x: fx.Node, indices: Sequence[Any]) -> str:
    """Several at once: dimensions that are indexed come first, and what is found goes where ATen has it."""
    given = [one for one in indices if one is not None]
    if any(w.fake(one).dtype_ not in (torch.int64, torch.int32) for one in given):
        raise w.refused("an index of bools")
    if len(given) == 1:
        return w.op("Gather", w.value(x), w.value(given[0]), axis=list(indices).index(given[0]))
    rank, found_rank = len(w.fake(x).size_), len(w.result.size_)
    dims = [dim for dim, one in enumerate(indices) if one is not None]
    rest, sides = [dim for dim in range(rank) if dim not in dims], found_rank - rank + len(given)
    first = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    shape = w.sizes(list(w.result.size_)[first : first + sides])
    columns = [w.op("Unsqueeze", w.op("Expand", w.value(one, torch.int64), shape), w.sizes([-1])) for one in given]
    source = w.value(x) if dims[-1] == len(dims) - 1 else w.op("Transpose", w.value(x), perm=[*dims, *rest])
    found = w.op("GatherND", source, w.op("Concat", *columns, axis=-1))
    order = [*range(sides, sides + first), *range(sides), *range(sides + first, found_rank)]
    return w.op("Transpose", found, perm=order) if first else found


@row_of("topk.default")
def _topk(w: Writer, x: fx.Node, count: Any, dim: int = -1, largest: bool = True, in_order: bool = True) -> list[str]:
    dtype = w.fake(x).dtype_
    if not w.fake(x).size_ or dtype not in (torch.float16, torch.float32, torch.float64, torch.int32, torch.int64):
        raise w.refused("the largest of one number, or of this dtype")
    return w.ops("TopK", 2, w.value(x), w.sizes([count]), axis=dim, largest=int(largest), sorted=int(in_order))


@row_of("sort.default")
def _sort(w: Writer, x: fx.Node, dim: int = -1, descending: bool = False) -> list[str]:
    return _in_order(w, x, dim, descending)


@row_of("sort.stable")
def _stable_sort(w: Writer, x: fx.Node, *, stable: Any = None, dim: int = -1, descending: bool = False) -> list[str]:
    return _in_order(w, x, dim, descending)


def _in_order(w: Writer, x: fx.Node, dim: int, descending: bool) -> list[str]:
    """Equal elements keep their order. NaN has no place that both name."""
    if not w.fake(x).size_ or w.fake(x).dtype_ not in (torch.int32, torch.int64):
        raise w.refused("one number in order, or of a dtype with NaN")
    return w.ops("TopK", 2, w.value(x), w.sizes([w.fake(x).size_[dim]]), axis=dim, largest=int(descending), sorted=1)


@row_of("scatter.value", "scatter.src")
def _scatter(w: Writer, x: fx.Node, dim: int, index: fx.Node, new: Any) -> str:
    size = w.fake(index).size_
    if not w.fake(x).size_ or isinstance(new, fx.Node) and keys_of(w.fake(new).size_) != keys_of(size):
        raise w.refused("one number that is written by its place, or parts of what is given")
    given = w.value(new, w.result.dtype_) if isinstance(new, fx.Node) else w.op("Expand", w.scalar(new, w.result.dtype_), w.sizes(size))
    return w.op("ScatterElements", w.value(x), w.value(index, torch.int64), given, axis=dim)


@row_of("nonzero.default")
def _nonzero(w: Writer, x: fx.Node) -> str:
    if not w.fake(x).size_:
        raise w.refused("whether one number is not 0, as places")
    return w.op("Transpose", w.op("NonZero", w.value(x)), perm=[1, 0])


@row_of("_grouped_mm.default")
def _grouped(w: Writer, rows: fx.Node, weights: fx.Node, ends: Any = None, bias: Any = None, out_dtype: Any = None) -> str:
    """The rows of each group by its weights, one group behind the other; rows behind the last group are 0."""
    a, b, dtype = w.fake(rows), w.fake(weights), w.result.dtype_
    groups = b.size_[0] if len(b.size_) == 3 else None
    if len(a.size_) != 2 or type(groups) is not int or ends is None or bias is not None or a.dtype_ is not dtype:
        raise w.refused("products of groups other than of rows")
    axis, given, found = w.sizes([0]), w.value(ends, torch.int64), []
    stops = [w.op("Gather", given, w.sizes([group]), axis=0) for group in range(groups)]
    for group, (start, stop) in enumerate(zip((axis, *stops), stops, strict=False)):
        part = w.op("Slice", w.value(rows), start, stop, axis)
        found.append(w.op("MatMul", part, w.op("Gather", w.value(weights), w.scalar(group, torch.int64), axis=0)))
    left = w.op("Sub", w.sizes([a.size_[0]]), stops[-1])
    rest = w.op("Expand", w.scalar(0, dtype), w.op("Concat", left, w.sizes([b.size_[2]]), axis=0))
    return w.op("Concat", *found, rest, axis=0)


# ---- by places
@row_of("roll.default")
def _roll(w: Writer, x: fx.Node, shifts: Sequence[Any], dims: Sequence[int] = ()) -> str:
    """What comes behind is put in front, a dimension at a time; all elements as one row where none is named."""
    size = w.fake(x).size_
    if not size or any(n == 0 for n in size if type(n) is int):
        return w.op("Identity", w.value(x))
    found = w.value(x) if dims else w.op("Reshape", w.value(x), w.sizes([-1]))
    for shift, dim in zip(shifts, dims or (0,), strict=True):
        whole = size[dim] if dims else math.prod(size)
        start, axis = w.sizes([whole - shift % at_least_one(whole)]), w.sizes([dim])
        behind = w.op("Slice", found, start, w.sizes([whole]), axis)
        found = w.op("Concat", behind, w.op("Slice", found, w.sizes([0]), start, axis), axis=dim)
    return found if dims else w.op("Reshape", found, w.sizes(size))


@row_of("histc.default")
def _histc(w: Writer, x: fx.Node, bins: int = 100, least: Any = 0, most: Any = 0) -> str:
    """How many elements each bin has, the last with its upper bound; computed as the operator does, to the last bit."""
    dtype = w.result.dtype_
    if any(type(n) not in (int, float) for n in (bins, least, most)) or least >= most:
        raise w.refused("bins between the least and the largest element")
    flat = w.op("Reshape", w.value(x), w.sizes([-1, 1]))
    low, high = w.scalar(least, dtype), w.scalar(most, dtype)
    inside = w.op("And", w.op("GreaterOrEqual", flat, low), w.op("LessOrEqual", flat, high))
    place = w.op("Div", w.op("Mul", w.op("Sub", flat, low), w.scalar(bins, dtype)), w.op("Sub", high, low))
    place = w.op("Min", w.op("Floor", place), w.scalar(bins - 1, dtype))
    hit = w.op("And", inside, w.op("Equal", place, w.constant(torch.arange(bins, dtype=dtype))))
    return w.op("ReduceSum", w.op("Cast", hit, to=w.type(dtype)), w.sizes([0]), keepdims=0)
