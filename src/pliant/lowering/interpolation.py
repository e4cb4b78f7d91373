"""Images of any other size: linear and cubic interpolation, one dimension at a time.

In:     signals, images or volumes of known size behind batch and channels; scales, if they were given.
Out:    along each dimension a result is a weighted sum of 2 or 4 elements. Stages lie in memory, those that make the image
        smaller first: rows of the other dimensions then cost least. Which elements and weights a column has is computed once
        and lies in memory, too; those of a row are known before its columns are gone through.
Holds:  positions and weights are computed in floats as eager computes them. Growth by powers of two is in `resampling.py`, and
        so are gradients; what lies by channels is a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.scalar import Scalar, apply, cast, const
from pliant.lowering.context import Lowering
from pliant.lowering.formulas import add, mul, plus, sub, times
from pliant.lowering.resampling import linear
from pliant.lowering.tensors import At, Index, Tensor, opmath
from pliant.records import dataclass
from pliant.symbolic.expr import Expr

aten = torch.ops.aten
_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
_CUBIC = -0.75  # the slope of the cubic's kernel at 1

Taps = list[tuple[Scalar, Scalar]]  # elements and their weights


@dataclass(frozen=True, slots=True)
class _Dimension:
    """`elements` made `results`. `step`: how far results are apart, in elements. `aligned`: at both ends they meet."""

    low: Lowering
    elements: int
    results: int
    step: float
    aligned: bool
    cubic: bool
    dtype: torch.dtype

    def taps(self, e: Expr) -> Taps:
        """What result `e` is made of."""
        if self.elements == self.results and not self.cubic:  # as eager has it: of infinities NaN
            return [(self.low.number(e), const(weight, self.dtype)) for weight in (1, 0)]
        index = self.low.number(e, torch.float64)  # eager rounds once, by a fused multiply-add
        place = times(index, self.step) if self.aligned else plus(times(plus(index, 0.5), self.step), -0.5)
        place = cast(place, self.dtype)
        return self._cubic(place) if self.cubic else self._linear(place)

    def _linear(self, place: Scalar) -> Taps:
        zero, last = const(0, self.dtype), const(self.elements - 1, torch.int64)
        place = place if self.aligned else apply("maximum", place, zero)
        first = apply("minimum", cast(place, torch.int64), last)
        share = sub(place, cast(first, self.dtype))
        share = apply("minimum", apply("maximum", share, zero), const(1, self.dtype))
        behind = apply("minimum", apply("add", first, const(1, torch.int64)), last)
        return [(first, sub(const(1, self.dtype), share)), (behind, share)]

    def _cubic(self, place: Scalar) -> Taps:
        below = apply("floor", place)
        t, first = sub(place, below), cast(below, torch.int64)
        u = sub(const(1, self.dtype), t)
        weights = [_outer(plus(t, 1)), _inner(t), _inner(u), _outer(plus(u, 1))]
        zero, last = const(0, torch.int64), const(self.elements - 1, torch.int64)
        places = [apply("add", first, const(k, torch.int64)) for k in (-1, 0, 1, 2)]
        return [(apply("maximum", apply("minimum", p, last), zero), w) for p, w in zip(places, weights)]


def _inner(x: Scalar) -> Scalar:
    """The cubic's kernel up to 1."""
    return plus(mul(mul(plus(times(x, _CUBIC + 2), -(_CUBIC + 3)), x), x), 1)


def _outer(x: Scalar) -> Scalar:
    """From 1 to 2."""
    inside = plus(mul(plus(times(x, _CUBIC), -5 * _CUBIC), x), 8 * _CUBIC)
    return plus(mul(inside, x), -4 * _CUBIC)


def _dimension(low: Lowering, n: Expr, m: Expr, scale: Any, aligned: bool, cubic: bool, dtype: torch.dtype) -> _Dimension:
    elements, results = n.as_int(), m.as_int()
    if not elements or not results or not (scale is None or type(scale) in (int, float)):
        raise Unsupported("symbolic sizes")
    step: tuple[float, float]
    if aligned:
        step = (elements - 1, results - 1) if results > 1 else (0, 1)
    else:
        step = (1.0, scale) if scale is not None and scale > 0 else (elements, results)
    exact = torch.tensor(step[0], dtype=torch.float64) / step[1]
    if scale is None or aligned:  # divided in the dtype
        exact = torch.tensor(step[0], dtype=dtype) / torch.tensor(step[1], dtype=dtype)
    return _Dimension(low, elements, results, float(exact.to(dtype)), aligned, cubic, dtype)


def _in_memory(low: Lowering, taps: Callable[[Expr], Taps], count: Expr, dtype: torch.dtype) -> Callable[[Expr], Taps]:
    """The same taps, computed once."""
    kept: list[tuple[Tensor, Tensor]] = []
    for k in range(len(taps(low.size(0)))):
        place = Tensor(low, torch.int64, (count,), _one_of(taps, k, 0), weight=20)
        weight = Tensor(low, dtype, (count,), _one_of(taps, k, 1), weight=20)
        place.view, weight.view = low.store(place), low.store(weight)
        kept.append((place, weight))
    return lambda e: [(place.at([e]), weight.at([e])) for place, weight in kept]


def _one_of(taps: Callable[[Expr], Taps], tap: int, which: int) -> At:
    return lambda index: taps(index[0])[tap][which]


def _stage(low: Lowering, t: Tensor, d: int, dimension: _Dimension) -> Tensor:
    """`t` with another size along one dimension."""
    count = low.size(dimension.results)
    shape = tuple([count if k == d else n for k, n in enumerate(t.shape)])
    is_last = d == len(shape) - 1
    taps = _in_memory(low, dimension.taps, count, dimension.dtype) if is_last else dimension.taps

    def at(index: Index) -> Scalar:
        total: Scalar | None = None
        for place, weight in taps(index[d]):
            value = t.math_at([*index[:d], low.indirect(place), *index[d + 1 :]])
            part = mul(value, weight)
            total = part if total is None else add(total, part)
        assert total is not None
        return total

    return low.pointwise(dimension.dtype, shape, at, 30)


def _interpolated(
    low: Lowering, out: torch.Tensor, x: Tensor, aligned: bool, cubic: bool, scales: Sequence[Any]
) -> Tensor:
    results, dtype, rank = low.shape_of(out), opmath(x.dtype), out.dim()
    if x.dtype not in _FLOATS or type(aligned) is not bool:
        raise Unsupported("integers")
    if not low.lies_by_rows(x):
        raise Unsupported("images that do not lie row by row")
    dims = [
        (d, _dimension(low, x.shape[d], results[d], scale, aligned, cubic, dtype))
        for d, scale in zip(range(2, rank), scales)
    ]
    if x.shape == results:
        raise Unsupported("nothing to interpolate")
    low.realize(x)
    dims.sort(key=lambda one: (one[1].results >= one[1].elements, -one[0]))
    t = x
    for d, dimension in dims:
        if t is not x:
            t.view = low.store(t)
        t = _stage(low, t, d, dimension)
    return Tensor(low, out.dtype, results, t.math_at, weight=t.weight + 100)


def _linear(low: Lowering, out: torch.Tensor, x: Tensor, size: Any, aligned: Any, *scales: Any) -> Tensor:
    try:
        return linear(low, out, x, size, aligned, *scales)
    except Unsupported:
        return _interpolated(low, out, x, aligned, False, scales or [None] * (out.dim() - 2))


def _bicubic(low: Lowering, out: torch.Tensor, x: Tensor, size: Any, aligned: Any, *scales: Any) -> Tensor:
    return _interpolated(low, out, x, aligned, True, scales or [None] * (out.dim() - 2))


RULES: dict[Any, Callable[..., Any]] = {
    aten.upsample_linear1d.default: _linear,
    aten.upsample_bilinear2d.default: _linear,
    aten.upsample_trilinear3d.default: _linear,
    aten.upsample_bicubic2d.default: _bicubic,
}
