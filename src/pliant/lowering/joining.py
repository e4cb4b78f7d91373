"""Tensors made from pieces of others: cat, stack, padding, repeat, roll, writes into a part.

In:     pieces, and where they go.
Out:    a tensor that chooses the piece by position. A `where` evaluates only its chosen argument, so no load is out of
        range.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.errors import Unsupported
from pliant.ir.loops import View
from pliant.ir.scalar import Scalar, apply, cast, where
from pliant.lowering.context import Lowering
from pliant.lowering.pointwise import number
from pliant.lowering.tensors import Index, Shape, Tensor, opmath
from pliant.lowering.views import dim_of, flip, selected, slice_start, unsqueeze
from pliant.symbolic.expr import ONE, ZERO, Expr, lit

aten = torch.ops.aten
_PAIR = 2  # loops over pairs have no choice of parity
_LONG = 32  # elements of a row that are worth a loop
_MAX_PIECES = 4  # more pieces are copied one by one by the operator itself


def cat(low: Lowering, out: torch.Tensor, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    pieces = [t for t in tensors if not (len(t.shape) == 1 and t.shape[0] is ZERO and out.dim() != 1)]  # legacy empties
    d = dim_of(dim, out.dim())
    copied = all(t.view is not None for t in pieces) and len(pieces) > 2 and d == out.dim() - 1
    if len(pieces) > _MAX_PIECES or copied or not pieces:
        raise Unsupported("many pieces")
    dtype = opmath(out.dtype)

    def at(index: Index) -> Scalar:
        start: Expr = ZERO
        starts = []
        for t in pieces:
            starts.append(start)
            start = start + t.shape[d]
        result = _piece(pieces[-1], index, d, starts[-1], dtype)
        for t, begin, end in reversed(list(zip(pieces, starts, starts[1:]))):
            inside = apply("lt", low.number(index[d]), low.number(end))
            result = where(inside, _piece(t, index, d, begin, dtype), result)
        return result

    weight = len(pieces) + sum([t.weight for t in pieces if t.view is None])
    return low.pointwise(out.dtype, low.shape_of(out), at, weight)


def _piece(t: Tensor, index: Index, d: int, start: Expr, dtype: torch.dtype) -> Scalar:
    local = list(index)
    local[d] = ZERO if t.shape[d] is ONE else index[d] - start
    return cast(t.at(local), dtype)


def _stack(low: Lowering, out: torch.Tensor, tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    d = dim_of(dim, out.dim())
    return cat(low, out, [unsqueeze(low, None, t, d) for t in tensors], d)


def all_of(conditions: Sequence[Scalar]) -> Scalar:
    result = conditions[0]
    for c in conditions[1:]:
        result = apply("bit_and", result, c)
    return result


def _between(low: Lowering, e: Expr, start: Expr, end: Expr, size: Expr) -> list[Scalar]:
    """start <= e < end, for 0 <= e < size; without the conditions that always hold."""
    position = low.number(e)
    found = [] if start is ZERO else [apply("ge", position, low.number(start))]
    return found if end is size else [*found, apply("lt", position, low.number(end))]


def _stepped(low: Lowering, e: Expr, first: Expr, count: Expr, size: Expr, step: int) -> tuple[list[Scalar], Expr]:
    """Whether `first <= e < size` is one of so many places, each `step` behind the one before, and which one it is."""
    if step == 1:
        return _between(low, e, first, first + count, size), e - first
    hit = apply("eq", low.number((e - first) % step), low.number(ZERO))
    stop = first + count * step  # the last place is one of those from `stop - step` on
    before, behind = first.as_int(), (size - stop).as_int()
    begin, end = ZERO if before is not None and before < step else first, size if behind is not None and behind <= 0 else stop
    return [hit, *_between(low, e, begin, end, size)], (e - first) // step


def _pad(low: Lowering, out: torch.Tensor, x: Tensor, pad: Sequence[Any], value: Any = 0) -> Tensor:
    if len(pad) % 2 or any(not isinstance(p, int) for p in pad):
        raise Unsupported("symbolic padding")
    before = [0] * len(x.shape)
    for k in range(len(pad) // 2):
        before[-1 - k] = pad[2 * k]
    return padded(low, x, low.shape_of(out), before, number(low, value, opmath(out.dtype)))


def padded(low: Lowering, x: Tensor, shape: Shape, before: Sequence[int], padding: Scalar) -> Tensor:
    """A tensor of this shape in which `x` begins behind so many elements of padding along each dimension."""

    def at(index: Index) -> Scalar:
        local = [e - before[d] if x.shape[d] is not ONE else ZERO for d, e in enumerate(index)]
        conditions: list[Scalar] = []
        for d, e in enumerate(index):
            if shape[d] is not x.shape[d] or before[d]:
                conditions += _between(low, e, lit(before[d]), x.shape[d] + before[d], shape[d])
        # a negative amount cuts off: the lower condition then always holds
        return where(all_of(conditions), x.math_at(local), padding) if conditions else x.math_at(local)

    return low.pointwise(x.dtype, shape, at, x.weight + 3)


def _slice_scatter(
    low: Lowering,
    out: torch.Tensor,
    x: Tensor,
    source: Tensor,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: Any = 1,
) -> Tensor:
    d = dim_of(dim, len(x.shape))
    size, extent = x.shape[d], x.shape[d].as_int()
    if step != 1 and (step != _PAIR or (d == len(x.shape) - 1 and (extent is None or extent % _PAIR))):
        raise Unsupported("a step")
    first = slice_start(low, size, 0 if start is None else start)
    dtype = opmath(out.dtype)

    def at(index: Index) -> Scalar:
        conditions, local = _stepped(low, index[d], first, source.shape[d], size, step)
        new = cast(source.at([*index[:d], ZERO if source.shape[d] is ONE else local, *index[d + 1 :]]), dtype)
        return where(all_of(conditions), new, x.math_at(index)) if conditions else new

    return low.pointwise(out.dtype, low.shape_of(out), at, x.weight + source.weight + 2)


def _select_scatter(low: Lowering, out: torch.Tensor, x: Tensor, source: Tensor, dim: int, position: Any) -> Tensor:
    d = dim_of(dim, len(x.shape))
    chosen = selected(low, x.shape[d], position)
    dtype = opmath(out.dtype)

    def at(index: Index) -> Scalar:
        hit = apply("eq", low.number(index[d]), low.number(chosen))
        new = cast(source.at([e for k, e in enumerate(index) if k != d]), dtype)
        return where(hit, new, x.math_at(index))

    return low.pointwise(out.dtype, low.shape_of(out), at, x.weight + source.weight + 2)


def _select_backward(low: Lowering, out: torch.Tensor, grad: Tensor, sizes: Any, dim: int, position: Any) -> Tensor:
    zero = number(low, 0, out.dtype)
    empty = Tensor(low, out.dtype, low.shape_of(out), lambda i: zero)
    return _select_scatter(low, out, empty, grad, dim, position)


def _slice_backward(
    low: Lowering, out: torch.Tensor, grad: Tensor, sizes: Any, dim: int, start: Any, end: Any, step: Any
) -> Tensor:
    zero = number(low, 0, out.dtype)
    empty = Tensor(low, out.dtype, low.shape_of(out), lambda i: zero)
    return _slice_scatter(low, out, empty, grad, dim, start, end, step)


def _repeat(low: Lowering, out: torch.Tensor, x: Tensor, repeats: Sequence[Any]) -> Tensor:
    skip = out.dim() - len(x.shape)

    def at(index: Index) -> Scalar:
        return x.at([ZERO if n is ONE else index[skip + d] % n for d, n in enumerate(x.shape)])

    low.for_broadcast(x, low.shape_of(out))
    if any(not low.known(n.ge(1)) for n in x.shape):
        raise Unsupported("a size that may be 0")
    t = low.pointwise(out.dtype, low.shape_of(out), at, x.weight)
    if x.shape and x.shape[-1] is not t.shape[-1] and low.known(x.shape[-1].ge(_LONG)):
        t.materialize = lambda: _store_repeated(low, t, x)
    return t


def _store_repeated(low: Lowering, t: Tensor, x: Tensor) -> View:
    """A loop over the repetitions around one over what is repeated: no place is divided to find its element."""
    view = low.temporary(t.dtype, t.shape, t.device, low.layout(t))
    shape: list[Expr] = []
    strides: list[Expr] = []
    own: list[int | None] = []  # where the loops over the dimensions of `x` are
    skip = len(t.shape) - len(x.shape)
    for d, (size, stride) in enumerate(zip(view.shape, view.strides)):
        n = x.shape[d - skip] if d >= skip else None
        if n is not None and n is not ONE and n is not size:
            shape.append(size // n)
            strides.append(stride * n)
            size = n
        if n is not None:
            own.append(None if n is ONE else len(shape))
        shape.append(size)
        strides.append(stride)

    def at(index: Index) -> Scalar:
        return cast(x.at([ZERO if k is None else index[k] for k in own]), t.dtype)

    low.store_into(View(view.buffer, tuple(shape), tuple(strides), view.offset, t.dtype), at, t.origin)
    return view


def _roll(low: Lowering, out: torch.Tensor, x: Tensor, shifts: Any, dims: Any = ()) -> Tensor:
    amounts = shifts if isinstance(shifts, list) else [shifts]
    axes = dims if isinstance(dims, list) else [dims]
    if not dims or any(not low.known(n.ge(1)) for n in x.shape):
        raise Unsupported("a roll over all elements, or of a size that may be 0")
    moved = {dim_of(d, len(x.shape)): lit(s) for d, s in zip(axes, amounts)}
    if len(moved) < len(axes):
        raise Unsupported("a dimension rolled twice")

    last = len(x.shape) - 1
    start = moved[last] % x.shape[last] if last in moved else ZERO  # where the first element comes to lie

    def at(index: Index) -> Scalar:
        place = [(e - moved[d]) % x.shape[d] if d in moved else e for d, e in enumerate(index)]
        if start is ZERO:
            return x.at(place)
        # lanes read neighbours, which remainders are not
        behind, before = (x.at([*place[:last], index[last] + by]) for by in (-start, x.shape[last] - start))
        return where(apply("lt", low.number(index[last]), low.number(start)), before, behind)

    if start is not ZERO and x.view is None:
        x.uses = max(x.uses, 2)
    return low.pointwise(out.dtype, low.shape_of(out), at, x.weight + 2)


# Each element of these is an element of one of their arguments.
CHOOSING = frozenset({
    aten.cat.default, aten.stack.default, aten.slice_scatter.default, aten.select_scatter.default,
})  # fmt: skip

RULES: dict[Any, Callable[..., Any]] = {
    aten.cat.default: cat,
    aten.stack.default: _stack,
    aten.constant_pad_nd.default: _pad,
    aten.slice_scatter.default: _slice_scatter,
    aten.select_scatter.default: _select_scatter,
    aten.select_backward.default: _select_backward,
    aten.slice_backward.default: _slice_backward,
    aten.repeat.default: _repeat,
    aten.flip.default: flip,
    aten.roll.default: _roll,
}
