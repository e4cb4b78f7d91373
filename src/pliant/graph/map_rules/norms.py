"""Rules for normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pliant.graph.map_rules.kernels import Batched, Rows, Rule, apart_again, side_by_side

_aten = torch.ops.aten


# ---- over the last dimensions
def layer_norm(
    count: Any, x: Batched, shape: Sequence[Any], weight: Batched | None, bias: Batched | None, eps: float
) -> Any:
    plain = not any(one is not None and one.has_batch for one in (weight, bias))
    inside = [None if one is None or not plain else one.value for one in (weight, bias)]
    out, mean, rstd = _aten.native_layer_norm(x.whole(count), shape, *inside, eps)
    if not plain:
        out = out * weight.of_rank(x.rank) if weight is not None else out
        out = out + bias.of_rank(x.rank) if bias is not None else out
    return out, mean, rstd


def layer_norm_backward(
    count: Any, gradient: Batched, x: Batched, shape: Sequence[Any], mean: Batched, rstd: Batched,
    weight: Batched | None, bias: Batched | None, wanted: Sequence[bool],
) -> Any:  # fmt: skip
    whole, values = gradient.whole(count), x.whole(count)
    stats = mean.whole(count), rstd.whole(count)
    of_x = of_weight = of_bias = None
    if wanted[0]:
        scaled = whole if weight is None else whole * weight.of_rank(x.rank)
        scaled, *dense = [one.contiguous() for one in (scaled, values, *stats)]  # the kernels read them as if they were
        given = scaled, dense[0], shape, *dense[1:], None, None, [True, False, False]
        of_x = _aten.native_layer_norm_backward(*given)[0]
    outer = list(range(1, 1 + x.rank - len(shape)))
    if wanted[1]:
        of_weight = _summed(whole * (values - stats[0]) * stats[1], outer)
    if wanted[2]:
        of_bias = _summed(whole, outer)
    return of_x, of_weight, of_bias


def _summed(one: Tensor, dims: list[int]) -> Tensor:
    return one.sum(dims) if dims else one


# ---- over groups of channels
def _channels(one: Batched | None, rank: int) -> Any:
    """A vector over channels, for broadcasting over [batch, n, channels, ...]."""
    if one is None:
        return None
    front = (one.value.size(0), 1) if one.has_batch else ()
    return one.value.reshape(*front, -1, *[1] * (rank - 2))


def group_norm(
    count: Any, x: Batched, weight: Batched | None, bias: Batched | None, n: Any, channels: Any, area: Any, group: int,
    eps: float,
) -> Any:  # fmt: skip
    whole = x.whole(count)
    out, mean, rstd = _aten.native_group_norm(whole.flatten(0, 1), None, None, count * n, channels, area, group, eps)
    out = _affine(out.reshape(whole.shape), _channels(weight, x.rank), _channels(bias, x.rank))
    return out, mean.reshape(count, n, group), rstd.reshape(count, n, group)


def _affine(out: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def group_norm_backward(
    count: Any, gradient: Batched, x: Batched, mean: Batched, rstd: Batched, weight: Batched | None, n: Any,
    channels: Any, area: Any, group: int, wanted: Sequence[bool],
) -> Any:  # fmt: skip
    whole, values = gradient.whole(count), x.whole(count)
    stats = mean.whole(count), rstd.whole(count)
    of_x = of_weight = of_bias = None
    if wanted[0]:
        scaled = whole if weight is None else whole * _channels(weight, x.rank)
        given = [one.flatten(0, 1).contiguous() for one in (scaled, values, *stats)]
        sizes = count * n, channels, area, group
        of_x = _aten.native_group_norm_backward(*given, None, *sizes, [True, False, False])[0].reshape(values.shape)
    dims = [1, *range(3, values.dim())]
    if wanted[1]:
        shape = (count, n, group, -1)
        flat, slopes = values.reshape(shape), whole.reshape(shape)
        each = slopes * (flat - stats[0].unsqueeze(-1)) * stats[1].unsqueeze(-1)
        of_weight = each.reshape(values.shape).sum(dims)
    if wanted[2]:
        of_bias = whole.sum(dims)
    return of_x, of_weight, of_bias


# ---- over a batch
def _statistics(count: Any, one: Tensor) -> Tensor:
    """A statistic of each channel; those that do not train have none."""
    return one.reshape(count, one.numel() // count)


def _batch_norm(op: Any, trains: bool | None) -> Rule:
    """`trains`: whether it always does, or never; None if an argument says so. What would be written stays with C++."""

    def rule(count: Any, x: Batched, weight: Any, bias: Any, *rest: Any) -> Any:
        running, options = [one for one in rest if isinstance(one, Batched)], rest[-3:] if trains is None else rest[-2:]
        training = bool(options[0]) if trains is None else trains
        if x.rank < 2 or (running and training):
            return NotImplemented
        whole = x.whole(count)
        given = [one.whole(count).flatten() for one in running] if running else [None] * (len(rest) - len(options))
        out, mean, scale = op(side_by_side(whole), None, None, *given, *options)
        out = _affine(apart_again(count, out), _channels(weight, x.rank), _channels(bias, x.rank))
        return out, _statistics(count, mean), _statistics(count, scale)

    return rule


def batch_norm_backward(
    count: Any, gradient: Batched, x: Batched, weight: Batched | None, running_mean: Batched | None,
    running_var: Batched | None, save_mean: Batched | None, save_invstd: Batched | None, training: bool, eps: float,
    wanted: Sequence[bool],
) -> Any:  # fmt: skip
    whole, values = gradient.whole(count), x.whole(count)
    vectors = [
        None if one is None else one.whole(count).flatten()
        for one in (running_mean, running_var, save_mean, save_invstd)
    ]
    of_x = of_weight = of_bias = None
    if wanted[0]:
        scaled = whole if weight is None else whole * _channels(weight, x.rank)
        given = side_by_side(scaled), side_by_side(values), None, *vectors, training, eps, [True, False, False]
        of_x = apart_again(count, _aten.native_batch_norm_backward(*given)[0])
    dims = [1, *range(3, values.dim())]
    if wanted[1]:
        mean, scale = (save_mean, save_invstd) if training else (running_mean, running_var)
        if mean is None or scale is None:
            return NotImplemented
        factor = _channels(scale, x.rank) if training else (_channels(scale, x.rank) + eps).rsqrt()
        of_weight = (whole * (values - _channels(mean, x.rank)) * factor).sum(dims)
    if wanted[2]:
        of_bias = whole.sum(dims)
    return of_x, of_weight, of_bias


ROWS: Rows = {
    _aten.native_batch_norm.default: _batch_norm(_aten.native_batch_norm.default, None),
    _aten._native_batch_norm_legit.default: _batch_norm(_aten._native_batch_norm_legit.default, None),
    _aten._native_batch_norm_legit.no_stats: _batch_norm(_aten._native_batch_norm_legit.no_stats, None),
    _aten._native_batch_norm_legit_no_training.default: _batch_norm(
        _aten._native_batch_norm_legit_no_training.default, False
    ),
}
