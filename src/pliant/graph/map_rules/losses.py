"""Rules for losses, each composed for one sample."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from pliant.graph.map_rules.kernels import PerSample, Rows

_aten = torch.ops.aten
_NONE, _MEAN = 0, 1  # `reduction` of losses


def _reduced(each: Tensor, reduction: int) -> Tensor:
    if reduction == _NONE:
        return each
    return each.mean() if reduction == _MEAN else each.sum()


def _share(like: Tensor, reduction: int) -> Any:
    """How many elements a gradient is shared by."""
    return math.prod(like.shape) if reduction == _MEAN else 1


def _binary_cross_entropy(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = _MEAN) -> Tensor:
    each = (target - 1) * (-x).log1p().clamp(min=-100) - target * x.log().clamp(min=-100)
    return _reduced(each if weight is None else each * weight, reduction)


def _binary_cross_entropy_backward(
    gradient: Tensor, x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: int = _MEAN
) -> Any:
    each = gradient * (x - target) / ((1 - x) * x).clamp(min=1e-12)
    return (each if weight is None else each * weight) / _share(x, reduction)


def _soft_margin(x: Tensor, target: Tensor, reduction: int = _MEAN) -> Tensor:
    return _reduced((-target * x).exp().log1p(), reduction)


def _soft_margin_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int) -> Any:
    power = (-target * x).exp()
    return gradient * -target * power / (power + 1) / _share(x, reduction)


def _mse(x: Tensor, target: Tensor, reduction: int = _MEAN) -> Tensor:
    apart = x - target
    return _reduced(apart * apart, reduction)


def _smooth_l1(x: Tensor, target: Tensor, reduction: int = _MEAN, beta: float = 1.0) -> Tensor:
    apart = (x - target).abs()
    if beta == 0:
        return _reduced(apart, reduction)
    return _reduced(torch.where(apart < beta, 0.5 * apart * apart / beta, apart - 0.5 * beta), reduction)


def _huber(x: Tensor, target: Tensor, reduction: int = _MEAN, delta: float = 1.0) -> Tensor:
    apart = (x - target).abs()
    return _reduced(torch.where(apart <= delta, 0.5 * apart * apart, delta * (apart - 0.5 * delta)), reduction)


def _kl_div(x: Tensor, target: Tensor, reduction: int = _MEAN, *, log_target: bool = False) -> Tensor:
    each = target.exp() * (target - x) if log_target else torch.xlogy(target, target) - target * x
    return _reduced(each, reduction)


def _margin_ranking(a: Tensor, b: Tensor, target: Tensor, margin: float = 0.0, reduction: int = _MEAN) -> Tensor:
    return _reduced((-target * (a - b) + margin).clamp(min=0), reduction)


def _triplet_margin(
    anchor: Tensor, positive: Tensor, negative: Tensor, margin: float = 1.0, p: float = 2, eps: float = 1e-6,
    swap: bool = False, reduction: int = _MEAN,
) -> Any:  # fmt: skip
    if len({anchor.dim(), positive.dim(), negative.dim()}) != 1:
        return NotImplemented
    near, far = _distance(anchor, positive, p, eps), _distance(anchor, negative, p, eps)
    if swap:
        far = torch.min(far, _distance(positive, negative, p, eps))
    return _reduced((margin + near - far).clamp(min=0), reduction)


def _distance(a: Tensor, b: Tensor, p: float, eps: float) -> Any:
    return torch.norm(a - b + eps, p, dim=-1)


def _multi_margin(
    x: Tensor, target: Tensor, p: Any = 1, margin: Any = 1, weight: Tensor | None = None, reduction: int = _MEAN
) -> Any:
    rows, places = (x, target) if x.dim() == 2 else (x.unsqueeze(0), target.reshape(1))
    places = places.unsqueeze(1)
    each = (margin - rows.gather(1, places) + rows).clamp(min=0)
    each = each if p == 1 else each * each
    if weight is not None:
        each = each * weight[places]
    others = torch.arange(rows.size(1), device=x.device) != places
    found = torch.where(others, each, 0).mean(1)
    return _reduced(found.reshape(target.shape) if reduction == _NONE else found, reduction)


# ---- by classes
def _classes(target: Tensor, ignored: int, weight: Tensor | None, like: Tensor, dim: int) -> tuple[Tensor, Tensor]:
    """The class of each, one that exists for those that are ignored; and its weight, 0 for these."""
    kept = target != ignored
    places = torch.where(kept, target, 0).unsqueeze(dim)
    if weight is None:
        return places, kept.to(like.dtype)
    spread = [-1 if i == dim else 1 for i in range(like.dim())]
    return places, torch.where(kept, weight.reshape(spread).expand(like.shape).gather(dim, places).squeeze(dim), 0)


def _nll_loss(x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int) -> tuple[Tensor, Tensor]:
    dim = 0 if x.dim() == 1 else 1
    places, share = _classes(target, ignored, weight, x, dim)
    each = -x.gather(dim, places).squeeze(dim) * share
    if reduction == _NONE:
        return torch.where(target != ignored, each, 0), x.new_zeros(())
    total = share.sum()
    found = torch.where(target != ignored, each, 0).sum()
    return (found / total if reduction == _MEAN else found), total


def _nll_loss_backward(
    gradient: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignored: int, total: Tensor
) -> Tensor:
    dim = 0 if x.dim() == 1 else 1
    places, share = _classes(target, ignored, weight, x, dim)
    each = -share * gradient if reduction != _MEAN else -share * (gradient / total)
    return torch.zeros_like(x).scatter(dim, places, each.unsqueeze(dim))


ROWS: Rows = {
    _aten.binary_cross_entropy.default: PerSample(_binary_cross_entropy),
    _aten.binary_cross_entropy_backward.default: PerSample(_binary_cross_entropy_backward),
    _aten.soft_margin_loss.default: PerSample(_soft_margin),
    _aten.soft_margin_loss_backward.default: PerSample(_soft_margin_backward),
    _aten.mse_loss.default: PerSample(_mse),
    _aten.smooth_l1_loss.default: PerSample(_smooth_l1),
    _aten.huber_loss.default: PerSample(_huber),
    _aten.kl_div.default: PerSample(_kl_div),
    _aten.margin_ranking_loss.default: PerSample(_margin_ranking),
    _aten.triplet_margin_loss.default: PerSample(_triplet_margin),
    _aten.multi_margin_loss.default: PerSample(_multi_margin),
    _aten.nll_loss_forward.default: PerSample(_nll_loss),
    _aten.nll_loss_backward.default: PerSample(_nll_loss_backward),
    _aten.nll_loss2d_forward.default: PerSample(_nll_loss),
    _aten.nll_loss2d_backward.default: PerSample(_nll_loss_backward),
}
