"""Choose how the threads of a grid share a kernel's points.

In:     a `Kernel` of the schedule, a `Target`.
Out:    `DevicePlan`s: which axes a thread or a group of threads takes, how many elements at a time. One plan, or one for
        each range of lengths of a row, where only running tells how long rows are.
Holds:  the choice affects speed only.

    points   no reduction: each thread takes `width` neighbouring points
    rows     the vectorized axis is reduced: `group` threads side by side share one outer point
    tiles    no reduction, but memory runs along two axes: each block takes a square of both
    tables   points that are added up in few elements: each block has a copy of these, and goes through points in turns
    scan     `group` threads side by side share one outer point and take its points in turns, in their order
    columns  the vectorized axis is an outer one: `items` neighbouring threads take `width` columns each, and `group`
             such rows of threads share the reduced points
    windows, window sums
             points, or columns, of which a thread takes several at a time: `copies`
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace

import torch

from pliant.codegen.cuda.copies import Copies, all_places, neighbours
from pliant.codegen.loops import index_expressions, is_transposed, merged, order_axes, step_along, weighted_accesses
from pliant.codegen.vector_passes import cost_of
from pliant.ir.loops import Axis, Buffer, Pointwise, Reduction, Scan
from pliant.records import dataclass
from pliant.schedule.fuse import total
from pliant.schedule.kernel import Kernel, Loops, Member, accumulates, loads_of
from pliant.schedule.windows import places_of_sums, points_of, reads_windows, sums_products, widest
from pliant.symbolic.bounds import ALL, Interval, bounds
from pliant.symbolic.expr import ONE, ZERO, Expr, Symbol, lit
from pliant.symbolic.rules.extrema import minimum
from pliant.symbolic.traverse import linear_coefficient
from pliant.targets.target import Target

POINT_THREADS = 256
ROW_THREADS = 128  # of a block that takes several rows
MOST_LAUNCHED = 512  # threads of a block where a row's length decides: more would leave too few registers for 64-bit places
FEW_THREADS = 512  # a multiprocessor with fewer wants more threads a row
RECOMPUTE = 10  # values cheaper than this are computed again in each pass
PRODUCT_THREADS = 2048  # a multiprocessor, that have enough of a matrix on its way from memory
PRODUCT_TURNS = 4  # of such a thread at least
TURN_ELEMENTS = 16  # of a row that a thread takes: enough to have in flight, few to write out
# Groups of a short row that begins anywhere that a thread takes: lanes beside each other read parts of the same line again.
# Measured on an H100: softmax of rows of 49 bf16 elements takes 1.3 times a copy's time with 8 lanes a row, 2.3 with 32.
ODD_TURNS = 8
FEW_LANES = 8  # of a short row, where only running tells how long rows are
SHORT_TURNS = 2  # groups of elements of a short row that a thread takes
MOST_ELEMENTS = 32  # of a row that a thread keeps in registers
MOST_ALONE = 64  # the same where one block has the row and there are many rows: it need not wait for others
LOADED_BYTES = 128  # of a row a thread that are loaded once and kept in registers
KEPT_BYTES = 160  # with what is computed of them
SHARED_BYTES = 40 << 10  # of a block, for partial results of columns
MOST_PARTS = 64  # partial results of a column, times columns of a thread
TILE = 64  # elements of a tile's side
LONG = 16  # groups of elements in a row that is worth beginning where memory is aligned
TABLE_ELEMENTS = 4096  # of a table that each block has a copy of
CROWDED = 512  # points for each element of a table from which on they wait for each other
TURNS_OF_TABLE = 8  # points for each element of a table that are worth a copy of it
WINDOW_THREADS = 128  # of a block where each has many sums and blocks add up theirs: as many as fit beside each other are full
WIDEST = 8  # elements that a thread takes at a time


@dataclass(slots=True)
class DevicePlan:
    """outer, inner: loops from the outside in, the vectorized one last. whole: its extent is a multiple of `width`.

    group: threads that share an outer point. items: outer points (of `width` columns) a block. cluster: blocks that share one.
    launched: threads of a block where a launch chooses them, by a row's length; there are `threads` at most.
    steps: turns of the loop over a row's groups of elements, where it is written out and values stay in registers; 0: it
    is a loop.
    above, upto: it is for rows of more than `above` groups of elements and at most `upto`; None: of any number.
    most_blocks: blocks of the grid at most, each of which goes on with further points.
    kept: members whose values stay in registers too. anchor: rows begin anywhere, so a row's groups begin where this access
        to memory is aligned, and the first and the last of them are parts.
    """

    kind: str
    kernel: Kernel
    vector: Axis | None
    outer: list[Axis]
    inner: list[Axis]
    width: int
    group: int
    items: int
    steps: int
    narrow: bool
    kept: list[Member] = field(default_factory=list)
    anchor: tuple[Buffer, Expr] | None = None
    tiled: Axis | None = None
    cluster: int = 1
    launched: Expr | None = None
    above: int | None = None
    upto: int | None = None
    most_blocks: Expr | None = None
    copies: Copies | None = None

    @property
    def threads(self) -> int:
        return self.group * self.items // self.cluster

    @property
    def whole(self) -> bool:
        extent = self.vector.extent.as_int() if self.vector else 1
        return extent is not None and extent % self.width == 0

    def groups(self, axis: Axis) -> Expr:
        """How many groups of `width` elements an axis has."""
        if axis is not self.vector or self.width == 1:
            return axis.extent
        if self.whole:
            return axis.extent // self.width
        found = (axis.extent + (self.width - 1)) // self.width
        # a shifted row has a part of a group at its other end too
        return found + (axis.extent % self.width + (self.width - 1)) // self.width if self.anchor else found

    @property
    def blocks(self) -> Expr:
        """Blocks of the grid: none for rows that are not of its lengths."""
        if self.tiled is None:
            found = (self.count(self.outer) + (self.items - 1)) // self.items * self.cluster * self._is_meant
            return found if self.most_blocks is None else minimum(found, self.most_blocks)
        result: Expr = ONE
        for axis in self.outer:
            turned = axis is self.tiled or axis is self.vector
            result = result * ((axis.extent + (TILE - 1)) // TILE if turned else axis.extent)
        return result

    @property
    def _is_meant(self) -> Expr:
        """1 for rows of its lengths, 0 for others."""
        above = ONE if self.above is None else self._exceeds(self.above)
        return above if self.upto is None else above * (1 - self._exceeds(self.upto))

    def _exceeds(self, most: int) -> Expr:
        """1 if a row has more than `most` groups of elements, else 0."""
        return minimum(ONE, self.count(self.inner) // (most + 1))

    def count(self, axes: list[Axis]) -> Expr:
        """Groups of elements in a nest of loops."""
        result: Expr = ONE
        for axis in axes:
            result = result * self.groups(axis)
        return result


def plan_device(kernel: Kernel, target: Target) -> list[DevicePlan]:
    """How the grid runs a kernel: plans of which one is meant for each length of rows."""
    kernel = merged(kernel)
    weighted = weighted_accesses(kernel)
    axes, vector = order_axes(kernel, weighted)
    scans = isinstance(kernel.members[0].loops, Scan)
    if scans:
        (vector,) = kernel.inner
    outer = _vector_last([a for a in axes if a.symbol not in kernel.reduced], vector)
    inner = _vector_last([a for a in axes if a.symbol in kernel.reduced], vector)
    narrow = target.narrow_index and _fits_int32(kernel)
    width = _width(kernel, axes, vector)
    plan = DevicePlan("points", kernel, vector, outer, inner, width, 1, POINT_THREADS, 0, narrow)
    if len(axes) > 1 and width > 1 and not plan.whole and (not inner or vector in inner):
        plan.anchor = next(_contiguous(kernel, vector), None)
    if not inner and vector is not None:
        _plan_tiles(plan, vector, weighted)
        _plan_tables(plan, target)
        _plan_windows(plan, target)
    if scans:
        _plan_scan(plan, target)
    elif inner and vector in inner:
        return _plan_rows(plan, target)
    elif inner and not _plan_window_sums(plan, target):
        _plan_columns(plan, target)
    return [plan]


def _plan_windows(plan: DevicePlan, target: Target) -> None:
    """Several points a thread, where it reads what its neighbours do."""
    members = [m.loops for m in plan.kernel.members]
    if target.window_points == 1 or plan.kind != "points" or not plan.whole or plan.anchor is not None:
        return
    if any(map(accumulates, members)) or not any(map(reads_windows, members)):
        return
    accesses = list(_plain_loads(plan.kernel))
    found = neighbours(plan.outer, plan.vector, accesses, plan.count(plan.outer).as_int(), target)
    if found is not None:
        plan.kind, plan.copies, plan.outer = "windows", found, found.outer


def _plain_loads(kernel: Kernel) -> Iterator[tuple[Buffer, Expr]]:
    """Loads of memory that look nothing up."""
    own = {m.loops.out for m in kernel.members}
    for m in kernel.members:
        yield from ((x.buffer, m.at(x.index)) for x in loads_of(m.loops) if x.buffer not in own and not x.indirect)


def _sums_products(loops: Loops) -> bool:
    return isinstance(loops, Reduction) and loops.op == "sum" and sums_products(loops)


def _plan_window_sums(plan: DevicePlan, target: Target) -> bool:
    """All places of a window, or of its rows, a thread, where it sums over images; whether that is so."""
    kernel = plan.kernel
    sums = [m for m in kernel.members if m.inner]
    if target.window_points == 1 or not plan.whole or not all(_sums_products(m.loops) for m in sums):
        return False
    places = places_of_sums(list(_plain_loads(kernel)), [a for a in plan.outer if a is not plan.vector], kernel.reduced)
    if not places:
        return False
    plan.kind, plan.copies = "window sums", all_places(places, plan.outer)
    plan.outer = plan.copies.outer
    plan.width = widest(plan.width, points_of(places) * len(sums))
    columns = plan.vector.extent.as_int() if plan.vector else 1
    rows = total(plan.inner).as_int()
    plan.items = target.lanes if columns is None else min(target.lanes, power_of_two(columns // plan.width))
    shared = WINDOW_THREADS if rows is None else plan.items * power_of_two(max(rows // 2, 1))
    plan.group = max(target.lanes, min(WINDOW_THREADS, shared)) // plan.items
    return True


def _plan_tiles(plan: DevicePlan, vector: Axis, weighted: list[tuple[Expr, int]]) -> None:
    """Tiles, where memory runs along another axis than most of it does."""
    if any(accumulates(m.loops) for m in plan.kernel.members):
        return
    plan.tiled = next(
        (a for a in reversed(plan.outer) if a is not vector and is_transposed(weighted, a, vector, TILE // 2)), None
    )
    if plan.tiled is not None:
        plan.kind, plan.anchor = "tiles", None
        sizes = [b.dtype.itemsize for b, e, _ in _accesses(plan.kernel) if step_along(e, vector) == 1]
        plan.width = min(WIDEST, 16 // min(sizes)) if sizes else 4


def _plan_tables(plan: DevicePlan, target: Target) -> None:
    """Copies of what is added to, where so many points are added to each element that they would wait for each other."""
    sums = [m.loops for m in plan.kernel.members if isinstance(m.loops, Pointwise) and m.loops.accumulate is not None]
    if not sums or any(one.accumulate != "sum" or one.out.dtype is torch.bool for one in sums):
        return
    spans = [span_of(table) for table in {one.out: None for one in sums}]
    elements = sum(span or TABLE_ELEMENTS + 1 for span in spans)
    points = total(plan.kernel.axes)
    known = points.as_int()
    if elements > TABLE_ELEMENTS or (known is not None and known < elements * CROWDED):
        return
    plan.kind, plan.anchor = "tables", None
    plan.most_blocks = minimum(lit(4 * target.units), points // (elements * TURNS_OF_TABLE) + 1)


def span_of(buffer: Buffer) -> int | None:
    """Elements from a buffer's first to its last, if they are known."""
    last: Expr = ZERO
    for n, step in zip(buffer.shape, buffer.strides):
        last = last + (n - 1) * step
    found = last.as_int()
    return None if found is None or found < 0 else found + 1


def _vector_last(axes: list[Axis], vector: Axis | None) -> list[Axis]:
    return [a for a in axes if a is not vector] + [a for a in axes if a is vector]


def _width(kernel: Kernel, axes: list[Axis], vector: Axis | None) -> int:
    """Elements that a thread takes at a time along the vectorized axis: up to 16 bytes of the narrowest type."""
    if vector is None or any(_adds(m) for m in kernel.members):
        return 1  # lanes of a warp that add side by side are one access to memory
    sizes = [b.dtype.itemsize for b, e, _ in _accesses(kernel) if step_along(e, vector) == 1]
    if not sizes:
        return 1
    widest = 16 if max(sizes) == 1 else WIDEST
    width = min(widest, 16 // min(sizes))
    extent = vector.extent.as_int()
    if extent is None or extent >= LONG * width and _takes_any_start(kernel, axes, vector):
        return width
    while width > 1 and (extent % width or extent < width):
        width //= 2
    return width


def _adds(m: Member) -> bool:
    return isinstance(m.loops, Pointwise) and m.loops.accumulate is not None


def _takes_any_start(kernel: Kernel, axes: list[Axis], vector: Axis) -> bool:
    """Whether groups may begin anywhere along the vectorized axis."""
    if len(axes) == 1:
        return True
    reduces_others = bool(kernel.reduced) and vector.symbol not in kernel.reduced
    return not reduces_others and next(_contiguous(kernel, vector), None) is not None


def _accesses(kernel: Kernel) -> Iterator[tuple[Buffer, Expr, bool]]:
    """Stores and loads of memory: buffer, index, whether the index looks something up."""
    own = {m.loops.out for m in kernel.members} - kernel.stored
    for m in kernel.members:
        if m.loops.out in kernel.stored:
            yield m.loops.out, m.store_index, isinstance(m.loops, Pointwise) and bool(m.loops.indirect)
        for load in loads_of(m.loops):
            if load.buffer not in own:
                yield load.buffer, m.at(load.index), bool(load.indirect)


def _contiguous(kernel: Kernel, vector: Axis | None) -> Iterator[tuple[Buffer, Expr]]:
    """Accesses that run along the vectorized axis and differ along another one: those of whole arrays first, stores before
    loads: a load that begins anywhere costs two reads, a store as many as it has elements."""
    assert vector is not None
    found = [
        (b, e)
        for b, e, looks_up in _accesses(kernel)
        if not looks_up and linear_coefficient(e, vector.symbol) is ONE and any(a.symbol in e.free for a in kernel.axes)
    ]
    yield from sorted(found, key=lambda access: (-len(access[1].free), access[0] not in kernel.stored))


def _plan_rows(plan: DevicePlan, target: Target) -> list[DevicePlan]:
    """Threads for a row: few for short ones, so that several rows fill a warp; a block or a cluster for long ones."""
    plan.kind = "rows"
    groups, rows = plan.count(plan.inner).as_int(), plan.count(plan.outer).as_int()
    if groups is None:
        return _plan_lengths(plan, target, rows)
    if rows is not None and _multiplies_rows(plan.kernel):
        group = min(target.threads, max(target.lanes, power_of_two(target.units * PRODUCT_THREADS // rows + 1) // 2))
        if groups >= group * PRODUCT_TURNS:  # more lanes would have less on its way from memory than they wait for each other
            plan.group, plan.items = group, max(1, ROW_THREADS // group) if group == target.lanes else 1
            return [plan]
    turns = max(1, TURN_ELEMENTS // plan.width)
    while turns > 1 and rows is not None and rows * groups < turns * target.units * FEW_THREADS:
        turns //= 2
    if groups <= target.lanes * (turns + turns // 2):
        starts_anywhere = plan.anchor is not None or not plan.whole or plan.width == 1
        share = min(turns, ODD_TURNS) if starts_anywhere else 1
        plan.group = min(target.lanes, power_of_two(-(-groups // share)))
        plan.items = ROW_THREADS // plan.group
    else:
        few = rows is None or rows < 2 * target.units
        alone = _most_turns(plan, MOST_ELEMENTS if few else MOST_ALONE)
        if groups > alone * target.threads and (few or _reads_again(plan.kernel)):
            plan.cluster, turns = target.cluster, max(turns, _most_turns(plan, MOST_ELEMENTS))
        shared = -(-groups // plan.cluster)
        turns = max(turns, -(-shared // target.threads))
        plan.group, plan.items = -(-shared // turns // target.lanes) * target.lanes * plan.cluster, 1
    _keep_rows(plan, -(-groups // plan.group))
    return [plan]


def _multiplies_rows(kernel: Kernel) -> bool:
    """Whether rows are only summed, each times one that they share: a matrix by a vector."""
    inner = [m for m in kernel.members if m.inner]
    shared = [load for m in inner for load in loads_of(m.loops) if not belongs_to_rows(kernel, m.at(load.index))]
    return bool(shared) and all(isinstance(m.loops, Reduction) and m.loops.op == "sum" for m in inner) and not _reads_again(kernel)


def _plan_scan(plan: DevicePlan, target: Target) -> None:
    """Threads for a row: some lanes of a warp, or a block, with a few elements each."""
    plan.kind = "scan"
    groups, turns = plan.count(plan.inner).as_int(), max(1, TURN_ELEMENTS // plan.width)
    if groups is None:
        plan.group, plan.items = ROW_THREADS, 1
    elif groups <= target.lanes * (turns + turns // 2):
        plan.group = min(target.lanes, power_of_two(groups))
        plan.items = ROW_THREADS // plan.group
    else:
        plan.group, plan.items = min(target.threads, -(-groups // turns // target.lanes) * target.lanes), 1


def _plan_lengths(plan: DevicePlan, target: Target, rows: int | None) -> list[DevicePlan]:
    """Plans for rows of every length: some lanes of a warp, a block, a cluster; these keep rows in registers, if there is
    room, and have as many threads as a row needs. What is longer is looped over. Short rows have a part of a warp; of a
    warp and of a block there are two: with few elements a thread, which is short to build, and with as many as registers have room for."""
    few = rows is not None and rows < target.units * FEW_THREADS // target.lanes
    most, length = max(1, MOST_ELEMENTS // plan.width), plan.count(plan.inner)
    found: list[DevicePlan] = []

    def add(one: DevicePlan, turns: int) -> None:
        one = replace(one, above=found[-1].upto if found else None, upto=one.group * turns)
        _keep_rows(one, turns)
        found.append(one)

    ladder = sorted({min(SHORT_TURNS, most), most})
    if not few:
        add(replace(plan, group=FEW_LANES, items=ROW_THREADS // FEW_LANES), ladder[0])
        for turns in ladder:
            add(replace(plan, group=target.lanes, items=ROW_THREADS // target.lanes), turns)
    for cluster in sorted({1, target.cluster}):
        for turns in ladder if cluster == 1 else [most]:
            warps = (length + (target.lanes * cluster * turns - 1)) // (target.lanes * cluster * turns)
            add(replace(plan, group=MOST_LAUNCHED * cluster, items=1, cluster=cluster, launched=warps * target.lanes), turns)
    last = found[-1]
    return [*found, replace(last, group=target.threads * last.cluster, steps=0, kept=[], launched=None, above=last.upto, upto=None)]


def _reads_again(kernel: Kernel) -> bool:
    """Whether a row is passed over more than once."""
    return len({m.phase for m in kernel.members if m.inner}) > 1


def _most_turns(plan: DevicePlan, elements: int) -> int:
    """Turns of the loop over a row of which a thread keeps so many elements at most in registers."""
    return min(elements, LOADED_BYTES // max(1, _loaded_size(plan.kernel))) // plan.width


def _keep_rows(plan: DevicePlan, turns: int) -> None:
    """Keep what threads load of a row in registers, and what they compute of it, as far as there is room."""
    turns = max(1, turns)
    if turns > _most_turns(plan, MOST_ALONE if plan.cluster == 1 else MOST_ELEMENTS):
        return
    plan.steps = turns
    computed = kept_values(plan.kernel)
    size = _loaded_size(plan.kernel) + sum(m.loops.out.dtype.itemsize for m in computed)
    if turns * plan.width * size <= KEPT_BYTES:
        plan.kept = computed


def belongs_to_rows(kernel: Kernel, e: Expr) -> bool:
    """Whether an access goes along rows and differs between them. What all rows share (a weight) stays in a cache."""
    symbols = {a.symbol for a in kernel.axes}
    along, between = kernel.reduced & e.free, (symbols - kernel.reduced) & e.free
    return bool(along) and (bool(between) or symbols == kernel.reduced)


def _loaded_size(kernel: Kernel) -> int:
    """Bytes that one point of a row loads along it."""
    found = {}
    for m in kernel.members:
        if m.inner:
            loads = (x for x in loads_of(m.loops) if not x.indirect and belongs_to_rows(kernel, m.at(x.index)))
            found.update({(x.buffer, m.at(x.index)): x.dtype.itemsize for x in loads})
    own = {m.loops.out for m in kernel.members}
    return sum(size for (buffer, _), size in found.items() if buffer not in own)


def kept_values(kernel: Kernel) -> list[Member]:
    """Members whose values later passes read, and which cost more to compute again than to keep."""
    costs: dict[Buffer, int] = {}
    found = []
    for m in kernel.members:
        out = m.loops.out
        if not m.inner or isinstance(m.loops, Reduction):
            continue
        costs[out] = cost_of(m) + sum(costs.get(x.buffer, 0) for x in loads_of(m.loops))
        readers = (o for o in kernel.members if o.inner and o.phase > m.phase)
        if (costs[out] >= RECOMPUTE or out in kernel.stored) and any(
            out is x.buffer for o in readers for x in loads_of(o.loops)
        ):
            found.append(m)
            costs[out] = 0
    return found


def _plan_columns(plan: DevicePlan, target: Target) -> None:
    plan.kind = "columns"
    points = plan.count(plan.outer).as_int()
    rows = total(plan.inner).as_int()
    plan.items = 32 if points is None else min(32, power_of_two(max(points, 1)))
    most = 8 if rows is None else max(1, power_of_two(rows // 4 + 1) // 2)
    if points is not None and points > target.units * 2048:
        most = min(most, 4)
    room = SHARED_BYTES // (_partial_size(plan.kernel) * plan.width * plan.items)
    plan.group = max(1, min(most, room, MOST_PARTS // plan.width, target.threads // plan.items))
    while plan.threads < 64 and (points is None or plan.items < points):
        plan.items *= 2


def _partial_size(kernel: Kernel) -> int:
    """Bytes that a thread's share of all reductions of one column takes."""
    found = [m.loops for m in kernel.members if isinstance(m.loops, Reduction)]
    return sum(max(4, r.accumulate_dtype.itemsize) + 8 * r.op.startswith("arg") for r in found)


def power_of_two(n: int) -> int:
    """The least power of two that is not below `n`."""
    return 1 << max(0, (n - 1).bit_length())


def _fits_int32(kernel: Kernel) -> bool:
    """Whether every index and loop counter is below 2**31, looked-up parts aside: those are 64 bits wide."""
    extents = {a.symbol: a.extent.as_int() for a in kernel.axes}
    points = total(kernel.axes).as_int()
    if points is None or points >= 2**30:
        return False

    def known(s: Expr) -> Interval | None:
        if not isinstance(s, Symbol):
            return None
        extent = extents.get(s)
        return Interval(0, extent) if extent is not None else Interval(0, 0) if s.name.startswith("u") else ALL

    for e, _ in index_expressions(kernel):
        if e.kind is int:
            found = bounds(e, known)
            if found.lo <= -(2**30) or found.hi >= 2**30:
                return False
    return True
