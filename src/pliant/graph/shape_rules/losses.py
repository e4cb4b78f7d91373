"""Losses: one number, or one for each element.

In:     specs of what is compared; reduction 0 is none.
Out:    specs of the results.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.layouts import preserved_strides
from pliant.graph.shape_rules.pointwise import pointwise_rule
from pliant.graph.shape_rules.registry import Rules
from pliant.graph.tensor_spec import Dim, TensorSpec, require, require_floats, require_same

RULES = Rules()
rule = RULES.rule

_aten = torch.ops.aten
_Maybe = TensorSpec | None
_difference = pointwise_rule(_aten.sub.Tensor)


@rule(_aten.nll_loss_forward.default, _aten.nll_loss2d_forward.default)
def nll_loss(
    x: TensorSpec, target: TensorSpec, weight: _Maybe, reduction: int, ignore_index: Dim
) -> tuple[TensorSpec, TensorSpec]:
    require_floats(x, "nll_loss")
    require(target.dtype in (torch.int64, torch.uint8), "expected target dtype to be Long or Byte")
    if weight is not None and weight.dtype is not x.dtype:
        raise RuntimeError(f"nll_loss: weights of {weight.dtype} beside {x.dtype}")
    if x.ndim > 1:
        batch = (x.size[0], *x.size[2:])
        require_same(target.size, batch, "nll_loss: input and target do not match")
    return x.like(target.size if reduction == 0 and x.ndim > 1 else ()), x.like(())


@rule(_aten.smooth_l1_loss.default)
def smooth_l1_loss(x: TensorSpec, target: TensorSpec, reduction: int = 1, beta: Any = 1.0) -> TensorSpec:
    require(beta >= 0, "smooth_l1_loss does not support negative values for beta.")
    return _distance(x, target, reduction)


@rule(_aten.huber_loss.default)
def huber_loss(x: TensorSpec, target: TensorSpec, reduction: int = 1, delta: Any = 1.0) -> TensorSpec:
    """Of the first tensor's dtype."""
    require(delta > 0, "huber_loss does not support non-positive values for delta.")
    found = _distance(x, target, reduction)
    return TensorSpec(found.size, found.stride, x.dtype, found.device)


@rule(_aten.mse_loss_backward.default)
def mse_loss_backward(grad: TensorSpec, x: TensorSpec, target: TensorSpec, reduction: int) -> TensorSpec:
    """Zeros in rows, to which the gradient is added."""
    found: TensorSpec = pointwise_rule(_aten.mse_loss_backward.default)(grad, x, target, reduction)
    return found.like()


@rule(_aten.smooth_l1_loss_backward.default, _aten.huber_loss_backward.default)
def distance_backward(grad: TensorSpec, x: TensorSpec, target: TensorSpec, reduction: int, bound: float) -> TensorSpec:
    return mse_loss_backward(grad, x, target, reduction)


@rule(_aten.binary_cross_entropy.default)
def binary_cross_entropy(x: TensorSpec, target: TensorSpec, weight: _Maybe = None, reduction: int = 1) -> TensorSpec:
    """Made like the first tensor, whatever the others are."""
    require_floats(x, "binary_cross_entropy")
    require_same(target.size, x.size, "binary_cross_entropy: input and target differ in size")
    found: TensorSpec = pointwise_rule(_aten.mul.Tensor)(x, x if weight is None else weight)
    require_same(found.size, x.size, "binary_cross_entropy: the weight does not broadcast to the input")
    return x.like(()) if reduction else TensorSpec(x.size, preserved_strides(x), x.dtype, x.device)


def _distance(x: TensorSpec, target: TensorSpec, reduction: int) -> TensorSpec:
    found: TensorSpec = _difference(x, target)
    require_floats(found, "a loss")
    return found.like(()) if reduction else found
