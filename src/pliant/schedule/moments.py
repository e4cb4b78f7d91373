"""Sums of squared differences from a mean in the pass that sums what it is the mean of: their input is read once.

In:     a `LoopProgram`.
Out:    the program with, in place of `S[i] = sum(r) x` and `Q[i] = sum(r) square(x - a)`, where `a` waits for `S`, the sums
        of x - K and of square(x - K) over chunks of r, K being a mean of a few x of a chunk, and with S and Q made of these:
            S = sum(c) n*K + s                          n: points of a chunk; s, q: its two sums
            Q = sum(c) q - s*s/n + n*square(K + s/n - a)
Holds:  this is so for any `a`, as in the formula of Chan, Golub and LeVeque. K is a mean of k points of its chunk, so s*s/n is
        at most n/k times the chunk's sum of squares: what the difference loses is bounded, whatever the values are. The few operations on
        chunks are in double. An `a` that is the mean is not the rounded one, and what is divided by a number is rounded after that.
        Rows that stay in a core's cache, or in registers, are left alone: their second pass reads no memory.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterator, Sequence
from typing import TypeGuard

import torch

from pliant.ir.loops import Axis, Buffer, Computation, Extern, LoopProgram, Pointwise, Reduction
from pliant.ir.scalar import (
    Apply,
    Load,
    Scalar,
    apply,
    cast,
    const,
    index_expressions,
    index_value,
    load,
    loads,
    replace,
    walk,
    where,
)
from pliant.ir.scalar import substitute as substitute_scalar
from pliant.lowering.tensors import contiguous_strides, opmath
from pliant.records import dataclass
from pliant.schedule.sizes import LARGER, Sizes
from pliant.schedule.split import chunks_wanted, even, flat_index, is_along_memory
from pliant.symbolic.expr import ONE, Expr, Symbol, lit, symbol
from pliant.symbolic.traverse import substitute
from pliant.targets.registry import has_target, target_of

CHUNK_OF_ROW, CHUNK_OF_COLUMN = 4096, 128  # points
LARGEST_SHIFT = {torch.float32: 2.0**125, torch.float64: 2.0**1021}  # differences from it do not overflow
WIDE = torch.float64
SAMPLES, POINTS_OF_SAMPLE = 8, 16  # values of which a chunk's K is the mean, and how many points there are for each


def moments_in_one_pass(program: LoopProgram) -> LoopProgram:
    """The program with moments of what is too large to be read twice computed in one pass."""
    sizes = Sizes(program)
    for pair in list(_pairs(program)):
        number = _chunks_worth(pair.sum, sizes, program)
        chunks = _divided(pair.sum.reduce_axes, number, sizes) if number > 1 else None
        if chunks is not None:
            program = _OnePass(pair, chunks, program).program()
    return program


# ---- which sums


@dataclass(frozen=True, slots=True)
class _Pair:
    """A sum of values, and a sum of square(value - base) over the same points. `value` and `base` are over the axes of `sum`."""

    sum: Reduction
    squares: Reduction
    value: Scalar
    base: Scalar


def _pairs(program: LoopProgram) -> Iterator[_Pair]:
    """Each sum is in one pair at most."""
    sums: dict[frozenset[Buffer], list[tuple[int, Reduction]]] = {}  # by what they read, with their places
    makers: dict[Buffer, int] = {}  # the loops that made what a buffer holds
    needs: list[set[int]] = []  # those that loops read from
    for place, one in enumerate(program.computations):
        needs.append(set())
        if isinstance(one, Extern):
            continue
        read = {x.buffer for x in loads(one.value)}
        needs[place] = {makers[b] for b in (*read, one.out) if b in makers}
        if isinstance(one, Reduction) and _is_sum_of_floats(one):
            difference = _squared_difference(one)
            alike = [] if difference is None else sums.get(_buffers(difference[0]), [])
            for found in reversed(alike):
                if difference and (pair := _pair(found[1], one, difference)) and _waits(pair.base, found[0], makers, needs):
                    alike.remove(found)
                    yield pair
                    break
            sums.setdefault(frozenset(read), []).append((place, one))
        makers[one.out] = place


def _buffers(value: Scalar) -> frozenset[Buffer]:
    return frozenset(x.buffer for x in loads(value))


def _waits(base: Scalar, place: int, makers: dict[Buffer, int], needs: Sequence[set[int]]) -> bool:
    """Whether what the loops at a place make is needed for the value, by way of loops. Only those behind the place are looked at:
    in a program that is one long chain, all that a value comes from is most of it."""
    ahead = [makers[b] for b in _buffers(base) if makers.get(b, -1) >= place]
    seen = set(ahead)
    while ahead:
        one = ahead.pop()
        if one == place:
            return True
        more = {k for k in needs[one] if k >= place} - seen
        seen |= more
        ahead += more
    return False


def _is_sum_of_floats(c: Reduction) -> bool:
    return c.op == "sum" and c.accumulate_dtype in LARGEST_SHIFT and c.value.dtype is c.accumulate_dtype


def _squared_difference(squares: Reduction) -> tuple[Scalar, Scalar] | None:
    """x and a of a sum of square(x - a)."""
    square = squares.value
    if not (isinstance(square, Apply) and square.op == "mul" and square.args[0] is square.args[1]):
        return None
    difference = square.args[0]
    if not (isinstance(difference, Apply) and difference.op == "sub"):
        return None
    value, base = difference.args
    return value, base


def _pair(total: Reduction, squares: Reduction, difference: tuple[Scalar, Scalar]) -> _Pair | None:
    """The two sums, if the one is of squares of differences of what the other adds up."""
    place = _same_loops(squares.axes, total.axes) | _same_loops(squares.reduce_axes, total.reduce_axes)
    if len(place) < len(squares.axes) + len(squares.reduce_axes):
        return None
    values, base = (substitute_scalar(one, place) for one in difference)
    inside = {a.symbol for a in total.reduce_axes}
    varies = any(not inside.isdisjoint(e.free) for e in index_expressions(base))
    if varies or values is not replace(total.value, {}):  # equal parts are one object again
        return None
    return _Pair(total, squares, values, base)


def _same_loops(axes: Sequence[Axis], others: Sequence[Axis]) -> dict[Symbol, Expr]:
    """The symbols of loops as those of others that have the same points, one by one."""
    if len(axes) != len(others):
        return {}
    return {a.symbol: b.symbol for a, b in zip(axes, others, strict=True) if a.extent is b.extent}


# ---- which chunks


def _chunks_worth(c: Reduction, sizes: Sizes, program: LoopProgram) -> int:
    """How many chunks of a sum are worth having; 1: a second pass costs less."""
    target = target_of(c.out.device) if has_target(c.out.device) else None
    if target is None:
        return 1
    along, outside, inside = is_along_memory(c), sizes.points(c.axes), sizes.points(c.reduce_axes)
    width = max([0, *(x.dtype.itemsize for x in loads(c.value))])
    if target.splits_programs:
        if width * outside * inside <= target.shared_cache_bytes:
            return 1
        return chunks_wanted(c, sizes, Sizes(program, LARGER), program.computations[program.computations.index(c) + 1 :])
    at_once = 1 if along and outside > target.split_outer else outside
    read = width * at_once * inside
    return inside // (CHUNK_OF_ROW if along else CHUNK_OF_COLUMN) if read > target.cache_bytes else 1


@dataclass(frozen=True, slots=True)
class _Chunks:
    """`parts`: loops over chunks; `rest`: loops inside one; `place`: the sum's symbols over both, where they are others."""

    parts: tuple[Axis, ...]
    rest: tuple[Axis, ...]
    place: dict[Symbol, Expr]

    @property
    def size(self) -> Expr:
        return _points(self.rest)

    def samples(self) -> Iterator[dict[Symbol, Expr]]:
        """Some of its points, as far from each other as they can be: the first one where it has few."""
        known = [a.extent.as_int() or 1 for a in self.rest]
        count = min(SAMPLES, max(1, math.prod(known) // POINTS_OF_SAMPLE))
        for k in range(count):
            position, place = k * (math.prod(known) // count), dict[Symbol, Expr]()
            for axis, extent in zip(reversed(self.rest), reversed(known), strict=True):
                position, here = divmod(position, extent)
                place[axis.symbol] = lit(here)
            yield place


def _divided(axes: Sequence[Axis], number: int, sizes: Sizes) -> _Chunks | None:
    """About so many chunks, all of one size: outer loops whole as long as they fit, the next one in equal parts."""
    parts: list[Axis] = []
    for k, axis in enumerate(axes):
        if number <= 1:
            return _Chunks(tuple(parts), tuple(axes[k:]), {})
        extent, points = axis.extent.as_int(), sizes.points([axis])
        if points <= number or extent is None and points <= 2 * number:
            parts.append(axis)
            number //= max(points, 1)
            continue
        count = even(extent, number) if extent is not None else number
        if extent is None or extent % count:
            return _Chunks(tuple(parts), tuple(axes[k:]), {}) if parts else None
        outer = Axis(symbol(f"{axis.symbol.name}_part"), lit(count))
        inner = Axis(symbol(f"{axis.symbol.name}_in"), lit(extent // count))
        place = {axis.symbol: outer.symbol * inner.extent + inner.symbol}
        return _Chunks((*parts, outer), (inner, *axes[k + 1 :]), place)
    return None


def _points(axes: Sequence[Axis]) -> Expr:
    result: Expr = ONE
    for axis in axes:
        result = result * axis.extent
    return result


# ---- the computations


class _OnePass:
    """A pair of sums, computed by chunks. Axes are those of the first sum."""

    def __init__(self, pair: _Pair, chunks: _Chunks, program: LoopProgram) -> None:
        self.pair, self.chunks, self.old = pair, chunks, program
        self.axes, self.parts = pair.sum.axes, chunks.parts
        self.dtype = pair.sum.accumulate_dtype
        self.number = next(k for k, one in enumerate(program.computations) if one is pair.sum)
        shape = tuple(a.extent for a in (*self.parts, *self.axes))
        self.shift = self._buffer("shift", self.dtype, shape)
        self.first, self.second = (self._buffer(k, WIDE, shape) for k in ("sum", "squares"))
        wide = tuple(a.extent for a in self.axes)
        self.total, self.spread = (self._buffer(k, WIDE, wide) for k in ("total", "spread"))

    def _buffer(self, name: str, dtype: torch.dtype, shape: tuple[Expr, ...]) -> Buffer:
        device = self.pair.sum.out.device
        return Buffer(f"{name}{self.number}", dtype, shape, contiguous_strides(shape), device, "temporary")

    def program(self) -> LoopProgram:
        sums, squares = list(self._sums()), list(self._squares())
        computations: list[Computation] = []
        for one in self.old.computations:
            if one is self.pair.sum:
                computations += sums
            elif one is self.pair.squares:
                computations += squares
            else:
                computations.append(self._rounding_once(one))
        return dataclasses.replace(self.old, computations=computations)

    def _sums(self) -> Iterator[Computation]:
        """Those of chunks, and what the first one is of these."""
        value = substitute_scalar(self.pair.value, self.chunks.place)
        shift = self._shift(value)
        difference = apply("sub", value, shift)
        yield self._of_chunk(self.first, difference)
        yield self._of_chunk(self.second, apply("mul", difference, difference))
        axes = (*self.parts, *self.axes)
        yield Pointwise(self.shift, axes, flat_index(self.shift, axes), shift, origin=self.pair.sum.origin)
        added = apply("add", apply("mul", self._size(), self._part(self.shift)), self._part(self.first))
        yield self._of_chunks(self.total, added, self.pair.sum)
        yield self._rounded(self.total, self.pair.sum)

    def _shift(self, value: Scalar) -> Scalar:
        """The mean of some values of a chunk but the largest and the least, or 0 where differences from it are no numbers, or
        there are none."""
        points = [substitute_scalar(value, place) for place in self.chunks.samples()]
        total, number = _joined("add", points), len(points)
        if number > 4:
            total, number = apply("sub", total, apply("add", _joined("maximum", points), _joined("minimum", points))), number - 2
        mean = apply("mul", total, const(1 / number, self.dtype))
        near = apply("lt", apply("abs", mean), const(LARGEST_SHIFT[self.dtype], self.dtype))
        zero = const(0, self.dtype)
        found = where(near, mean, zero)
        if self.chunks.size.as_int() is not None:
            return found
        return where(apply("lt", const(0, torch.int64), index_value(self.chunks.size)), found, zero)

    def _of_chunk(self, out: Buffer, value: Scalar) -> Reduction:
        axes = (*self.parts, *self.axes)
        return Reduction(out, axes, self.chunks.rest, "sum", flat_index(out, axes), value, self.dtype, self.pair.sum.origin)

    def _squares(self) -> Iterator[Computation]:
        size, shift, first, second = self._size(), *map(self._part, (self.shift, self.first, self.second))
        points = apply("maximum", size, const(1, WIDE))  # chunks of no points have no mean
        mean = apply("div", first, points)
        base = cast(self.pair.base, WIDE)
        if self._is_mean(self.pair.base):
            base = self._exact_mean(load(self.total, flat_index(self.total, self.axes)))
        between = apply("sub", apply("add", shift, mean), base)
        within = apply("sub", second, apply("mul", first, mean))
        value = apply("add", within, apply("mul", size, apply("mul", between, between)))
        yield self._of_chunks(self.spread, value, self.pair.squares)
        yield self._rounded(self.spread, self.pair.squares)

    def _of_chunks(self, out: Buffer, value: Scalar, of: Reduction) -> Reduction:
        """The sum over all chunks."""
        return Reduction(out, self.axes, self.parts, "sum", flat_index(out, self.axes), value, WIDE, of.origin)

    def _rounded(self, wide: Buffer, of: Reduction) -> Pointwise:
        """The sum that another one stands for."""
        value = cast(load(wide, flat_index(wide, self.axes)), opmath(of.out.dtype))
        return Pointwise(of.out, self.axes, substitute(of.index, _same_loops(of.axes, self.axes)), value, origin=of.origin)

    def _part(self, b: Buffer) -> Scalar:
        return cast(load(b, flat_index(b, (*self.parts, *self.axes))), WIDE)

    def _size(self) -> Scalar:
        return index_value(self.chunks.size, WIDE)

    # -- means

    def _exact_mean(self, total: Scalar) -> Scalar:
        return apply("div", total, index_value(_points(self.pair.sum.reduce_axes), WIDE))

    def _mean(self, x: Scalar) -> Scalar:
        return apply("div", x, index_value(_points(self.pair.sum.reduce_axes), self.dtype))

    def _is_mean(self, base: Scalar) -> bool:
        """Whether it is the sum divided by the number of its points, in the dtype of the sum."""
        mean = self._mean(load(self.pair.sum.out, self.pair.sum.index))
        writer = next((one for one in self.old.computations if isinstance(base, Load) and _writes(one, base.buffer)), None)
        if writer is not None and isinstance(base, Load):
            place = _same_loops(writer.axes, self.axes)
            if len(place) == len(writer.axes) and substitute(writer.index, place) is base.index:
                base = substitute_scalar(writer.value, place)
        return base is mean

    def _rounding_once(self, one: Computation) -> Computation:
        """The same, where it divides or multiplies a sum (for a mean, a variance) with what is rounded after that only."""
        if not isinstance(one, Pointwise) or len(_same_loops(one.axes, self.axes)) < len(one.axes):
            return one  # at each point of what was summed that would take long
        value, exact = replace(one.value, {}), dict[Scalar, Scalar]()
        for x in walk(value):
            wide = self._wide(x.args[0]) if isinstance(x, Apply) and x.op in ("div", "mul") else None
            if wide is not None and isinstance(x, Apply):
                exact[x] = cast(apply(x.op, wide, cast(x.args[1], WIDE)), x.dtype)
        return dataclasses.replace(one, value=replace(value, exact)) if exact else one

    def _wide(self, x: Scalar) -> Scalar | None:
        """The same element of a sum in double."""
        for of, wide in ((self.pair.sum, self.total), (self.pair.squares, self.spread)):
            index = substitute(of.index, _same_loops(of.axes, self.axes))
            if isinstance(x, Load) and x.buffer is of.out and index is flat_index(wide, self.axes):
                return load(wide, x.index)
        return None


def _joined(op: str, values: Sequence[Scalar]) -> Scalar:
    return functools.reduce(lambda a, b: apply(op, a, b), values)


def _writes(one: Computation, buffer: Buffer) -> TypeGuard[Pointwise]:
    return isinstance(one, Pointwise) and one.out is buffer and not (one.accumulate or one.indirect or one.part)
