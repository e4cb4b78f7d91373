"""Images whose edges are continued: reflected or repeated; and the gradients of both.

In:     signals, images or volumes, and how far each side is continued.
Out:    each result reads one element; each gradient adds those of the results that read its element.
Holds:  along the last dimension elements are chosen by where they lie, since lanes read neighbours, which clamped places are
        not; along the others the place is computed. Sides are at most as wide as the operators let them be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.scalar import Scalar, apply, const, where
from pliant.lowering.context import Lowering
from pliant.lowering.tensors import Index, Tensor
from pliant.records import dataclass
from pliant.symbolic.expr import ONE, ZERO, Expr, lit
from pliant.symbolic.rules.extrema import maximum, minimum
from pliant.targets.registry import target_of

aten = torch.ops.aten
_WIDEST = 16  # elements that are added up at an edge


@dataclass(frozen=True, slots=True)
class _Side:
    """One dimension: `count` elements, `before` and `behind` of them continued; `mirrored`: reflected, else repeated."""

    low: Lowering
    count: Expr
    before: int
    behind: int
    mirrored: bool

    def place(self, e: Expr) -> Expr:
        """The element that result `e` is, computed."""
        last, p = self.count - 1, e - self.before
        if not self.mirrored:
            return minimum(maximum(p, ZERO), last)
        p = maximum(p, -p) if self.before else p
        return minimum(p, last * 2 - p) if self.behind else p

    def chosen(self, e: Expr, value: Callable[[Expr], Scalar]) -> Scalar:
        """The same element as a choice."""
        last, p = self.count - 1, e - self.before
        result = value(p)
        if self.behind:
            beyond = value(last * 2 - p if self.mirrored else last)
            result = where(self._holds("lt", e, self.count + self.before), result, beyond)
        if self.before:
            result = where(self._holds("lt", e, lit(self.before)), value(-p if self.mirrored else ZERO), result)
        return result

    def total(self, e: Expr, value: Callable[[Expr], Scalar]) -> Scalar:
        """The sum of the results that are element `e`."""
        result, last = value(e + self.before), self.count - 1
        if not self.mirrored:
            first = [value(lit(k)) for k in range(self.before)]
            final = [value(self.count + self.before + k) for k in range(self.behind)]
            result = self._with(result, first, [self._holds("lt", e, ONE)])
            return self._with(result, final, [self._holds("ge", e, last)])
        if self.before:
            inside = [self._holds("ge", e, ONE), self._holds("lt", e, lit(self.before + 1))]
            result = self._with(result, [value(self.before - e)], inside)
        if self.behind:
            inside = [self._holds("ge", e, last - self.behind), self._holds("lt", e, last)]
            result = self._with(result, [value(last * 2 - e + self.before)], inside)
        return result

    def _holds(self, op: str, e: Expr, limit: Expr) -> Scalar:
        return apply(op, self.low.number(e), self.low.number(limit))

    def _with(self, total: Scalar, more: Sequence[Scalar], conditions: list[Scalar]) -> Scalar:
        """The total and what is added where all conditions hold."""
        if not more:
            return total
        condition = conditions[0] if len(conditions) == 1 else apply("bit_and", *conditions)
        added = more[0]
        for one in more[1:]:
            added = apply("add", added, one)
        return apply("add", total, where(condition, added, const(0, total.dtype)))


def _sides(low: Lowering, x: Tensor, padding: Sequence[Any], mirrored: bool) -> list[_Side]:
    """Those of the last dimensions, in their order."""
    pairs = list(zip(padding[::2], padding[1::2]))[::-1]
    if any(type(n) is not int or n < 0 for n in padding) or x.dtype is torch.bool:
        raise Unsupported("symbolic or negative padding, or what eager refuses")
    sizes = x.shape[len(x.shape) - len(pairs) :]
    for n, pair in zip(sizes, pairs):
        if not low.known(n.gt(max(pair) if mirrored else 0)):
            raise Unsupported("an edge that may be too short")
    return [_Side(low, n, *pair, mirrored) for n, pair in zip(sizes, pairs)]


def _continued(mirrored: bool) -> Callable[..., Tensor]:
    def rule(low: Lowering, out: torch.Tensor, x: Tensor, padding: Sequence[Any]) -> Tensor:
        sides = _sides(low, x, padding, mirrored)
        row, copied = x.shape[-1].as_int(), target_of(out.device).copied_row
        if len(sides) > 1 and copied and (row is None or row >= copied):
            raise Unsupported("an image of rows that are copied")
        if x.view is None:
            x.uses = max(x.uses, 2)  # several results read an element
        first = len(x.shape) - len(sides)

        def at(index: Index) -> Scalar:
            outer = [*index[:first], *(s.place(e) for s, e in zip(sides[:-1], index[first:-1]))]
            return sides[-1].chosen(index[-1], lambda e: x.at([*outer, e]))

        return low.pointwise(out.dtype, low.shape_of(out), at, 4 + (x.weight if x.view is None else 0))

    return rule


def refuse_where_eager_does(out: torch.Tensor) -> None:
    """Eager's kernels on GPUs add in any order, and raise where algorithms are to be deterministic."""
    if out.device.type != "cpu" and torch.are_deterministic_algorithms_enabled():
        raise Unsupported("what GPUs refuse where algorithms are to be deterministic")


def _gradient(mirrored: bool) -> Callable[..., Tensor]:
    def rule(low: Lowering, out: torch.Tensor, grad: Tensor, x: Tensor, padding: Sequence[Any]) -> Tensor:
        sides = _sides(low, x, padding, mirrored)
        refuse_where_eager_does(out)
        if not mirrored and max(padding) > _WIDEST:
            raise Unsupported("a wide edge")
        if grad.view is None:
            grad.uses = max(grad.uses, 2)
        first = len(x.shape) - len(sides)

        def along(point: list[Expr], k: int) -> Scalar:
            """The sum, where dimensions before the k-th side's are those of results."""
            if k == len(sides):
                return grad.math_at(point)
            d = first + k
            return sides[k].total(point[d], lambda e: along([*point[:d], e, *point[d + 1 :]], k + 1))

        terms = 3 ** len(sides)
        return low.pointwise(out.dtype, low.shape_of(out), lambda index: along(list(index), 0), 3 * terms)

    return rule


RULES: dict[Any, Callable[..., Any]] = {
    getattr(aten, f"{name}_pad{rank}d{suffix}").default: rule(name == "reflection")
    for name in ("reflection", "replication")
    for rank in (1, 2, 3)
    for suffix, rule in (("", _continued), ("_backward", _gradient))
}
