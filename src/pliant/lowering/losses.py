"""Losses over elements, forward and backward.

In:     ATen's loss operators, whose `reduction` is 0 (none), 1 (mean) or 2 (sum).
Out:    pointwise work, and one reduction of it, which the scheduler fuses with what made the operands.
Holds:  everything is computed in f32 (f64 for doubles) and rounded once; the formulas are eager's. Losses that pick a class are
        in `indexing.py`; `binary_cross_entropy` fails on its data, so its forward is the library's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.scalar import Scalar, apply, const, where
from pliant.lowering.context import Lowering
from pliant.lowering.formulas import log_sigmoid, mul, plus, square, sub, times
from pliant.lowering.pointwise import combined, elements, number
from pliant.lowering.reduction import count, mean_of, rounded
from pliant.lowering.tensors import Shape, Tensor, opmath
from pliant.symbolic.expr import ONE

aten = torch.ops.aten
Formula = Callable[..., Scalar]
_LEAST_DIVISOR = 1e-12  # of the derivative of `binary_cross_entropy`, as documented with the operator


def _spreads_to(t: Tensor, shape: Shape) -> bool:
    """Whether the tensor broadcasts to `shape` and makes it no larger."""
    return len(t.shape) <= len(shape) and all(d in (ONE, e) for d, e in zip(t.shape[::-1], shape[::-1]))


def _needs(out: torch.Tensor, x: Tensor, y: Tensor, *weights: Tensor | None) -> None:
    if not out.dtype.is_floating_point:
        raise Unsupported("losses of integers or complex numbers")
    if x.shape != y.shape or not all(w is None or _spreads_to(w, x.shape) for w in weights):
        raise Unsupported("sizes that differ")


def _loss(
    low: Lowering, out: torch.Tensor, inputs: tuple[Tensor | None, ...], reduction: int, formula: Formula, cost: int
) -> Tensor:
    """`formula` of the inputs' elements, reduced. The first input has the loss's shape; None stays None."""
    dtype, x = opmath(out.dtype), inputs[0]
    assert x is not None
    losses = combined(low, dtype, x.shape, inputs, formula, cost)
    dims = list(range(len(x.shape)))
    if reduction == 1:
        losses = mean_of(low, losses, dims, dtype)
    elif reduction == 2:
        losses = low.reduce(losses, dims, "sum", dtype, dtype)
    return rounded(losses, out.dtype)


def _share(low: Lowering, x: Tensor, reduction: int, dtype: torch.dtype) -> Scalar:
    """What a gradient of the loss is multiplied by for each element."""
    one = const(1, dtype)
    return one if reduction != 1 else apply("div", one, low.number(count(low, x, range(len(x.shape))), dtype))


def _distance(formula: Callable[[Scalar, Scalar], Scalar], preset: float) -> Callable[..., Tensor]:
    """The rule of a loss that is `formula(|x - y|, width)`."""

    def rule(low: Lowering, out: torch.Tensor, x: Tensor, y: Tensor, reduction: int = 1, width: Any = preset) -> Tensor:
        _needs(out, x, y)
        bound = number(low, width, opmath(out.dtype))
        return _loss(low, out, (x, y), reduction, lambda a, b: formula(apply("abs", sub(a, b)), bound), 8)

    return rule


def _slope(outside: Callable[[Scalar], Scalar], inside: Callable[[Scalar, Scalar], Scalar]) -> Callable[..., Tensor]:
    """The rule of a derivative that is `outside(width)`, with the sign of x - y, at least `width` from 0, else `inside`."""

    def rule(
        low: Lowering, out: torch.Tensor, grad: Tensor, x: Tensor, y: Tensor, reduction: int, width: Any
    ) -> Tensor:
        _needs(out, x, y)
        dtype = opmath(out.dtype)
        share, bound = _share(low, x, reduction, dtype), number(low, width, opmath(out.dtype))

        def formula(g: Scalar, a: Scalar, b: Scalar) -> Scalar:
            d = sub(a, b)
            far = outside(bound)
            slope = where(apply("ge", d, bound), far, inside(d, bound))
            slope = where(apply("le", d, apply("neg", bound)), apply("neg", far), slope)
            return mul(mul(share, slope), g)

        return elements(low, out, (grad, x, y), dtype, formula, 8)

    return rule


def _smooth_l1(z: Scalar, beta: Scalar) -> Scalar:
    near = apply("div", mul(times(z, 0.5), z), beta)
    return where(apply("lt", z, beta), near, sub(z, times(beta, 0.5)))


def _huber(z: Scalar, delta: Scalar) -> Scalar:
    return where(apply("le", z, delta), times(square(z), 0.5), mul(delta, sub(z, times(delta, 0.5))))


def _mse_loss(low: Lowering, out: torch.Tensor, x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    _needs(out, x, y)
    return _loss(low, out, (x, y), reduction, lambda a, b: square(sub(a, b)), 2)


def _mse_loss_backward(low: Lowering, out: torch.Tensor, grad: Tensor, x: Tensor, y: Tensor, reduction: int) -> Tensor:
    dtype = opmath(out.dtype)
    factor: Scalar = const(2, dtype)
    if reduction == 1:
        factor = apply("div", factor, low.number(count(low, x, range(len(x.shape))), dtype))
    return elements(low, out, (grad, x, y), dtype, lambda g, a, b: mul(mul(factor, sub(a, b)), g), 3)


def _soft_margin_loss(low: Lowering, out: torch.Tensor, x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    _needs(out, x, y)

    def formula(a: Scalar, b: Scalar) -> Scalar:
        return apply("log1p", apply("exp", mul(apply("neg", a), b)))

    return _loss(low, out, (x, y), reduction, formula, 40)


def _soft_margin_loss_backward(
    low: Lowering, out: torch.Tensor, grad: Tensor, x: Tensor, y: Tensor, reduction: int
) -> Tensor:
    _needs(out, x, y)
    dtype = opmath(out.dtype)
    share = _share(low, x, reduction, dtype)

    def formula(g: Scalar, a: Scalar, b: Scalar) -> Scalar:
        z = apply("exp", mul(apply("neg", b), a))
        return mul(apply("div", mul(apply("neg", share), mul(b, z)), plus(z, 1)), g)

    return elements(low, out, (grad, x, y), dtype, formula, 26)


def _bce_with_logits(
    low: Lowering, out: torch.Tensor, x: Tensor, y: Tensor, weight: Tensor | None = None,
    positives: Tensor | None = None, reduction: int = 1,
) -> Tensor:  # fmt: skip
    _needs(out, x, y, weight, positives)

    def formula(a: Scalar, b: Scalar, w: Scalar | None, p: Scalar | None) -> Scalar:
        near = log_sigmoid(a)
        if p is not None:
            near = mul(plus(mul(plus(p, -1), b), 1), near)
        loss = sub(mul(sub(const(1, b.dtype), b), a), near)
        return loss if w is None else mul(loss, w)

    return _loss(low, out, (x, y, weight, positives), reduction, formula, 44)


def _bce_backward(
    low: Lowering, out: torch.Tensor, grad: Tensor, x: Tensor, y: Tensor, weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:  # fmt: skip
    _needs(out, x, y, weight)
    dtype = opmath(out.dtype)
    share = _share(low, x, reduction, dtype)

    def formula(g: Scalar, a: Scalar, b: Scalar, w: Scalar | None) -> Scalar:
        divisor = apply("maximum", mul(sub(const(1, dtype), a), a), const(_LEAST_DIVISOR, dtype))
        slope = apply("div", mul(g, sub(a, b)), divisor)
        return mul(slope if w is None else mul(slope, w), share)

    return elements(low, out, (grad, x, y, weight), dtype, formula, 10)


RULES: dict[Any, Callable[..., Any]] = {
    aten.mse_loss.default: _mse_loss,
    aten.mse_loss_backward.default: _mse_loss_backward,
    aten.smooth_l1_loss.default: _distance(_smooth_l1, 1.0),
    aten.smooth_l1_loss_backward.default: _slope(lambda beta: const(1, beta.dtype), lambda d, beta: apply("div", d, beta)),
    aten.huber_loss.default: _distance(_huber, 1.0),
    aten.huber_loss_backward.default: _slope(lambda delta: delta, lambda d, delta: d),
    aten.soft_margin_loss.default: _soft_margin_loss,
    aten.soft_margin_loss_backward.default: _soft_margin_loss_backward,
    aten.binary_cross_entropy_with_logits.default: _bce_with_logits,
    aten.binary_cross_entropy_backward.default: _bce_backward,
}
