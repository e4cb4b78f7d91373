"""Split reductions that too few blocks would compute: each becomes a reduction of chunks, then one of their results.

In:     a `LoopProgram`.
Out:    the program with `part[c, i] = fold over chunk c` and `out[i] = fold of part[., i]` in place of such reductions.
Holds:  a chunk behind the end holds the operator's neutral value; results of floats differ by the order of additions.
        Targets that share one reduction among threads by themselves are left alone; argmax and argmin are, too.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Set

import torch

from pliant.ir.loops import Axis, Buffer, Computation, Extern, LoopProgram, Pointwise, Reduction
from pliant.ir.scalar import Number, Scalar, apply, cast, const, index_expressions, index_value, load, loads, where
from pliant.ir.scalar import substitute as substitute_scalar
from pliant.lowering.tensors import contiguous_strides
from pliant.records import dataclass
from pliant.schedule.align import merge_axes
from pliant.schedule.sizes import LARGER, Sizes
from pliant.schedule.windows import places_of_reduction, points_of, widest
from pliant.symbolic.expr import ONE, ZERO, Expr, Symbol, lit, symbol
from pliant.symbolic.traverse import linear_coefficient, substitute
from pliant.targets.registry import has_target, target_of
from pliant.targets.target import Target

LEAST_ROW, LEAST_COLUMN = 2048, 32  # points of a chunk along memory, and across it
ENOUGH = 8  # times the chunks at hand may be wanted before a loop of unknown length is divided too
_FOLDS = {"sum": "sum", "prod": "prod", "max": "max", "min": "min", "any": "any", "all": "all"}


def split_reductions(program: LoopProgram, done: Set[Computation] = frozenset()) -> LoopProgram:
    """The program with large reductions of few results split, where the target wants that. `done`: those of chunks already."""
    sizes, larger = Sizes(program), Sizes(program, LARGER)
    computations: list[Computation] = []
    for number, c in enumerate(program.computations):
        chunks = 1
        if isinstance(c, Reduction) and c.op in _FOLDS and c not in done:
            chunks = chunks_wanted(c, sizes, larger, itertools.islice(program.computations, number + 1, None))
        computations.extend(_split(c, chunks, number) if isinstance(c, Reduction) and chunks > 1 else [c])
    if computations == program.computations:
        return program
    return dataclasses.replace(program, computations=computations)


def chunks_wanted(c: Reduction, sizes: Sizes, larger: Sizes, later: Iterable[Computation]) -> int:
    """How many chunks a reduction is worth; 1: none. Columns may become as long as in `larger`: without chunks their blocks
    would stay few, and chunks that short columns leave empty cost little. `later`: what is computed behind it."""
    target = target_of(c.out.device) if has_target(c.out.device) else None
    if target is None or not target.splits_programs:
        return 1
    along = is_along_memory(c)
    places = places_of_reduction(c) if target.window_points > 1 and not along else []
    outside, inside = sizes.points(a for a in c.axes if a not in places), (sizes if along else larger).points(c.reduce_axes)
    width = widest(_width(c, target), points_of(places))
    blocks = outside if along else math.ceil(outside / (target.lanes * width))
    least = LEAST_ROW if along else LEAST_COLUMN
    wanted = min(target.parts // max(blocks, 1), inside // least)
    worth = inside > target.split_inner if along else wanted > 1
    if not worth or wanted <= 1 or blocks >= target.split_outer:
        return 1
    # A cluster of blocks can share a row, and keeps it in registers for what is written of it.
    shares = along and blocks >= target.split_outer // target.cluster and _is_written(c, sizes, outside * inside, later)
    return 1 if shares else wanted


def _is_written(c: Reduction, sizes: Sizes, points: int, later: Iterable[Computation]) -> bool:
    """Whether something as large as what the reduction reads is computed from its results, perhaps through others."""
    derived = {c.out}
    for one in later:
        if isinstance(one, Extern) or derived.isdisjoint(x.buffer for x in loads(one.value)):
            continue
        if isinstance(one, Pointwise) and sizes.points(one.axes) >= points:
            return True
        derived.add(one.out)
    return False


def _width(c: Reduction, target: Target) -> int:
    """Elements that one thread reads at once."""
    return max([1, *(target.vector_bytes // x.dtype.itemsize for x in loads(c.value))])


def is_along_memory(c: Reduction) -> bool:
    """Whether neighbours in memory are folded together. Where loads differ in that, few blocks may be made of it: no.
    A load that is the same for a whole fold (a row's mean) says nothing."""
    folded = {a.symbol for a in c.reduce_axes}
    varying = [x for x in loads(c.value) if not folded.isdisjoint(x.index.free)]
    return not any(linear_coefficient(x.index, a.symbol) is ONE for x in varying for a in c.axes)


@dataclass(frozen=True, slots=True)
class _Axes:
    """`parts`: loops over chunks; `rest`: loops inside one; `place`: the reduction's symbols over both; `inside`: what
    holds for points that are there, (position, extent)."""

    parts: tuple[Axis, ...]
    rest: tuple[Axis, ...]
    place: dict[Symbol, Expr]
    inside: tuple[Expr, Expr] | None


def _split(c: Reduction, chunks: int, number: int) -> list[Computation]:
    """The two reductions."""
    axes = _divided(c, chunks)
    value = substitute_scalar(c.value, axes.place)
    if axes.inside is not None:
        position, extent = axes.inside
        there = apply("lt", index_value(position), index_value(extent))
        value = where(there, value, const(_neutral(c.op, value.dtype), value.dtype))
    shape = tuple(a.extent for a in (*axes.parts, *c.axes))
    dtype = torch.bool if c.op in ("any", "all") else c.accumulate_dtype
    part = Buffer(f"part{number}", dtype, shape, contiguous_strides(shape), c.out.device, "temporary")
    index = flat_index(part, (*axes.parts, *c.axes))
    first = Reduction(part, (*axes.parts, *c.axes), axes.rest, c.op, index, value, c.accumulate_dtype, c.origin)
    folded: Scalar = cast(load(part, index), dtype)
    second = Reduction(c.out, c.axes, axes.parts, c.op, c.index, folded, c.accumulate_dtype, c.origin)
    return [first, second]


def _divided(c: Reduction, chunks: int) -> _Axes:
    """Outer loops go to the chunks whole as long as they fit, the next one in part."""
    axes, place = _known_first(c, chunks)
    parts: list[Axis] = []
    for k, axis in enumerate(axes):
        extent = axis.extent.as_int()
        if extent is not None and extent <= chunks:
            parts.append(axis)
            chunks //= max(extent, 1)
            if chunks > 1:
                continue
            return _Axes(tuple(parts), tuple(axes[k + 1 :]), place, None)
        if extent is None and parts and chunks < ENOUGH:
            return _Axes(tuple(parts), tuple(axes[k:]), place, None)
        count = even(extent, chunks)
        size = (axis.extent + (count - 1)) // count
        outer, inner = (
            Axis(symbol(f"{axis.symbol.name}_part"), lit(count)),
            Axis(symbol(f"{axis.symbol.name}_in"), size),
        )
        position = outer.symbol * size + inner.symbol
        whole = extent is not None and extent % count == 0
        inside = None if whole else (position, axis.extent)
        place = {s: substitute(e, {axis.symbol: position}) for s, e in place.items()} | {axis.symbol: position}
        return _Axes((*parts, outer), (inner, *axes[k + 1 :]), place, inside)
    return _Axes(tuple(parts[:-1]), tuple(parts[-1:]), place, None)


def _known_first(c: Reduction, chunks: int) -> tuple[list[Axis], dict[Symbol, Expr]]:
    """Loops to divide, the first ones first, and the reduction's symbols over them where they are others.

    A chunk of a loop whose extent is a symbol may be empty, and asks of each point whether it is there: loops of known
    extents go first where they make chunks enough, and else loops are made one as far as that goes. Loops along memory stay
    inside.
    """
    if all(a.extent.as_int() is not None for a in c.reduce_axes):
        return list(c.reduce_axes), {}
    last = {a.symbol for a in c.reduce_axes if any(linear_coefficient(x.index, a.symbol) is ONE for x in loads(c.value))}
    known = math.prod(a.extent.as_int() or 1 for a in c.reduce_axes if a.symbol not in last)
    axes, place = list(c.reduce_axes), dict[Symbol, Expr]()
    if known * ENOUGH < chunks:
        axes, place = merge_axes(axes, index_expressions(c.value), frozenset())
    return sorted(axes, key=lambda a: (a.symbol in last, a.extent.as_int() is None)), place


def even(extent: int | None, chunks: int) -> int:
    """A number of chunks near the wanted one that divides the extent, if there is one: no point is then outside."""
    if extent is None:
        return chunks
    near = [n for n in range(max(2, chunks // 2), min(2 * chunks, extent) + 1) if extent % n == 0]
    return min(near, key=lambda n: abs(n - chunks), default=chunks)


def _neutral(op: str, dtype: torch.dtype) -> Number:
    if op in ("sum", "any"):
        return 0
    if op in ("prod", "all"):
        return 1
    if dtype.is_floating_point:
        return -math.inf if op == "max" else math.inf
    if dtype is torch.bool:
        return op == "min"
    limits = torch.iinfo(dtype)
    return limits.min if op == "max" else limits.max


def flat_index(b: Buffer, axes: tuple[Axis, ...]) -> Expr:
    index: Expr = ZERO
    for axis, stride in zip(axes, b.strides, strict=True):
        index = index + axis.symbol * stride
    return index
