"""Views: index arithmetic, never a copy where eager makes none.

In:     a tensor, in memory or not.
Out:    the same elements under other indices; in memory, another `View` of the same buffer.
Holds:  most views are affine: each dimension of the result steps through some dimensions of the source (`affine`).
        `reshape` splits and merges groups of dimensions whose products agree.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.errors import InternalError, Unsupported
from pliant.ir.loops import View
from pliant.lowering.context import Lowering
from pliant.lowering.tensors import Index, Shape, Tensor, contiguous_strides, numel
from pliant.symbolic.expr import ONE, ZERO, Expr, lit
from pliant.symbolic.rules import extrema

aten = torch.ops.aten
Steps = Sequence[tuple[int, Expr]]  # (source dimension, step)


def affine(t: Tensor, shape: Shape, mapping: Sequence[Steps], starts: dict[int, Expr], shrinks: bool = False) -> Tensor:
    """Element [i...] of the result is t[starts[d] + sum of i*step over the result's dimensions that step through d]."""
    if t.view is not None:
        return Tensor(t.low, t.dtype, shape, view=_affine_view(t.view, shape, mapping, starts))
    rank = len(t.shape)

    def index_of(index: Index) -> Index:
        source = [starts.get(d, ZERO) for d in range(rank)]
        for position, steps in zip(index, mapping):
            for d, step in steps:
                source[d] = source[d] + position * step
        return source

    return virtual(t, shape, index_of, lambda base: affine(base, shape, mapping, starts), shrinks)


def _affine_view(view: View, shape: Shape, mapping: Sequence[Steps], starts: dict[int, Expr]) -> View:
    offset = view.offset
    for d, start in starts.items():
        offset = offset + start * view.strides[d]
    strides = []
    for steps in mapping:
        stride: Expr = ZERO
        for d, step in steps:
            stride = stride + view.strides[d] * step
        strides.append(stride)
    return View(view.buffer, shape, tuple(strides), offset, view.dtype)


def virtual(
    t: Tensor,
    shape: Shape,
    index_of: Callable[[Index], Index],
    again: Callable[[Tensor], Tensor],
    shrinks: bool = False,
) -> Tensor:
    """A view of a tensor that is not in memory. In memory, it is a view of `t` in memory if that is possible."""
    result = Tensor(t.low, t.dtype, shape, lambda index: t.at(index_of(index)))
    low = t.low

    def materialize() -> View:
        if t.view is None and shrinks and not low.exact_layout and t.uses <= 1 and t.materialize is None:
            return low.store(result)
        low.realize(t)
        seen = again(t)
        return seen.view if seen.view is not None else low.store(seen)

    result.rebase = materialize
    result.weight = t.weight if t.materialize is None else 0
    return result


# -- affine views -----------------------------------------------------------------------------------------------------

_1 = ONE


def dim_of(dim: Any, rank: int) -> int:
    if not isinstance(dim, int):
        raise Unsupported("a symbolic dimension")
    return dim + rank if dim < 0 else dim


def permute(low: Lowering, out: Any, t: Tensor, dims: Sequence[int]) -> Tensor:
    order = [dim_of(d, len(t.shape)) for d in dims]
    return affine(t, tuple([t.shape[d] for d in order]), [[(d, _1)] for d in order], {})


def _transpose(low: Lowering, out: Any, t: Tensor, a: int, b: int) -> Tensor:
    order = list(range(len(t.shape)))
    if order:
        i, j = dim_of(a, len(order)), dim_of(b, len(order))
        order[i], order[j] = order[j], order[i]
    return permute(low, out, t, order)


def unsqueeze(low: Lowering, out: Any, t: Tensor, dim: int) -> Tensor:
    at = dim_of(dim, len(t.shape) + 1)
    mapping: list[Steps] = [[(d, _1)] for d in range(len(t.shape))]
    mapping.insert(at, [])
    return affine(t, (*t.shape[:at], ONE, *t.shape[at:]), mapping, {})


def squeeze_dims(t: Tensor, dims: Sequence[int]) -> Tensor:
    kept = [d for d in range(len(t.shape)) if d not in dims]
    return affine(t, tuple([t.shape[d] for d in kept]), [[(d, _1)] for d in kept], {})


def _squeeze(low: Lowering, out: torch.Tensor, t: Tensor, dim: Any = None) -> Tensor:
    rank = len(t.shape)
    asked = (
        range(rank)
        if dim is None
        else [dim_of(d, rank) for d in (dim if isinstance(dim, list) else [dim])]
        if rank
        else []
    )
    dims = [d for d in asked if t.shape[d] is ONE]
    if rank - len(dims) != out.dim():
        raise Unsupported("a size that is 1 by a guard only")
    return squeeze_dims(t, dims)


def expand(low: Lowering, out: torch.Tensor, t: Tensor, *_: Any, **__: Any) -> Tensor:
    shape = low.shape_of(out)
    skip = len(shape) - len(t.shape)
    mapping: list[Steps] = [[] for _ in range(skip)]
    mapping += [[] if n is ONE and shape[skip + d] is not ONE else [(d, _1)] for d, n in enumerate(t.shape)]
    low.for_broadcast(t, shape)
    return affine(t, shape, mapping, {})


def _slice(
    low: Lowering, out: torch.Tensor, t: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Tensor:
    d = dim_of(dim, len(t.shape))
    shape = low.shape_of(out)
    first = slice_start(low, t.shape[d], 0 if start is None else start)
    if shape[d] is t.shape[d] and first is ZERO and step == 1:
        return affine(t, shape, [[(k, _1)] for k in range(len(shape))], {})
    mapping: list[Steps] = [[(k, lit(step) if k == d else _1)] for k in range(len(shape))]
    return affine(t, shape, mapping, {d: first}, shrinks=True)


def slice_start(low: Lowering, size: Expr, start: Any) -> Expr:
    """`start` wrapped and clamped into 0..size as slices do, as an expression right for all sizes."""
    e = lit(start)
    number = e.as_int()
    if number == 0:
        return ZERO
    if number is not None and number < 0:
        shifted = size + e
        return shifted if low.known(shifted.ge(0)) else extrema.maximum(shifted, ZERO)
    if number is None and not low.known(e.ge(0)):
        raise Unsupported("a start of unknown sign")
    return e if low.known(e.le(size)) else extrema.minimum(e, size)


def selected(low: Lowering, size: Expr, position: Any) -> Expr:
    """`position` wrapped into 0..size-1, as an expression right for all sizes."""
    e = lit(position)
    number = e.as_int()
    if number is None and not low.known(e.ge(0)):
        raise Unsupported("a position of unknown sign")
    return size + e if number is not None and number < 0 else e


def select(low: Lowering, out: Any, t: Tensor, dim: int, position: Any) -> Tensor:
    d = dim_of(dim, len(t.shape))
    start = selected(low, t.shape[d], position)
    kept = [k for k in range(len(t.shape)) if k != d]
    return affine(t, tuple([t.shape[k] for k in kept]), [[(k, _1)] for k in kept], {d: start}, shrinks=True)


def _unbind(low: Lowering, out: Sequence[torch.Tensor], t: Tensor, dim: int = 0) -> list[Tensor]:
    return [select(low, one, t, dim, k) for k, one in enumerate(out)]


def split(low: Lowering, out: Sequence[torch.Tensor], t: Tensor, sizes: Any, dim: int = 0) -> list[Tensor]:
    d = dim_of(dim, len(t.shape))
    pieces: list[Tensor] = []
    start: Expr = ZERO
    for fake in out:
        shape = low.shape_of(fake)
        mapping: list[Steps] = [[(k, _1)] for k in range(len(shape))]
        pieces.append(affine(t, shape, mapping, {d: start}, shrinks=True))
        start = start + shape[d]
    t.uses = max(t.uses, len(pieces))
    return pieces


def _diagonal(low: Lowering, out: torch.Tensor, t: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    rank = len(t.shape)
    a, b = dim_of(dim1, rank), dim_of(dim2, rank)
    mapping: list[Steps] = [[(k, _1)] for k in range(rank) if k not in (a, b)]
    mapping.append([(a, _1), (b, _1)])
    starts = {a: lit(-offset)} if offset < 0 else {b: lit(offset)}
    return affine(t, low.shape_of(out), mapping, starts, shrinks=True)


def flip(low: Lowering, out: torch.Tensor, t: Tensor, dims: Sequence[int]) -> Tensor:
    flipped = {dim_of(d, len(t.shape)) for d in dims}

    def at(index: Index) -> Any:
        return t.at([t.shape[k] - 1 - e if k in flipped else e for k, e in enumerate(index)])

    return low.pointwise(t.dtype, t.shape, at, t.weight)


# -- reshape ----------------------------------------------------------------------------------------------------------


def reshape(low: Lowering, out: torch.Tensor, t: Tensor, *_: Any) -> Tensor:
    """view, reshape, _unsafe_view."""
    return reshape_to(t, low.shape_of(out))


def reshape_to(t: Tensor, shape: Shape) -> Tensor:
    if shape == t.shape:
        return affine(t, shape, [[(d, _1)] for d in range(len(shape))], {})
    groups = _groups(t.shape, shape)
    if t.view is not None:
        strides = _reshaped_strides(t, shape, groups)
        if strides is not None:
            return Tensor(t.low, t.dtype, shape, view=View(t.view.buffer, shape, strides, t.view.offset, t.dtype))
    source = t.shape
    if ZERO in source:  # no element is read
        return virtual(t, shape, lambda _: [ZERO] * len(source), lambda base: reshape_to(base, shape))

    def index_of(index: Index) -> Index:
        result: list[Expr] = [ZERO] * len(source)
        for old, new in groups:
            _regroup(result, source, old, [shape[k] for k in new], [index[k] for k in new])
        return result

    return virtual(t, shape, index_of, lambda base: reshape_to(base, shape))


Group = tuple[list[int], list[int]]  # dimensions of the source and of the result with one product


def _groups(old: Shape, new: Shape) -> list[Group]:
    """Dimensions (those of size 1 left out) in the smallest groups whose products are the same expression."""
    a = [k for k, n in enumerate(old) if n is not ONE]
    b = [k for k, n in enumerate(new) if n is not ONE]
    groups: list[Group] = []
    i = j = 0
    while i < len(a) or j < len(b):
        left, right = a[i : i + 1], b[j : j + 1]
        p, q = numel(tuple([old[k] for k in left])), numel(tuple([new[k] for k in right]))
        while p is not q:
            side = _smaller(p, q)
            if side == "old" and i + len(left) < len(a):
                left.append(a[i + len(left)])
                p = p * old[left[-1]]
            elif side == "new" and j + len(right) < len(b):
                right.append(b[j + len(right)])
                q = q * new[right[-1]]
            else:
                left, right = a[i:], b[j:]
                break
        groups.append((left, right))
        i, j = i + len(left), j + len(right)
    return groups


def _smaller(p: Expr, q: Expr) -> str:
    """Which of two products needs another factor; "" if that cannot be told."""
    x, y = p.as_int(), q.as_int()
    if x is not None and y is not None:
        return "old" if x < y else "new"
    if p is not ZERO and (q // p) * p is q:
        return "old"
    if q is not ZERO and (p // q) * q is p:
        return "new"
    return ""


def _regroup(result: list[Expr], source: Shape, old: list[int], sizes: list[Expr], index: list[Expr]) -> None:
    """Write the indices of the source's dimensions `old` for the point `index` of a group of the result."""
    if not old:
        return
    flat: Expr = ZERO
    for size, position in zip(sizes, index):
        flat = flat * size + position
    for k in reversed(old[1:]):
        result[k] = flat % source[k]
        flat = flat // source[k]
    result[old[0]] = flat


def _reshaped_strides(t: Tensor, shape: Shape, groups: list[Group]) -> Shape | None:
    """Strides of the result over the same memory, or None if that takes a copy."""
    assert t.view is not None
    if ZERO in shape:
        return contiguous_strides(shape)
    old = t.view.strides
    strides: list[Expr] = [ONE] * len(shape)
    for left, right in groups:
        for outer, inner in itertools.pairwise(left):
            if old[outer] is not old[inner] * t.shape[inner]:
                return None
        step = old[left[-1]] if left else ONE
        for k in reversed(right):
            strides[k] = step
            step = step * shape[k]
    return tuple(strides)


# -- overlapping windows, other views ---------------------------------------------------------------------------------


def _alias(low: Lowering, out: Any, t: Tensor, *_: Any) -> Tensor:
    return affine(t, t.shape, [[(d, _1)] for d in range(len(t.shape))], {})


def _unfold(low: Lowering, out: torch.Tensor, t: Tensor, dim: int, size: int, step: int) -> Tensor:
    if not t.shape:
        raise Unsupported("unfold of a 0-dim tensor")
    d = dim_of(dim, len(t.shape))
    mapping: list[Steps] = [[(k, lit(step) if k == d else _1)] for k in range(len(t.shape))]
    return affine(t, low.shape_of(out), [*mapping, [(d, _1)]], {})


def _as_strided(low: Lowering, out: torch.Tensor, t: Tensor, size: Any, stride: Any, offset: Any = None) -> Tensor:
    """Positions count from the start of the storage, so the memory must be laid out as the program believes."""
    view = low.realize(t)
    if t.fake is None or not low.same_layout(view.strides, t) or view.offset is not ZERO:
        strides = low.layout(t)
        if strides is None:
            raise InternalError("as_strided of memory that is laid out differently", kind="lower")
        view = low.store(t, strides)
    start = ZERO if offset is None else lit(offset) - low.size(t.fake.storage_offset())
    shape = low.shape_of(out)
    return Tensor(low, t.dtype, shape, view=View(view.buffer, shape, low.strides_of(out), start, t.dtype))


RULES: dict[Any, Callable[..., Any]] = {
    aten.permute.default: permute,
    aten.transpose.int: _transpose,
    aten.t.default: lambda low, out, t: permute(low, out, t, list(range(len(t.shape)))[::-1]),
    aten.unsqueeze.default: unsqueeze,
    aten.squeeze.default: _squeeze,
    aten.squeeze.dim: _squeeze,
    aten.squeeze.dims: _squeeze,
    aten.expand.default: expand,
    aten.slice.Tensor: _slice,
    aten.select.int: select,
    aten.unbind.int: _unbind,
    aten.split.Tensor: split,
    aten.split_with_sizes.default: split,
    aten.diagonal.default: _diagonal,
    aten.view.default: reshape,
    aten.reshape.default: reshape,
    aten._unsafe_view.default: reshape,
    aten._reshape_alias.default: reshape,
    aten.alias.default: _alias,
    aten.detach.default: _alias,
    aten.unfold.default: _unfold,
    aten.as_strided.default: _as_strided,
}
