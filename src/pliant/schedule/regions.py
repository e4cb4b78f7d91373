"""Which elements of a buffer a loop or a view touches: a range of each dimension.

In:     a buffer; an index over loops, or a view of it.
Out:    a `Region`; None where it is none that is known. `apart`: whether two have no element in common.
Holds:  a region has at least the elements that are touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from pliant.ir.loops import Axis, Buffer, View
from pliant.records import dataclass
from pliant.symbolic.expr import ONE, ZERO, Expr, Symbol, lit
from pliant.symbolic.traverse import linear_coefficient

Known = Callable[[Expr], bool]  # whether a condition on sizes certainly holds


@dataclass(frozen=True, slots=True)
class Span:
    """The places `first` to `first + count - 1` of a dimension."""

    first: Expr
    count: Expr


Region = tuple[Span, ...]  # a span for each dimension


def apart(a: Region, b: Region) -> bool:
    """Whether they certainly have no element in common."""
    return any(_before(x, y) or _before(y, x) for x, y in zip(a, b))


def is_within(a: Region, b: Region) -> bool:
    """Whether all elements of `a` are certainly in `b`."""
    ends = [(y.first + y.count - x.first - x.count).as_int() for x, y in zip(a, b)]
    starts = [(x.first - y.first).as_int() for x, y in zip(a, b)]
    return all(n is not None and n >= 0 for n in starts + ends)


def _before(x: Span, y: Span) -> bool:
    distance = (y.first - x.first - x.count).as_int()
    return distance is not None and distance >= 0


class Layout:
    """Regions of one buffer. `is_plain`: whether there are any, since each element has one place in it."""

    def __init__(self, buffer: Buffer, known: Known) -> None:
        self.buffer, self._known = buffer, known
        self.whole: Region = tuple(Span(ZERO, n) for n in buffer.shape)
        steps = [(s.as_int(), d) for d, s in enumerate(buffer.strides) if buffer.shape[d] is not ONE]
        self._dims = sorted(((s, d) for s, d in steps if s is not None), reverse=True)  # the outermost first
        self.is_plain = len(self._dims) == len(steps) and self._is_nested()

    def _is_nested(self) -> bool:
        inner = [(s, self.buffer.shape[d].as_int()) for s, d in self._dims[1:]]
        return all(n is not None and s > 0 and outer >= s * n for (outer, _), (s, n) in zip(self._dims, inner))

    def goes_through(self, index: Expr, axes: Sequence[Axis]) -> bool:
        """Whether loops go through all of the buffer, an axis for each dimension."""
        dims = [d for a in axes if (d := self._dim(index, a)) is not None and self.buffer.shape[d] is a.extent]
        return len(axes) == len(set(dims)) == len(self._dims) and sum((a.symbol * self.buffer.strides[d] for a, d in zip(axes, dims)), ZERO) is index

    def _dim(self, index: Expr, axis: Axis) -> int | None:
        step = linear_coefficient(index, axis.symbol)
        return next((d for stride, d in self._dims if step is not None and step.as_int() == stride), None)

    def of_box(self, index: Expr, axes: Sequence[Axis], box: Mapping[Symbol, Span]) -> Region:
        """Of loops that go through all of the buffer, where some go through spans only."""
        spans = list(self.whole)
        for axis in axes:
            d = self._dim(index, axis)
            if d is not None and axis.symbol in box:
                spans[d] = box[axis.symbol]
        return tuple(spans)

    def of_view(self, view: View) -> Region | None:
        return self._of(zip(view.strides, view.shape), view.offset)

    def of_index(self, index: Expr, axes: Sequence[Axis]) -> Region | None:
        """Of what an index goes through while the loops run."""
        steps = [(linear_coefficient(index, a.symbol), a.extent) for a in axes]
        rest = index
        for (step, _), axis in zip(steps, axes):
            if step is None:
                return None
            rest = rest - step * axis.symbol
        return self._of([(step, n) for step, n in steps if step is not None and step is not ZERO], rest)

    def _of(self, steps: Iterable[tuple[Expr, Expr]], offset: Expr) -> Region | None:
        """`steps`: distances of neighbours and how many there are."""
        start, spans = offset.as_int(), list(self.whole)
        if start is None or start < 0:
            return None
        counts = {step.as_int(): n for step, n in steps if n is not ONE}
        for stride, d in self._dims:
            first, start = divmod(start, stride)
            spans[d] = Span(lit(first), counts.pop(stride, ONE))
            if not self._known((spans[d].first + spans[d].count).le(self.buffer.shape[d])):
                return None
        return None if counts or start else tuple(spans)
