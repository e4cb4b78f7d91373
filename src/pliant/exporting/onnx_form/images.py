"""Operators of images by ONNX operators: convolutions, norms of groups, other resolutions.

In, Out, Holds: as `operators.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.exporting.onnx_form.operators import row_of

if TYPE_CHECKING:
    from pliant.exporting.onnx_form.writer import Writer


@row_of("convolution.default")
def _convolution(
    w: Writer, x: fx.Node, weight: fx.Node, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool, extra: Any,
    groups: int,
) -> str:  # fmt: skip
    rank = len(w.fake(x).size_) - 2
    each = [[one[0]] * rank if len(one) == 1 else list(one) for one in (stride, padding, dilation, extra)]
    named = {"strides": each[0], "pads": each[1] * 2, "dilations": each[2], "group": groups}
    inputs = [w.value(one) for one in (x, weight, bias) if one is not None]
    if transposed:
        return w.op("ConvTranspose", *inputs, output_padding=each[3], **named)
    return w.op("Conv", *inputs, **named)


# ---- norms of groups, other resolutions
@row_of("native_group_norm.default")
def _group_norm(
    w: Writer, x: fx.Node, weight: Any, bias: Any, rows: Any, channels: Any, area: Any, groups: int, eps: float
) -> list[str]:
    """The first result alone: each group is a channel of an instance."""
    dtype = w.fake(x).dtype_
    if dtype not in (torch.float16, torch.float32, torch.float64):
        raise w.refused(f"norms of groups in {dtype}")
    grouped = w.op("Reshape", w.value(x), w.sizes([rows, groups, -1]))
    one, none = (w.constant(torch.full((groups,), float(value), dtype=dtype)) for value in (1, 0))
    found = w.op("Reshape", w.op("InstanceNormalization", grouped, one, none, epsilon=eps), w.sizes(w.fake(x).size_))
    along = w.sizes([channels] + [1] * (len(w.fake(x).size_) - 2))
    if weight is not None:
        found = w.op("Mul", found, w.op("Reshape", w.value(weight, dtype), along))
    return [found if bias is None else w.op("Add", found, w.op("Reshape", w.value(bias, dtype), along))]


@row_of("_native_batch_norm_legit_no_training.default")
def _batch_norm(w: Writer, x: fx.Node, weight: Any, bias: Any, mean: fx.Node, variance: fx.Node, momentum: float, eps: float) -> list[str]:
    """The first result alone."""
    dtype, channels = w.fake(x).dtype_, w.fake(x).size_[1]
    if len({one.dtype_ for one in map(w.fake, (x, mean, variance))}) > 1 or not isinstance(channels, int):
        raise w.refused("norms of channels whose number varies, or in several dtypes")
    given = [w.constant(torch.full((channels,), fill, dtype=dtype)) if one is None else w.value(one) for one, fill in ((weight, 1.0), (bias, 0.0))]
    return [w.op("BatchNormalization", w.value(x), *given, w.value(mean), w.value(variance), epsilon=eps)]


@row_of("_native_batch_norm_legit.no_stats")
def _norm_of_the_batch(w: Writer, x: fx.Node, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> list[str]:
    """The first result alone: each channel by its own mean and variance."""
    dtype, rank = w.fake(x).dtype_, len(w.fake(x).size_)
    if dtype not in (torch.float32, torch.float64):
        raise w.refused(f"norms of a batch in {dtype}")
    axes, along = w.sizes([d for d in range(rank) if d != 1]), w.sizes([-1] + [1] * (rank - 2))
    apart = w.op("Sub", w.value(x), w.op("ReduceMean", w.value(x), axes, keepdims=1))
    spread = w.op("ReduceMean", w.op("Mul", apart, apart), axes, keepdims=1)
    found = w.op("Div", apart, w.op("Sqrt", w.op("Add", spread, w.scalar(eps, dtype))))
    if weight is not None:
        found = w.op("Mul", found, w.op("Reshape", w.value(weight), along))
    return [found if bias is None else w.op("Add", found, w.op("Reshape", w.value(bias), along))]


@row_of("_weight_norm_interface.default")
def _weight_norm(w: Writer, v: fx.Node, g: fx.Node, dim: int = 0) -> list[str]:
    axes = [d for d in range(len(w.fake(v).size_)) if d != dim]
    norms = w.op("ReduceL2", w.value(v), w.sizes(axes), keepdims=1)
    return [w.op("Mul", w.value(v), w.op("Div", w.value(g), norms)), norms]


def _resized(w: Writer, x: fx.Node, scales: Sequence[Any], mode: str, coordinates: str, **more: Any) -> str:
    """With factors, where elements are found is told by them; otherwise by both sizes."""
    if w.fake(x).dtype_ not in (torch.float16, torch.float32, torch.float64):
        raise w.refused("an image of this dtype in another resolution")
    named = {"mode": mode, "coordinate_transformation_mode": coordinates, **more}
    if all(one is None for one in scales):
        return w.op("Resize", w.value(x), "", "", w.sizes(w.result.size_), **named)
    if not all(isinstance(one, float) for one in scales):
        raise w.refused("a factor for one side alone, or that varies")
    return w.op("Resize", w.value(x), "", w.constant(torch.tensor([1.0, 1.0, *scales])), **named)


@row_of("upsample_nearest1d.default", "upsample_nearest2d.default", "upsample_nearest3d.default")
def _nearest(w: Writer, x: fx.Node, size: Any, *scales: Any) -> str:
    return _resized(w, x, scales, "nearest", "asymmetric", nearest_mode="floor")


@row_of("upsample_linear1d.default", "upsample_bilinear2d.default", "upsample_trilinear3d.default")
def _linear(w: Writer, x: fx.Node, size: Any, align_corners: bool, *scales: Any) -> str:
    return _resized(w, x, scales if not align_corners else (), "linear", "align_corners" if align_corners else "half_pixel")


@row_of("upsample_nearest2d.vec")
def _nearest_by(w: Writer, x: fx.Node, size: Any, factors: Any) -> str:
    return _resized(w, x, factors or (None,), "nearest", "asymmetric", nearest_mode="floor")


@row_of("upsample_bilinear2d.vec")
def _linear_by(w: Writer, x: fx.Node, size: Any, align_corners: bool, factors: Any) -> str:
    scales = (None,) if align_corners or not factors else factors
    return _resized(w, x, scales, "linear", "align_corners" if align_corners else "half_pixel")


@row_of("upsample_bicubic2d.default")
def _cubic(w: Writer, x: fx.Node, size: Any, align_corners: bool, *scales: Any) -> str:
    coordinates = "align_corners" if align_corners else "half_pixel"
    return _resized(w, x, scales if not align_corners else (), "cubic", coordinates, cubic_coeff_a=-0.75)
