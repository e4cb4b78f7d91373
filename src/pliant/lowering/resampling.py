"""Images made larger by whole factors, and their gradients; channels laid out as positions.

In:     signals, images or volumes behind batch and channels.
Out:    nearest: element k of the input for the results from k * factor on. Linear, by factors that are powers of two: between
        two neighbours, at the edges one. Gradients: of each element those of the results that read it, weighted; along the
        last dimension first, then along the others, each stage in memory.
        Shuffled channels: each result is one element.
Holds:  positions are eager's, which computes them in floats: for these factors without rounding. Others are in
        `interpolation.py`, their gradients calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.scalar import Scalar, apply, cast, const, where
from pliant.lowering.context import Lowering
from pliant.lowering.tensors import COMPUTED, Index, Shape, Tensor, opmath
from pliant.records import dataclass
from pliant.symbolic.expr import ZERO, Expr
from pliant.symbolic.rules.extrema import maximum, minimum

aten = torch.ops.aten
_FACTORS = range(2, 9)
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def _factors(low: Lowering, given: Shape, results: Shape, scales: Sequence[Any]) -> list[int]:
    """By how much each dimension grows."""
    return [_factor(low, n, m, scale) for n, m, scale in zip(given[2:], results[2:], scales)]


def _factor(low: Lowering, n: Expr, m: Expr, scale: Any) -> int:
    if scale is not None and type(scale) not in (int, float):
        raise Unsupported("a symbolic scale")
    for k in (1, *_FACTORS):
        if scale in (None, k) and low.known(m.eq(n * k)):
            return int(k)
    raise Unsupported("a factor that is not whole")


def _is_power_of_two(k: int) -> bool:
    return k & (k - 1) == 0


# -- nearest ----------------------------------------------------------------------------------------------------------


def _nearest(low: Lowering, out: torch.Tensor, x: Tensor, size: Any, *scales: Any) -> Tensor:
    shape = low.shape_of(out)
    factors = _factors(low, x.shape, shape, scales or [None] * len(shape[2:]))
    if x.dtype not in COMPUTED:
        raise Unsupported("numbers that loops do not read")
    x.uses = max(x.uses, 2)  # several results read an element

    def at(index: Index) -> Scalar:
        return x.at([*index[:2], *(e // k for e, k in zip(index[2:], factors))])

    return low.pointwise(out.dtype, shape, at, x.weight if x.view is None else 0)


def _nearest_gradient(low: Lowering, out: torch.Tensor, grad: Tensor, size: Any, given: Any, *scales: Any) -> Tensor:
    shape = low.shape_of(out)
    factors = _factors(low, shape, grad.shape, scales or [None] * len(shape[2:]))
    taps = [_Taps([(n, 1.0) for n in range(k)], k) for k in factors]
    return _gathered(low, out, grad, shape, taps)


# -- linear -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Between:
    """Where the results along one dimension lie between elements: `factor` of them for each element, of `count`."""

    low: Lowering
    factor: int
    count: Expr

    @property
    def integer(self) -> torch.dtype:
        """Of positions: lanes hold 32 bits."""
        return torch.int32 if self.low.known((self.count * self.factor).lt(2**30)) else torch.int64

    def weights(self, e: Expr, dtype: torch.dtype) -> tuple[Scalar, Scalar]:
        """How much of result `e` is the element before it, and the one behind it."""
        phase = apply("bit_and", self._shifted(e, self.factor // 2), const(self.factor - 1, self.integer))
        share = apply("mul", apply("add", cast(phase, dtype), const(0.5, dtype)), const(1 / self.factor, dtype))
        return apply("sub", const(1, dtype), share), share

    def elements(self, e: Expr) -> tuple[Expr, Expr]:
        """Both elements, where they would be without an edge."""
        half = self.factor // 2
        return (e - half) // self.factor, (e + half) // self.factor

    def nearest(self, e: Expr) -> tuple[Expr, Expr]:
        """Both elements; at an edge one twice."""
        before, behind = self.elements(e)
        return maximum(before, ZERO), minimum(behind, self.count - 1)

    def are_there(self, e: Expr) -> tuple[Scalar, Scalar]:
        """Whether there are such elements before and behind."""
        half = self.factor // 2
        end = self.low.number(self.count * self.factor, self.integer)
        return apply("ge", self._shifted(e, -half), const(0, self.integer)), apply("lt", self._shifted(e, half), end)

    def _shifted(self, e: Expr, by: int) -> Scalar:
        return apply("add", self.low.number(e, self.integer), const(by, self.integer))


def linear(low: Lowering, out: torch.Tensor, x: Tensor, size: Any, aligned: Any, *scales: Any) -> Tensor:
    shape, dtype = low.shape_of(out), opmath(x.dtype)
    factors = _factors(low, x.shape, shape, scales or [None] * len(shape[2:]))
    if aligned is not False or x.dtype not in _FLOATS or not all(map(_is_power_of_two, factors)):
        raise Unsupported("positions that floats round")
    x.uses = max(x.uses, 2)
    places = [_Between(low, k, n) if k > 1 else None for k, n in zip(factors, x.shape[2:])]

    def mixed(between: _Between, e: Expr, values: Sequence[Scalar]) -> Scalar:
        parts = [apply("mul", weight, value) for weight, value in zip(between.weights(e, dtype), values)]
        return apply("add", *parts)

    def along(point: list[Expr], dim: int) -> Scalar:
        """The value where dimensions before `dim` are elements of the input, and those from it on are results."""

        def value(k: Expr) -> Scalar:
            return along([*point[:dim], k, *point[dim + 1 :]], dim + 1)

        if dim == len(point):
            return x.math_at(point)
        between = places[dim - 2]
        if between is None:
            return along(point, dim + 1)
        e = point[dim]
        if dim < len(point) - 1:
            return mixed(between, e, [value(k) for k in between.nearest(e)])
        # lanes read neighbours, which clamped indices are not
        edges = [value(k) for k in (ZERO, between.count - 1)]
        there = [value(k) for k in between.elements(e)]
        return mixed(between, e, [where(c, v, w) for c, v, w in zip(between.are_there(e), there, edges)])

    return low.pointwise(out.dtype, shape, lambda index: along(list(index), 2), 12 * len(factors))


def _linear_gradient(
    low: Lowering, out: torch.Tensor, grad: Tensor, size: Any, given: Any, aligned: Any, *scales: Any
) -> Tensor:
    shape = low.shape_of(out)
    factors = _factors(low, shape, grad.shape, scales or [None] * len(shape[2:]))
    if aligned is not False or grad.dtype not in _FLOATS or not all(map(_is_power_of_two, factors)):
        raise Unsupported("positions that floats round")
    return _gathered(low, out, grad, shape, [_linear_taps(k) for k in factors])


def _linear_taps(k: int) -> _Taps:
    """Results that lie between an element and its neighbours, the nearer the more; at the edges as in a mirror."""
    if k == 1:
        return _Taps([(0, 1.0)], 1)
    rising = [(n + 0.5) / k for n in range(k)]
    return _Taps([(n - k // 2, w) for n, w in enumerate([*rising, *reversed(rising)])], k)


# -- gradients --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Taps:
    """The results that one element is in, by where they lie from `element * factor` on, and with which weight."""

    weights: list[tuple[int, float]]
    factor: int


def _gathered(low: Lowering, out: torch.Tensor, grad: Tensor, shape: Shape, taps: list[_Taps]) -> Tensor:
    """One dimension at a time, from the last on."""
    for dim in range(len(shape) - 1, 1, -1):
        stage = (*grad.shape[:dim], shape[dim], *grad.shape[dim + 1 :])
        is_last = dim == 2
        grad = _along(low, grad, stage, dim, taps[dim - 2], out.dtype if is_last else opmath(out.dtype))
        if not is_last and taps[dim - 2].factor > 1:
            grad.view = low.store(grad)
    return grad


def _along(low: Lowering, grad: Tensor, shape: Shape, dim: int, taps: _Taps, result: torch.dtype) -> Tensor:
    if taps.factor == 1:
        return grad if grad.dtype is result else Tensor(low, result, shape, grad.math_at, weight=grad.weight)
    dtype, last = opmath(grad.dtype), grad.shape[dim] - 1
    grad.uses = max(grad.uses, 2)

    def at(index: Index) -> Scalar:
        total: Scalar | None = None
        for shift, weight in taps.weights:
            e = index[dim] * taps.factor + shift
            found = grad.math_at([*index[:dim], e, *index[dim + 1 :]])
            if not 0 <= shift < taps.factor:
                position = low.number(e)
                end = low.number(grad.shape[dim])
                inside = apply("ge", position, const(0, torch.int64)) if shift < 0 else apply("lt", position, end)
                edge = ZERO - 1 - shift if shift < 0 else last - (shift - taps.factor)
                found = where(inside, found, grad.math_at([*index[:dim], edge, *index[dim + 1 :]]))
            part = found if weight == 1.0 else apply("mul", found, const(weight, dtype))
            total = part if total is None else apply("add", total, part)
        assert total is not None
        return total

    return low.pointwise(result, shape, at, 3 * len(taps.weights))


# -- channels as positions --------------------------------------------------------------------------------------------


def _shuffle(low: Lowering, out: torch.Tensor, x: Tensor, factor: Any) -> Tensor:
    if type(factor) is not int or x.dtype not in COMPUTED:
        raise Unsupported("a symbolic factor, or numbers that loops do not read")
    k = factor

    def at(index: Index) -> Scalar:
        *outer, c, h, w = index

        def element(column: Expr) -> Scalar:
            return x.at([*outer, c * (k * k) + (h % k) * k + column, h // k, w // k])

        if k != 2:
            return element(w % k)
        is_odd = apply("ne", apply("bit_and", low.number(w, torch.int32), const(1, torch.int32)), const(0, torch.int32))
        return where(is_odd, element(ZERO + 1), element(ZERO))

    return low.pointwise(out.dtype, low.shape_of(out), at, 4 + (x.weight if x.view is None else 0))


def _unshuffle(low: Lowering, out: torch.Tensor, x: Tensor, factor: Any) -> Tensor:
    if type(factor) is not int or x.dtype not in COMPUTED:
        raise Unsupported("a symbolic factor, or numbers that loops do not read")
    k = factor

    def at(index: Index) -> Scalar:
        *outer, c, h, w = index
        return x.at([*outer, c // (k * k), h * k + c // k % k, w * k + c % k])

    return low.pointwise(out.dtype, low.shape_of(out), at, x.weight if x.view is None else 0)


_NEAREST = ("upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d")
_EXACT = tuple(f"_{name.replace('nearest', 'nearest_exact')}" for name in _NEAREST)
_LINEAR = ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d")


def _overload(name: str) -> Any:
    return getattr(aten, name).default


RULES: dict[Any, Callable[..., Any]] = {
    **{_overload(name): _nearest for name in (*_NEAREST, *_EXACT)},
    **{_overload(f"{name}_backward"): _nearest_gradient for name in (*_NEAREST, *_EXACT)},
    **{_overload(f"{name}_backward"): _linear_gradient for name in _LINEAR},
    aten.pixel_shuffle.default: _shuffle,
    aten.pixel_unshuffle.default: _unshuffle,
}
