"""Rules for derivatives pushed forward, where formulas in C++ ask for plain sizes: normalizations, what joins tensors, tangents
that lie otherwise than what they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from pliant.graph.map_rules.kernels import Batched, Differentiable, Rows
from pliant.graph.map_rules.norms import group_norm, group_norm_backward, layer_norm, layer_norm_backward
from pliant.graph.map_rules.places import cat

_aten = torch.ops.aten
_LEVEL = 0  # transforms keep the tangents of each of their levels there


def _is_pushed(one: Tensor | None) -> bool:
    return _parts(one)[1] is not None


def _parts(one: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """The value, and its tangent if it has one."""
    return (None, None) if one is None else forward_ad.unpack_dual(one, level=_LEVEL)  # type: ignore[no-untyped-call]


def _normalized(x: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Over the last dimension."""
    mean, var = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    scale = (var + eps).rsqrt()
    return (x - mean) * scale, mean, scale


def _is_composed(x: Tensor, *affine: Tensor | None) -> bool:
    """Halves are summed in wider numbers."""
    alike = all(one is None or one.dtype == x.dtype for one in affine) and x.dtype in (torch.float32, torch.float64)
    return alike and any(map(_is_pushed, (x, *affine)))


def _layer_norm(x: Tensor, shape: Sequence[Any], weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
    """A gradient of the tangent takes the statistics for constants, as PyTorch's formula has it."""
    if not _is_composed(x, weight, bias):
        return NotImplemented
    (p, dx), (w, dw), (b, db) = map(_parts, (x, weight, bias))
    assert p is not None
    out, mean, scale = _aten.native_layer_norm(p, shape, w, b, eps)
    dims = list(range(x.dim() - len(shape), x.dim()))
    z, pushed = (p - mean) * scale, torch.zeros_like(out)
    if dx is not None:
        centred = dx - dx.mean(dims, keepdim=True)
        dz = (centred - z * (centred * z).mean(dims, keepdim=True)) * scale
        pushed = dz if w is None else dz * w
    pushed = pushed if dw is None else pushed + z * dw
    pushed = pushed if db is None else pushed + db
    made = forward_ad.make_dual(out, pushed, level=_LEVEL)  # type: ignore[no-untyped-call]
    return made, mean, scale


def _group_norm(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, n: Any, channels: Any, area: Any, group: int, eps: float
) -> Any:
    if not _is_composed(x, weight, bias):
        return NotImplemented
    out, mean, scale = _normalized(x.reshape(n, group, -1), eps)
    out, each = out.reshape(x.shape), (-1, *[1] * (x.dim() - 2))
    out = out if weight is None else out * weight.reshape(each)
    return out if bias is None else out + bias.reshape(each), mean.squeeze(-1), scale.squeeze(-1)


def _gradient(dy: Tensor, dz: Tensor, x: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
    """Of what was normalized over the last dimension, and of its factor. The statistics have no tangents: they are those of x."""
    centred = x - x.mean(-1, keepdim=True)
    var = centred.square().mean(-1, keepdim=True)
    scale = (var + (scale.pow(-2) - var).detach()).rsqrt()
    z = centred * scale
    return (dz - dz.mean(-1, keepdim=True) - z * (dz * z).mean(-1, keepdim=True)) * scale, dy * z


def _layer_norm_backward(
    dy: Tensor, x: Tensor, shape: Sequence[Any], mean: Tensor, scale: Tensor, weight: Tensor | None, bias: Tensor | None,
    wanted: Sequence[bool],
) -> Any:  # fmt: skip
    if not _is_composed(dy, x, weight):
        return NotImplemented
    outer = x.shape[: x.dim() - len(shape)]
    dz = dy if weight is None else dy * weight
    rows = [one.reshape(*outer, -1) for one in (dy, dz, x, scale)]
    made, each = (one.reshape(x.shape) for one in _gradient(*rows))
    return _asked(wanted, made, each, dy, list(range(len(outer))))


def _group_norm_backward(
    dy: Tensor, x: Tensor, mean: Tensor, scale: Tensor, weight: Tensor | None, n: Any, channels: Any, area: Any, group: int,
    wanted: Sequence[bool],
) -> Any:  # fmt: skip
    if not _is_composed(dy, x, weight):
        return NotImplemented
    dz = dy if weight is None else dy * weight.reshape(-1, *[1] * (x.dim() - 2))
    rows = [one.reshape(n, group, -1) for one in (dy, dz, x, scale)]
    made, each = (one.reshape(x.shape) for one in _gradient(*rows))
    return _asked(wanted, made, each, dy, [0, *range(2, x.dim())])


def _asked(wanted: Sequence[bool], of_x: Tensor, of_weight: Tensor, of_bias: Tensor, dims: list[int]) -> tuple[Any, ...]:
    of_both = [one.sum(dims) if dims else one for one in (of_weight, of_bias)]
    return tuple(one if asked else None for one, asked in zip((of_x, *of_both), wanted))


def _joined(op: Any) -> Callable[..., Any]:
    """C++ makes zeros of plain sizes for those that have no tangents."""

    def composed(tensors: Sequence[Tensor], dim: int = 0) -> Any:
        parts = [_parts(one) for one in tensors]
        given = [tangent is not None for _, tangent in parts]
        if all(given) or not any(given):
            return NotImplemented
        pushed = [torch.zeros_like(value) if tangent is None else tangent for value, tangent in parts]  # type: ignore[arg-type]
        out = op([value for value, _ in parts], dim)
        return forward_ad.make_dual(out, op(pushed, dim), level=_LEVEL)  # type: ignore[no-untyped-call]

    return composed


def _zeros_for_tangent(count: Any, tangent: Batched, primal: Batched, *, self_num_batch_dims: int = 0) -> Tensor:
    """Of sizes as the tangent's first ones, then the primal's, whose memory they lie like."""
    op, first = _aten._new_zeros_with_same_feature_meta.default, self_num_batch_dims
    if not primal.has_batch:
        return op(tangent.value, primal.value, self_num_batch_dims=first + 1)  # type: ignore[no-any-return]
    value = tangent.value.movedim(0, first) if tangent.has_batch else tangent.value
    made: Tensor = op(value, primal.value, self_num_batch_dims=first)
    return made.movedim(first, 0).detach() if first else made  # no view: it is written, and given a tangent


ROWS: Rows = {
    _aten.cat.default: Differentiable(_joined(_aten.cat.default), cat),
    _aten.stack.default: Differentiable(_joined(_aten.stack.default)),
    _aten._new_zeros_with_same_feature_meta.default: _zeros_for_tangent,
    _aten.native_layer_norm.default: Differentiable(_layer_norm, layer_norm),
    _aten.native_group_norm.default: Differentiable(_group_norm, group_norm),
    _aten.native_layer_norm_backward.default: Differentiable(_layer_norm_backward, layer_norm_backward),
    _aten.native_group_norm_backward.default: Differentiable(_group_norm_backward, group_norm_backward),
}
