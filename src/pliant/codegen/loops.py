"""Choose the loops that compute a kernel.

In:     a `Kernel` of the schedule.
Out:    a `LoopPlan`: merged axes, which one is vectorized, which are spread over threads and how they are blocked.
Holds:  merging keeps every index expression's value; the choice affects speed only.

    rows     outer loops over threads, reduced loops inside, vectorized along a reduced axis
    columns  blocks of the vectorized outer axis over threads, reduced loops inside, accumulators in arrays of a block
    points   no reduction: all loops but the vectorized one over threads, both blocked where that helps
    split    few outer points: threads share the outermost reduced loop and their partial results are combined in order
    scan     a loop that folds in its order: several rows, or a block of columns, over threads, each with its own fold
    ordered  stores that may meet at one index: one thread, except along an axis that keeps them apart, or rows that do
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations

import torch

from pliant.codegen.divided_rows import divided
from pliant.codegen.joined_rows import joined
from pliant.ir.loops import Axis, Buffer, Pointwise, Reduction, Scan
from pliant.ir.scalar import Apply, Const, IndexValue, Load
from pliant.lowering.tensors import HALF
from pliant.records import dataclass
from pliant.schedule.align import merge_axes, quotient
from pliant.schedule.fuse import is_split, total
from pliant.schedule.kernel import Kernel, Member, accumulates, loads_of, scalars
from pliant.symbolic.expr import ZERO, Expr, Symbol, lit
from pliant.symbolic.traverse import linear_coefficient, substitute
from pliant.targets.target import Target

FAR = 64  # elements from one load to the next, from which on each brings a line of memory of its own, and more
LONG_RUN = 1024  # neighbouring elements from which on it is worth to ask for those that follow
SHORT_ROW = 256  # columns up to which what follows are the rows that come next
SHORT_AXIS = 15  # points of an axis that is no good for vectors
SCANNED_ROWS = 16  # that are folded side by side as lanes: those of the longest vectors, with which transposing them pays
_IRREGULAR = 1 << 30  # in place of a step that is no number
_STEPS = {0: 0, 1: 4, 2: -1}  # how well an access with such a step is vectorized; larger ones: -3
_SHORT, _SHORT_ROW = 8, 4  # what a short axis costs; less where sums go on from row to row

Halves = tuple[list[Member], list[Member]]


@dataclass(slots=True)
class LoopPlan:
    """`parallel`: (axis, block or None) over threads, outermost first; `inner`: loops inside, vectorized one last.
    `at_once`: a thread takes its blocks of columns as one, and so reads rows in runs as long as they can be. `halves`: the
    members at both points of an axis that is written out (`pairs.py`)."""

    kind: str
    kernel: Kernel
    vector: Axis | None
    parallel: list[tuple[Axis, int | None]]
    inner: list[Axis]
    at_once: bool = False
    halves: Halves | None = None

    @property
    def width(self) -> int:
        """Elements of an array that holds one value for each column of a block."""
        assert self.vector is not None
        block = None if self.at_once else self.parallel[-1][1]
        extent = self.vector.extent.as_int()
        return block if block is not None else extent or 0


def flat_position(reduction: Reduction) -> Expr:
    """The position of a point in the flattened reduced space, of the computation's own axes."""
    result: Expr = ZERO
    for axis in reduction.reduce_axes:
        result = result * axis.extent + axis.symbol
    return result


def flat_reduced(member: Member) -> Expr:
    """The same, of the kernel's axes."""
    assert isinstance(member.loops, Reduction)
    return member.at(flat_position(member.loops))


def index_expressions(kernel: Kernel) -> Iterator[tuple[Expr, int]]:
    """Every shape expression of the kernel over its axes, with a weight: stores 2, loads 1, others 0."""
    for member in kernel.members:
        yield member.store_index, 2 if member.loops.out in kernel.stored else 0
        if isinstance(member.loops, Reduction) and member.loops.op.startswith("arg"):
            yield flat_reduced(member), 0
        for s in scalars(member.loops):
            if isinstance(s, Load):
                yield member.at(s.index), 1
            elif isinstance(s, IndexValue):
                yield member.at(s.expr), 0


def merged(kernel: Kernel) -> Kernel:
    """The kernel with neighbouring loops made one wherever every index expression allows it."""
    axes, place = merge_axes(kernel.axes, [e for e, _ in index_expressions(kernel)], kernel.reduced)
    reduced = set[Symbol]().union(*(place.get(s, s).free for s in kernel.reduced))
    members = [
        Member(m.loops, {s: substitute(e, place) for s, e in m.place.items()}, m.inner, m.phase) for m in kernel.members
    ]
    return Kernel(axes, reduced, members, kernel.stored)


def weighted_accesses(kernel: Kernel) -> list[tuple[Expr, int]]:
    """The indices of loads and stores of memory, with their weights."""
    return [(e, w) for e, w in index_expressions(kernel) if w]


def order_axes(kernel: Kernel, weighted: list[tuple[Expr, int]]) -> tuple[list[Axis], Axis | None]:
    """The axes from the outside in, and the one along which memory is best read and written."""
    axes = sorted(kernel.axes, key=lambda a: -_largest_stride(weighted, a))
    if not axes:
        return axes, None
    # accesses that vary along few loops reach little memory beside those that vary along all
    symbols = {a.symbol for a in axes}
    most = max((len(symbols & e.free) for e, _ in weighted), default=0)
    frequent = [(e, w) for e, w in weighted if len(symbols & e.free) == most]
    rows = len(kernel.reduced) > 1
    short = {a: _SHORT_ROW if rows and a.symbol in kernel.reduced else _SHORT for a in axes}
    return axes, max(axes, key=lambda a: (_score(frequent, a, short[a]), _score(weighted, a, short[a]), axes.index(a)))


def plan_loops(kernel: Kernel) -> LoopPlan:
    """The loops of a kernel."""
    if isinstance(kernel.members[0].loops, Scan):
        return _scan(kernel)
    if any(accumulates(m.loops) for m in kernel.members):
        return _ordered(kernel)
    kernel = merged(joined(divided(kernel)))
    weighted = weighted_accesses(kernel)
    axes, vector = order_axes(kernel, weighted)
    if vector is None:
        return LoopPlan("points", kernel, None, [], [])
    if not kernel.reduced:
        return _points(kernel, axes, vector, weighted)
    target = kernel.target
    outer = [a for a in axes if a.symbol not in kernel.reduced]
    inner = [a for a in axes if a.symbol in kernel.reduced]
    if is_split(kernel) and all(m.phase == 0 or not m.inner for m in kernel.members):
        if vector.symbol not in kernel.reduced:
            vector = inner[-1]
        inner = [a for a in inner if a is not vector] + [vector]
        return LoopPlan("split", kernel, vector, [(a, None) for a in outer], inner)
    if vector.symbol in kernel.reduced:
        inner = [a for a in inner if a is not vector] + [vector]
        return LoopPlan("rows", kernel, vector, [(a, None) for a in outer], inner)
    rest = [a for a in outer if a is not vector]
    one_pass = all(m.phase == 0 or not m.inner for m in kernel.members)
    if one_pass and _at_most(outer, target.split_columns) and not _at_most(inner, target.split_inner):
        return LoopPlan("split", kernel, vector, [*((a, None) for a in rest), (vector, None)], inner)
    return LoopPlan(
        "columns", kernel, vector, [*((a, None) for a in rest), (vector, _column_block(rest, vector, target, one_pass))], inner
    )


def _at_most(axes: list[Axis], limit: int) -> bool:
    """Whether a loop nest is known to have at most so many points."""
    points = total(axes).as_int()
    return points is not None and points <= limit


def _column_block(rest: list[Axis], vector: Axis, target: Target, one_pass: bool) -> int:
    """Columns that one thread takes at a time: whole rows where other loops give work to all threads, long ones only where
    nothing is read a second time."""
    columns = vector.extent.as_int()
    most = target.widest_columns if one_pass else target.split_columns * 2
    if columns is not None and columns <= most and not _at_most(rest, 7):
        return columns
    block = target.column_block
    return block if columns is None or columns >= 8 * block else block // 4


def _points(kernel: Kernel, axes: list[Axis], vector: Axis, weighted: list[tuple[Expr, int]]) -> LoopPlan:
    rest = [a for a in axes if a is not vector]
    extent = vector.extent.as_int()
    target = kernel.target
    shortest = target.shortest_tile
    tiled = next((a for a in reversed(rest) if is_transposed(weighted, a, vector, shortest)), None)
    if tiled is not None:
        side = _side_of_tile(kernel, tiled)
        outer: list[tuple[Axis, int | None]] = [(a, side if a is tiled else None) for a in rest]
        return LoopPlan("points", kernel, vector, [*outer, (vector, side)], [tiled, vector])
    plain: list[tuple[Axis, int | None]] = [(a, None) for a in rest]
    if not rest or extent is None or extent > target.point_block:
        # what is stored between neighbours of a block follows while their memory is in the cache
        between = [a for a in axes[axes.index(vector) + 1 :] if _at_most([a], SHORT_AXIS)]
        plain = [(a, None) for a in rest if a not in between]
        plain += [(vector, None if not rest else target.point_block), *((a, None) for a in between)]
    return LoopPlan("points", kernel, vector, plain, [vector])


def _side_of_tile(kernel: Kernel, tiled: Axis) -> int:
    """Points of a tile along each of its axes. The longer its rows, the fewer pages are looked for in vain; the copies of
    what runs along `tiled` are on the stack."""
    target = kernel.target
    along = {(x.buffer, m.at(x.index)): x for m in kernel.members for x in loads_of(m.loops)}
    sizes = [x.dtype.itemsize for (_, e), x in along.items() if step_along(e, tiled) == 1]
    side = target.tile
    while side > target.shortest_tile and side * side * sum(sizes) > target.tile_bytes:
        side //= 2
    return side


def is_transposed(weighted: list[tuple[Expr, int]], a: Axis, vector: Axis, tile: int) -> bool:
    """Whether some access runs along `a` and strides along the vectorized axis, and both are long."""
    for axis in (a, vector):
        extent = axis.extent.as_int()
        if extent is not None and extent < 2 * tile:
            return False
    return any(step_along(e, a) == 1 and step_along(e, vector) not in (0, 1) for e, _ in weighted)


def _scan(kernel: Kernel) -> LoopPlan:
    """Loops for a fold of which all values are stored: it waits for each addition, so others run beside it."""
    index, target = kernel.members[0].store_index, kernel.target
    rest = sorted(kernel.outer, key=lambda a: -step_along(index, a))
    if not rest:
        return LoopPlan("scan", kernel, None, [], kernel.inner)
    across = step_along(index, rest[-1]) == 1
    long = [a for a in rest if not _at_most([a], target.row_block - 1)]
    beside = long[-1] if long and not across else rest[-1]
    others: list[tuple[Axis, int | None]] = [(a, None) for a in rest if a is not beside]
    scan = kernel.members[0].loops
    assert isinstance(scan, Scan)
    block = target.column_block if across else rows_in_turn(scan, target)
    if not across and folds_on_lanes(scan) and _at_least(beside, 2 * SCANNED_ROWS):
        block = SCANNED_ROWS
    return LoopPlan("scan", kernel, beside, [*others, (beside, block)], kernel.inner)


def rows_in_turn(scan: Scan, target: Target) -> int:
    """Rows that lie along memory and are folded side by side: as many as make up for what each waits for its last result.
    Integers are added at once, and more rows only spread over more memory."""
    if scan.op != "sum":
        return target.row_block
    return max(1, target.row_block // 2) if scan.accumulate_dtype.is_floating_point else 1


def folds_on_lanes(scan: Scan) -> bool:
    """Whether rows that lie along memory are folded as lanes where vectors have so many."""
    dtype = scan.out.dtype
    if dtype is torch.float32:
        return scan.accumulate_dtype is torch.float64
    return dtype in HALF and scan.accumulate_dtype is torch.float32


def _at_least(axis: Axis, points: int) -> bool:
    extent = axis.extent.as_int()
    return extent is not None and extent >= points


def _ordered(kernel: Kernel) -> LoopPlan:
    """Loops for scatters: an axis along which stores never meet is vectorized and spread over threads."""
    member = kernel.members[0]
    index = member.store_index
    apart = [a for a in kernel.axes if len(kernel.members) == 1 and _keeps_apart(index, a)]
    vector = next((a for a in apart if step_along(index, a) == 1), None)
    rest = [a for a in kernel.axes if a is not vector]
    if vector is None and len(kernel.members) == 1:
        rows = _rows(kernel)
        return LoopPlan("ordered", kernel, None, [(a, None) for a in rows], [a for a in rest if a not in rows])
    if vector is None:
        return LoopPlan("ordered", kernel, None, [], rest)
    return LoopPlan("ordered", kernel, vector, [(vector, kernel.target.column_block)], [*rest, vector])


def _keeps_apart(index: Expr, a: Axis) -> bool:
    """Whether points that differ along `a` store to different elements: all other steps are multiples of its span."""
    step = linear_coefficient(index, a.symbol)
    if step is None or step is ZERO:
        return False
    span = step * a.extent
    rest = index.drop(a.symbol)
    for s in rest.free:
        other = linear_coefficient(rest, s)
        if other is None:
            return False
        # sizes occur in steps only; a symbol whose step is a multiple of the span is a lookup or another loop
        if quotient(other, span) is None and s not in span.free:
            return False
    return True


def _rows(kernel: Kernel) -> list[Axis]:
    """The axes of a scatter whose points store to places of their own, whatever is looked up: to rows of which each is as
    long as what moves within it."""
    (member,) = kernel.members
    loops, index = member.loops, member.store_index
    assert isinstance(loops, Pointwise)
    axes = [a for a in kernel.axes if a.symbol in index.free]
    extents = {a.symbol: a.extent for a in axes} | dict(_lookups(loops))
    spans: list[tuple[Expr, Expr]] = []  # the step of each symbol, the step that leads past its last value
    for s, extent in extents.items():
        step = linear_coefficient(index, s)
        if step is None or step is ZERO:
            return []
        spans.append((step, step * extent))
    within = [quotient(a[0], b[1]) is not None or quotient(b[0], a[1]) is not None for a, b in combinations(spans, 2)]
    return axes if all(within) and len(extents) == len(axes) + len(loops.indirect) else []


def _lookups(loops: Pointwise) -> Iterator[tuple[Symbol, Expr]]:
    """The symbols that are looked up and checked, each with the number that it is below."""
    for s, value in loops.indirect:
        if isinstance(value, Apply) and value.op == "check_index":
            limit = value.args[1]
            if isinstance(limit, IndexValue):
                yield s, limit.expr
            elif isinstance(limit, Const):
                yield s, lit(int(limit.value))


def step_along(e: Expr, axis: Axis) -> int:
    """The stride of an access along an axis as a number; a symbolic or irregular one counts as large."""
    if axis.symbol not in e.free:
        return 0
    step = linear_coefficient(e, axis.symbol)
    number = step.as_int() if step is not None else None
    return abs(number) if number is not None else _IRREGULAR


def reads_far_apart(members: Sequence[Member], vector: Axis) -> bool:
    """Whether several loads of a buffer take the same large step along the vectorized loop. Told to make vectors of that
    loop, compilers load all that lies between and pick the elements out, in code that grows with the step."""
    far: dict[tuple[Buffer, int], set[Expr]] = defaultdict(set)
    for m in members:
        for load in loads_of(m.loops):
            e = m.at(load.index)
            far[load.buffer, step_along(e, vector)].add(e)
    return any(FAR <= step < _IRREGULAR and len(indices) > 1 for (_, step), indices in far.items())


def bytes_read(kernel: Kernel) -> int:
    """How much memory a kernel reads, as far as that is known."""
    made = {m.loops.out for m in kernel.members}
    sizes = {b: [n.as_int() for n in b.shape] for m in kernel.members for b in (x.buffer for x in loads_of(m.loops))}
    return sum(math.prod(n or 0 for n in shape) * b.dtype.itemsize for b, shape in sizes.items() if b not in made)


def asked_ahead(plan: LoopPlan) -> frozenset[Buffer]:
    """The buffers of which the loop asks for what it will get to: those that fill the cache, where it takes them in long
    runs, or in short rows one after the other. Sizes that are not known may be large."""
    if plan.vector is None:
        return frozenset()
    extent = plan.vector.extent.as_int()
    run = dict(plan.parallel).get(plan.vector) or extent
    follows = {
        "points": run is None or run >= LONG_RUN, "rows": True, "split": True,
        "columns": extent is not None and extent <= SHORT_ROW,
    }  # fmt: skip
    if not follows.get(plan.kind, False):
        return frozenset()
    buffers = {x.buffer for m in plan.kernel.members for x in loads_of(m.loops)} | set(plan.kernel.stored)
    sizes = {b: math.prod(n.as_int() or LONG_RUN for n in b.shape) * b.dtype.itemsize for b in buffers}
    return frozenset(b for b, size in sizes.items() if size >= plan.kernel.target.cache_bytes // 2)


def _largest_stride(weighted: list[tuple[Expr, int]], axis: Axis) -> int:
    """The axis's step in stores, or in loads where it is in none: the order of loops from the outside in."""
    stores = [step_along(e, axis) for e, w in weighted if w == 2 and axis.symbol in e.free]
    return max(stores or [step_along(e, axis) for e, _ in weighted] or [0])


def _score(weighted: list[tuple[Expr, int]], axis: Axis, short: int) -> int:
    """How well vectorizing along the axis reads and writes memory; short axes are poor, by so many points."""
    points = 0
    for e, weight in weighted:
        step = step_along(e, axis)
        points += weight * _STEPS.get(step, -3)
    extent = axis.extent.as_int()
    if extent is not None and extent <= SHORT_AXIS:
        points -= 100 if extent < 4 else short
    return points
