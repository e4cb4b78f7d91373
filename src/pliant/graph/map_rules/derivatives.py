"""Rules for derivatives of derivatives, composed of operators whose own derivatives take symbolic sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from pliant.graph.map_rules.kernels import Differentiable, PerSample, Rows
from pliant.graph.map_rules.norms import batch_norm_backward
from pliant.graph.map_rules.places import embedding_backward, glu_backward

_aten = torch.ops.aten


def _convolution_double_backward(
    of_dx: Tensor | None, of_dw: Tensor | None, of_db: Tensor | None, dy: Tensor, w: Tensor, x: Tensor, stride: Any,
    padding: Any, dilation: Any, transposed: bool, output_padding: Any, groups: Any, wanted: Any,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """y = conv(x, w) + b is linear in each of the three. With tangents of dx, dw and db,

    <dx, of_dx> = <dy, conv(of_dx, w)>,  <dw, of_dw> = <dy, conv(x, of_dw)>,  <db, of_db> = <dy, of_db>
    """
    options = stride, padding, dilation, transposed, output_padding, groups
    of_dy = of_x = of_w = None
    if wanted[0]:
        parts = [_aten.convolution(a, b, None, *options) for a, b in ((of_dx, w), (x, of_dw)) if a is not None and b is not None]
        if of_db is not None:
            parts.append(of_db.reshape(-1, *[1] * (dy.dim() - 2)).expand(dy.shape))
        of_dy = sum(parts[1:], parts[0]) if parts else None
    if wanted[1] and of_dw is not None:
        of_x = _aten.convolution_backward(dy, x, of_dw, None, *options, [True, False, False])[0]
    if wanted[2] and of_dx is not None:
        of_w = _aten.convolution_backward(dy, of_dx, w, None, *options, [False, True, False])[1]
    return of_dy, of_x, of_w


def _embedding_backward(gradient: Tensor, indices: Tensor, many: Any, padding_idx: int, scale: bool) -> Any:
    if scale or not _recorded(gradient):
        return NotImplemented
    room = gradient.new_zeros(many, gradient.size(-1))
    if padding_idx >= 0:
        gradient = gradient.masked_fill((indices == padding_idx).unsqueeze(-1), 0)
    return room.index_add(0, indices.reshape(-1), gradient.reshape(-1, gradient.size(-1)))


def _recorded(*tensors: Tensor | None) -> bool:
    return torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in tensors)


def _batch_norm_backward(
    dy: Tensor, x: Tensor, w: Tensor | None, mean: Tensor | None, var: Tensor | None, save_mean: Tensor | None,
    save_invstd: Tensor | None, training: bool, eps: float, wanted: Sequence[bool],
) -> Any:  # fmt: skip
    """With z the normalized x, of a batch's own mean and variance in training:  dx = (dz - mean(dz) - z * mean(dz * z)) / std"""
    alike = {one.dtype for one in (dy, x, w, mean, var) if one is not None} <= {torch.float32, torch.float64}
    if not alike or not _recorded(dy, x, w) or not training and (mean is None or var is None):
        return NotImplemented
    dims, shape = [0, *range(2, x.dim())], (1, -1, *[1] * (x.dim() - 2))
    if training:
        mean, var = x.mean(dims), x.var(dims, correction=0)
    assert mean is not None and var is not None
    scale = (var.reshape(shape) + eps).rsqrt()
    z = (x - mean.reshape(shape)) * scale
    dz = dx = dy if w is None else dy * w.reshape(shape)
    if training:
        dx = dz - dz.mean(dims, keepdim=True) - z * (dz * z).mean(dims, keepdim=True)
    made = (dx * scale).to(x.dtype), (dy * z).sum(dims), dy.sum(dims)
    return tuple(one if asked else None for one, asked in zip(made, wanted))


def _glu_backward(dy: Tensor, x: Tensor, dim: int) -> Any:
    if not _recorded(dy, x):
        return NotImplemented
    half = x.size(dim) // 2
    value, gate = x.narrow(dim, 0, half), x.narrow(dim, half, half).sigmoid()
    return torch.cat([dy * gate, dy * value * gate * (1 - gate)], dim)


def _sgn(x: Tensor) -> Any:
    return NotImplemented if x.is_complex() else x.sign()


_convolution = _aten._convolution_double_backward.default

ROWS: Rows = {
    _convolution: Differentiable(_convolution_double_backward, PerSample(_convolution_double_backward)),
    _aten.embedding_dense_backward.default: Differentiable(_embedding_backward, embedding_backward),
    _aten.native_batch_norm_backward.default: Differentiable(_batch_norm_backward, batch_norm_backward),
    _aten.glu_backward.default: Differentiable(_glu_backward, glu_backward),
    _aten.sgn.default: Differentiable(_sgn),
}
