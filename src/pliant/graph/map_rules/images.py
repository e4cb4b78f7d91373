"""Rules for operators over images, which have a batch already: that of `vmap` joins it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from pliant.graph.map_rules.kernels import Batched, Rows, Rule, apart_again, side_by_side

_aten = torch.ops.aten


def _joined(one: Batched, count: Any) -> Tensor:
    """[batch, n, ...] as [batch * n, ...]"""
    return one.whole(count).flatten(0, 1)


def _apart(count: Any, found: Any) -> Any:
    def split(one: Any) -> Any:
        return one.reshape(count, one.size(0) // count, *one.shape[1:]) if isinstance(one, Tensor) else one

    return tree_map(split, tuple(found) if isinstance(found, (list, tuple)) else found)


def _images(op: Any, rank: int) -> Rule:
    """Of an operator whose tensors all have the rank of a batch of images; one less is a single image."""

    def rule(count: Any, *args: Any, **more: Any) -> Any:
        tensors = [one for one in args if isinstance(one, Batched)]
        if all(one.rank == rank - 1 for one in tensors):
            return op(*[one.whole(count) if isinstance(one, Batched) else one for one in args], **more)
        if any(one.rank != rank for one in tensors):
            return NotImplemented
        found = op(*[_joined(one, count) if isinstance(one, Batched) else one for one in args], **more)
        return _apart(count, found)

    return rule


def _leading(op: Any) -> Rule:
    """Of an operator that takes any dimensions in front of those it is about."""

    def rule(count: Any, self: Batched, *rest: Any) -> Any:
        return op(self.whole(count), *rest)

    return rule


def _resized_backward(op: Any) -> Rule:
    """Of the derivative of a resize (gradient, size of the result, size of the input, *options)."""

    def rule(count: Any, gradient: Batched, size: Any, before: Sequence[Any], *rest: Any) -> Any:
        return _apart(count, op(_joined(gradient, count), size, [count * before[0], *before[1:]], *rest))

    return rule


def _affine_grid(count: Any, theta: Batched, size: Sequence[Any], align_corners: bool) -> Any:
    found = _aten.affine_grid_generator(_joined(theta, count), [count * size[0], *size[1:]], align_corners)
    return _apart(count, found)


# ---- convolutions
def _convolution(count: Any, x: Batched, weight: Batched, bias: Batched | None, *rest: Any) -> Any:
    *options, groups = rest
    inside = bias.value if bias is not None and not bias.has_batch and not weight.has_batch else None
    if not weight.has_batch:
        found = _apart(count, _aten.convolution(_joined(x, count), weight.value, inside, *options, groups))
    elif not x.has_batch and groups == 1 and not options[3]:
        wide = _aten.convolution(x.value, weight.value.flatten(0, 1), None, *options, groups)
        found = apart_again(count, wide)
    else:
        given = side_by_side(x.whole(count)), weight.value.flatten(0, 1)
        found = apart_again(count, _aten.convolution(*given, None, *options, groups * count))
    if bias is not None and inside is None:
        found = found + _over_channels(bias, x.rank)
    return found


def _over_channels(one: Batched, rank: int) -> Tensor:
    """A vector over channels, for broadcasting over [batch, n, channels, ...]."""
    spread = [1] * (rank - 2)
    if one.has_batch:
        return one.value.reshape(one.value.size(0), 1, -1, *spread)
    return one.value.reshape(-1, *spread)


def _weight_gradient(count: Any, given: Sequence[Tensor], stride: Any, padding: Any, dilation: Any) -> Any:
    """As a convolution of the input by the gradient, whose own derivative has no loop over groups."""
    gradient, x, weight = given
    images = x.permute(2, 0, 1, *range(3, x.dim())).flatten(1, 2)  # [channels, batch * n, ...]
    kernels = gradient.transpose(1, 2).flatten(0, 1)  # [batch * channels of results, n, ...]
    none = [0] * len(stride)
    found = _aten.convolution(images, kernels, None, dilation, padding, stride, False, none, count)
    for dim in range(3, weight.dim()):
        found = found.narrow(dim - 1, 0, weight.size(dim))
    apart = found.reshape(found.size(0), count, weight.size(1), *found.shape[2:])
    return apart.permute(1, 2, 0, *range(3, apart.dim()))


def _convolution_backward(
    count: Any, gradient: Batched, x: Batched, weight: Batched, bias_sizes: Any, *rest: Any
) -> Any:
    *options, groups, wanted = rest
    grouped = gradient.whole(count), x.whole(count), weight.whole(count)
    of_x = of_weight = of_bias = None
    if wanted[0] and not weight.has_batch:
        given = _joined(gradient, count), _joined(x, count), weight.value
        of_x = _apart(count, _aten.convolution_backward(*given, None, *options, groups, [True, False, False])[0])
    if wanted[1] and groups == 1 and not options[3] and any(one.requires_grad for one in grouped):
        of_weight = _weight_gradient(count, grouped, *options[:3])
    if (wanted[1] and of_weight is None) or (wanted[0] and of_x is None):
        given = side_by_side(grouped[0]), side_by_side(grouped[1]), grouped[2].flatten(0, 1)
        mask = [wanted[0] and of_x is None, wanted[1] and of_weight is None, False]
        made = _aten.convolution_backward(*given, None, *options, groups * count, mask)
        of_x = apart_again(count, made[0]) if mask[0] else of_x
        of_weight = made[1].reshape(grouped[2].shape) if mask[1] else of_weight
    if wanted[2]:
        whole = grouped[0]
        of_bias = whole.sum([1, *range(3, whole.dim())])
    return of_x, of_weight, of_bias


# ---- attention
def _attention(op: Any, many: int) -> Rule:
    """Of an operator whose first `many` arguments are tensors with a batch of heads, and whose mask is broadcast."""

    def rule(count: Any, *args: Any, attn_mask: Batched | None = None, **more: Any) -> Any:
        if args[many:] and any(isinstance(one, Batched) for one in args[many:]):
            return NotImplemented
        tensors = [_joined(one, count) for one in args[:many]]
        if attn_mask is not None:
            query, key = args[many - 6 if many > 3 else 0], args[many - 5 if many > 3 else 1]
            sizes = [
                count,
                query.size(0),
                attn_mask.size(-3) if attn_mask.rank > 2 else 1,
                query.size(-2),
                key.size(-2),
            ]
            more["attn_mask"] = attn_mask.of_rank(4).expand(sizes).flatten(0, 1)
        return _apart(count, op(*tensors, *args[many:], **more))

    return rule


def _both(name: str, rank: int) -> Rows:
    """An operator over images and its derivative."""
    packets = getattr(_aten, name), getattr(_aten, name + "_backward")
    return {packet.default: _images(packet.default, rank) for packet in packets}


def _resizes() -> Rows:
    rows: Rows = {}
    names = {
        3: ("upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_linear1d"),
        4: ("upsample_nearest2d", "_upsample_nearest_exact2d", "upsample_bilinear2d", "upsample_bicubic2d"),
        5: ("upsample_nearest3d", "_upsample_nearest_exact3d", "upsample_trilinear3d"),
    }
    for rank, group in names.items():
        for name in group:
            op, derivative = getattr(_aten, name).default, getattr(_aten, name + "_backward").default
            rows[op], rows[derivative] = _images(op, rank), _resized_backward(derivative)
    return rows


ROWS: Rows = {
    **_resizes(),
    **_both("avg_pool2d", 4),
    **_both("avg_pool3d", 5),
    **_both("max_pool2d_with_indices", 4),
    **_both("max_pool3d_with_indices", 5),
    **_both("_adaptive_avg_pool2d", 4),
    **_both("_adaptive_avg_pool3d", 5),
    **_both("adaptive_max_pool2d", 4),
    **_both("adaptive_max_pool3d", 5),
    **_both("reflection_pad1d", 3),
    **_both("reflection_pad2d", 4),
    **_both("reflection_pad3d", 5),
    **_both("replication_pad1d", 3),
    **_both("replication_pad2d", 4),
    **_both("replication_pad3d", 5),
    **_both("grid_sampler_2d", 4),
    **_both("grid_sampler_3d", 5),
    _aten.im2col.default: _images(_aten.im2col.default, 4),
    _aten.col2im.default: _images(_aten.col2im.default, 3),
    _aten.pixel_shuffle.default: _leading(_aten.pixel_shuffle.default),
    _aten.pixel_unshuffle.default: _leading(_aten.pixel_unshuffle.default),
    _aten.channel_shuffle.default: _images(_aten.channel_shuffle.default, 4),
    _aten.affine_grid_generator.default: _affine_grid,
    _aten.convolution.default: _convolution,
    _aten.convolution_backward.default: _convolution_backward,
    _aten._scaled_dot_product_flash_attention_for_cpu.default: _attention(
        _aten._scaled_dot_product_flash_attention_for_cpu.default, 3
    ),
    _aten._scaled_dot_product_flash_attention_for_cpu_backward.default: _attention(
        _aten._scaled_dot_product_flash_attention_for_cpu_backward.default, 6
    ),
}
