"""Operators that compare rows, add rows of a table, and differentiate, by ONNX operators.

In, Out, Holds: as `operators.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.exporting.onnx_form.operators import row_of

if TYPE_CHECKING:
    from pliant.exporting.onnx_form.writer import Writer

_FLOATS = (torch.float32, torch.float64)


# ---- distances
def _distance(w: Writer, gap: str, p: float, dtype: torch.dtype) -> str:
    """The norm of differences along the last dimension."""
    far, last = w.op("Abs", gap), w.sizes([-1])
    if p == 0:
        counted = w.op("Cast", w.op("Not", w.op("Equal", far, w.scalar(0, dtype))), to=w.type(dtype))
        return w.op("ReduceSum", counted, last, keepdims=0)
    if p == math.inf:
        return w.op("ReduceMax", far, last, keepdims=0)
    if p in (1, 2):
        return w.op(f"ReduceL{int(p)}", far, last, keepdims=0)
    powers = w.op("ReduceSum", w.op("Pow", far, w.scalar(p, dtype)), last, keepdims=0)
    return w.op("Pow", powers, w.scalar(1 / p, dtype))


def _check_rows(w: Writer, x: fx.Node) -> torch.dtype:
    dtype: torch.dtype = w.result.dtype_
    width = w.fake(x).size_[-1]
    if dtype not in _FLOATS or not isinstance(width, int) or width == 0:
        raise w.refused("distances of rows of this dtype, of no elements, or whose length varies")
    return dtype


@row_of("_cdist_forward.default")
def _cdist(w: Writer, x: fx.Node, y: fx.Node, p: float, mode: Any = None) -> str:
    dtype = _check_rows(w, x)
    return _distance(w, w.op("Sub", w.op("Unsqueeze", w.value(x), w.sizes([-2])), w.op("Unsqueeze", w.value(y), w.sizes([-3]))), p, dtype)


@row_of("_pdist_forward.default")
def _pdist(w: Writer, x: fx.Node, p: float = 2) -> str:
    """Of each row and those behind it."""
    dtype, rows = _check_rows(w, x), w.fake(x).size_[0]
    if not isinstance(rows, int):
        raise w.refused("distances of pairs of rows whose number varies")
    one, other = (w.op("Gather", w.value(x), w.constant(places)) for places in torch.triu_indices(rows, rows, 1))
    return _distance(w, w.op("Sub", one, other), p, dtype)


# ---- rows of a table
@row_of("_embedding_bag.default")
def _embedding_bag(
    w: Writer, table: fx.Node, index: fx.Node, offsets: fx.Node, scale_grad: bool = False, mode: int = 0, sparse: bool = False,
    weights: Any = None, last: bool = False, padding: int = -1,
) -> list[str]:  # fmt: skip
    """The sums or means alone: a matrix says which index is in which bag."""
    dtype = w.fake(table).dtype_
    if mode > 1 or padding >= 0 or dtype not in _FLOATS:
        raise w.refused("bags of largest rows, with rows that do not count, or in this dtype")
    count = w.scalar(w.fake(index).size_[0], torch.int64)
    starts = w.value(offsets, torch.int64)
    if last:
        begins, ends = (w.op("Slice", starts, w.sizes([a]), w.sizes([b]), w.sizes([0])) for a, b in ((0, -1), (1, (1 << 63) - 1)))
    else:
        rest = w.op("Slice", starts, w.sizes([1]), w.sizes([(1 << 63) - 1]), w.sizes([0]))
        begins, ends = starts, w.op("Concat", rest, w.op("Unsqueeze", count, w.sizes([0])), axis=0)
    places = w.op("Range", w.scalar(0, torch.int64), count, w.scalar(1, torch.int64))
    begins, ends = (w.op("Unsqueeze", one, w.sizes([1])) for one in (begins, ends))
    inside = w.op("Cast", w.op("And", w.op("GreaterOrEqual", places, begins), w.op("Less", places, ends)), to=w.type(dtype))
    weighed = inside if weights is None else w.op("Mul", inside, w.value(weights, dtype))
    found = w.op("MatMul", weighed, w.op("Gather", w.value(table), w.value(index)))
    if mode == 1:
        sizes = w.op("ReduceSum", inside, w.sizes([1]), keepdims=1)
        found = w.op("Div", found, w.op("Max", sizes, w.scalar(1, dtype)))
    return [found]


# ---- derivatives
@row_of("embedding_dense_backward.default")
def _embedding_backward(w: Writer, tangent: fx.Node, index: fx.Node, rows: Any, padding: int, by_count: bool) -> str:
    """Rows of the tangent are added where they were taken from, those of the padding left out."""
    dtype = w.result.dtype_
    if by_count or dtype not in _FLOATS:
        raise w.refused("the derivative of a table by how often a row is taken, or in this dtype")
    width = w.fake(tangent).size_[-1]
    flat = w.op("Reshape", w.value(tangent), w.sizes([-1, width]))
    places = w.op("Reshape", w.value(index, torch.int64), w.sizes([-1, 1]))
    if padding >= 0:
        flat = w.op("Where", w.op("Equal", places, w.scalar(padding, torch.int64)), w.scalar(0, dtype), flat)
    empty = w.op("Expand", w.scalar(0, dtype), w.sizes([rows, width]))
    return w.op("ScatterND", empty, places, flat, reduction="add")


@row_of("native_layer_norm_backward.default")
def _layer_norm_backward(
    w: Writer, tangent: fx.Node, x: fx.Node, shape: Sequence[Any], mean: fx.Node, rstd: fx.Node, weight: Any, bias: Any,
    wanted: Sequence[bool],
) -> list[str]:  # fmt: skip
    """From what the tangent is along each normed part: its mean, and its mean with the normed values."""
    dtype, rank = w.fake(x).dtype_, len(w.fake(x).size_)
    if dtype not in _FLOATS:
        raise w.refused("the derivative of a norm in this dtype")
    inner = list(range(rank - len(shape), rank))
    outer, axes = w.sizes(list(range(rank - len(shape)))), w.sizes(inner)
    given, scale = w.value(tangent), w.value(rstd)
    normed = w.op("Mul", w.op("Sub", w.value(x), w.value(mean)), scale)
    weighed = given if weight is None else w.op("Mul", given, w.value(weight))
    parts = [w.op("ReduceMean", one, axes, keepdims=1) for one in (weighed, w.op("Mul", weighed, normed))]
    rest = w.op("Sub", w.op("Sub", weighed, parts[0]), w.op("Mul", normed, parts[1]))
    sums = [w.op("ReduceSum", one, outer, keepdims=0) if rank > len(shape) else one for one in (w.op("Mul", given, normed), given)]
    return [w.op("Mul", rest, scale), *sums]


# ---- angles
@row_of("atan2.default")
def _atan2(w: Writer, y: fx.Node, x: fx.Node) -> str:
    """The angle of both lengths, turned to where the signs say: -0 has one, which its reciprocal shows."""
    dtype = w.result.dtype_
    if dtype not in _FLOATS:
        raise w.refused("the angle of two numbers in this dtype")
    tall, wide, none = w.value(y, dtype), w.value(x, dtype), w.scalar(0, dtype)

    def is_(one: str, what: float) -> str:
        return w.op("Equal", one, w.scalar(what, dtype))

    def below(one: str) -> str:
        return w.op("Less", w.op("Where", is_(one, 0), w.op("Reciprocal", one), one), none)

    high, far = w.op("Abs", tall), w.op("Abs", wide)
    ratio = w.op("Div", high, far)
    for what, instead in ((0.0, 0.0), (math.inf, 1.0)):
        both = functools.reduce(lambda a, b: w.op("And", a, b), [is_(one, what) for one in (high, far)])
        ratio = w.op("Where", both, w.scalar(instead, dtype), ratio)
    angle = w.op("Atan", ratio)
    angle = w.op("Where", below(wide), w.op("Sub", w.scalar(math.pi, dtype), angle), angle)
    sign = w.op("Where", below(tall), w.scalar(-1, dtype), w.scalar(1, dtype))
    return w.op("Mul", angle, sign)  # runtimes' `Where` may lose the sign of 0
