"""Rules for derivatives pushed forward through normalizations, whose formulas in C++ ask for plain sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from pliant.graph.map_rules.kernels import Differentiable, Rows
from pliant.graph.map_rules.norms import group_norm, group_norm_backward, layer_norm, layer_norm_backward

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


ROWS: Rows = {
    _aten.native_layer_norm.default: Differentiable(_layer_norm, layer_norm),
    _aten.native_group_norm.default: Differentiable(_group_norm, group_norm),
    _aten.native_layer_norm_backward.default: Differentiable(_layer_norm_backward, layer_norm_backward),
    _aten.native_group_norm_backward.default: Differentiable(_group_norm_backward, group_norm_backward),
}
