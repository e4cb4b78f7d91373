"""Operators of windows by ONNX operators: pools, windows as columns, largest elements with their places.

In, Out, Holds: as `operators.py`. Windows that reach over the end of an image are written as an image with a wider border,
        which takes sides that are known: releases of ONNX differ in what `ceil_mode` means.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.exporting.onnx_form.operators import row_of

if TYPE_CHECKING:
    from pliant.exporting.onnx_form.writer import Writer


def _pair(given: Sequence[Any], sides: int = 2) -> list[Any]:
    return list(given) if len(given) == sides else list(given) * sides


def _borders(w: Writer, x: fx.Node, made: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> list[int]:
    """What is added before each side, then what is behind it."""
    if not ceil:
        return list(padding) * 2
    sides, wanted = (one.size_[-len(kernel) :] for one in (w.fake(x), made))
    if not all(isinstance(side, int) for side in (*sides, *wanted)):
        raise w.refused("incomplete windows of images whose sides vary")
    reached = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(wanted, stride, dilation, kernel)]
    behind = [max(0, end - side - before) for end, side, before in zip(reached, sides, padding)]
    if any(more >= k for more, k in zip(behind, kernel)):
        raise w.refused("windows outside of the image")
    return [*padding, *behind]


@row_of("max_pool2d_with_indices.default", "max_pool3d_with_indices.default")
def _max_pool(
    w: Writer, x: fx.Node, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), ceil: bool = False
) -> list[str]:
    """The largest elements; not their places."""
    sides = _sides(w, x)
    kernel, stride, padding, dilation = (_pair(one, sides) for one in (kernel, stride or kernel, padding, dilation))
    pads = _borders(w, x, w.result[0], kernel, stride, padding, dilation, ceil)
    return [w.op("MaxPool", w.value(x), kernel_shape=kernel, strides=stride, pads=pads, dilations=dilation)]


@row_of("avg_pool2d.default", "avg_pool3d.default")
def _avg_pool(
    w: Writer, x: fx.Node, kernel: Any, stride: Any = (), padding: Any = (0,), ceil: bool = False, all_count: bool = True,
    divisor: Any = None,
) -> str:  # fmt: skip
    """Of what an incomplete window reaches beyond the border nothing counts."""
    sides = _sides(w, x)
    if divisor is not None:
        raise w.refused("a pool with a divisor of its own")
    kernel, stride, padding = (_pair(one, sides) for one in (kernel, stride or kernel, padding))
    if ceil and all_count and any(padding):
        raise w.refused("incomplete windows of which a border counts")
    pads = _borders(w, x, w.result, kernel, stride, padding, [1] * sides, ceil)
    named = {"strides": stride, "pads": pads, "count_include_pad": int(all_count and not ceil)}
    return w.op("AveragePool", w.value(x), kernel_shape=kernel, **named)


def _sides(w: Writer, x: fx.Node) -> int:
    """How many dimensions windows have."""
    assert w.node is not None
    sides = 3 if "3d" in str(w.node.target) else 2
    if len(w.fake(x).size_) != sides + 2:
        raise w.refused("a pool of an image alone")
    return sides


@row_of("_adaptive_avg_pool2d.default", "_adaptive_avg_pool3d.default")
def _adaptive_mean(w: Writer, x: fx.Node, size: Sequence[Any]) -> str:
    """Along each side a product with the weights that elements have in each mean."""
    own, rank = w.fake(x), len(w.fake(x).size_)
    found = w.value(x)
    if own.dtype_ not in (torch.float32, torch.float64):
        raise w.refused("means of parts of an image in this dtype")
    for axis, count in enumerate(size, rank - len(size)):
        side = own.size_[axis]
        if not isinstance(side, int) or not isinstance(count, int):
            raise w.refused("means of parts of an image whose sides vary")
        order = [*(d for d in range(rank) if d != axis), axis]
        back = [order.index(d) for d in range(rank)]
        product = w.op("MatMul", w.op("Transpose", found, perm=order), w.constant(_shares(side, count).to(own.dtype_)))
        found = w.op("Transpose", product, perm=back)
    return found


def _shares(side: int, count: int) -> torch.Tensor:
    """[side, count]: what part of each mean an element is."""
    made = torch.zeros(side, count, dtype=torch.float64)
    for one in range(count):
        first, last = one * side // count, -((one + 1) * side // -count)
        made[first:last, one] = 1 / (last - first)
    return made


def _starts(w: Writer, side: Any, kernel: int, stride: int, dilation: int = 1) -> torch.Tensor:
    """[kernel, windows]: the place of each element of each window along a side."""
    if not isinstance(side, int):
        raise w.refused("windows along a size that varies")
    first = torch.arange(0, side - dilation * (kernel - 1), stride)
    return torch.arange(kernel)[:, None] * dilation + first


@row_of("im2col.default")
def _columns(w: Writer, x: fx.Node, kernel: Any, dilation: Any, padding: Any, stride: Any) -> str:
    own, given = w.fake(x), w.value(x)
    if len(own.size_) != 4:
        raise w.refused("windows of an image alone")
    kernel, dilation, padding, stride = (_pair(one) for one in (kernel, dilation, padding, stride))
    if any(padding):
        ends = w.sizes([0, 0, *padding] * 2)
        given = w.op("Pad", given, ends, w.scalar(0, own.dtype_), mode="constant")
    windows = []
    for axis in (0, 1):
        at = _starts(w, own.size_[2 + axis] + 2 * padding[axis], kernel[axis], stride[axis], dilation[axis])
        given = w.op("Gather", given, w.constant(at.reshape(-1)), axis=2 + axis)
        windows += list(at.shape)
    parts = w.op("Reshape", given, w.sizes([*own.size_[:2], *windows]), allowzero=1)
    return w.op("Reshape", w.op("Transpose", parts, perm=[0, 1, 2, 4, 3, 5]), w.sizes(w.result.size_), allowzero=1)


@row_of("unfold.default")
def _unfold(w: Writer, x: fx.Node, dim: int, size: int, step: int) -> str:
    rank = len(w.fake(x).size_)
    dim %= rank or 1
    at = _starts(w, w.fake(x).size_[dim] if rank else 1, size, step)
    found = w.op("Gather", w.value(x), w.constant(at.t().contiguous()), axis=dim) if rank else w.value(x)
    order = [d for d in range(rank + 1) if d != dim + 1]
    return w.op("Transpose", found, perm=[*order, dim + 1]) if rank else w.op("Reshape", found, w.sizes([1]))


_FLOATS = (torch.float16, torch.float32, torch.float64)  # that ONNX's IsNaN is for


def _extreme(kind: str) -> Any:
    """`Max` or `Min`: (the elements, their places). A NaN is both the largest and the smallest, in ATen alone."""

    def made(w: Writer, x: fx.Node, axes: Sequence[int], keep: bool, places: bool) -> list[str]:
        own = w.fake(x)
        if own.dtype_ is torch.bool or not len(own.size_):
            raise w.refused("the largest of bools or of one number")
        axis_list, named, given = w.sizes(axes), {"keepdims": int(keep)}, w.value(x)
        found = [w.op(f"Reduce{kind}", given, axis_list, **named)]
        found += [w.op(f"Arg{kind}", given, axis=axes[0], **named)] if places else []
        if not own.dtype_.is_floating_point:
            return found
        plain = given if own.dtype_ in _FLOATS else w.value(x, torch.float32)
        nans = w.op("Cast", w.op("IsNaN", plain), to=w.type(torch.int32))
        some = w.op("Cast", w.op("ReduceMax", nans, axis_list, **named), to=w.type(torch.bool))
        instead = [w.scalar(float("nan"), own.dtype_)]
        instead += [w.op("ArgMax", nans, axis=axes[0], **named)] if places else []
        return [w.op("Where", some, a, b) for a, b in zip(instead, found)]

    return made


def _largest(kind: str) -> None:
    extreme = _extreme(kind)

    def with_places(w: Writer, x: fx.Node, dim: int, keep: bool = False) -> list[str]:
        found: list[str] = extreme(w, x, [dim], keep, places=True)
        return found

    def alone(w: Writer, x: fx.Node, dims: Any = (), keep: bool = False) -> str:
        axes = dims if isinstance(dims, (list, tuple)) else [dims]
        found: str = extreme(w, x, axes or range(len(w.fake(x).size_)), keep, places=False)[0]
        return found

    row_of(f"{kind.lower()}.dim")(with_places)
    row_of(f"a{kind.lower()}.default")(alone)


for _kind in ("Max", "Min"):
    _largest(_kind)
