"""Two kernels that go through the same rows, as one that takes blocks of rows in turn: what both read comes from memory once.

In:     the kernels of a run, in order, and which buffers lie in the memory of others.
Out:    `in_turn`: the run as single kernels and `Pair`s; `write_pair`: the C text of one.
Holds:  one of the two folds its rows into a row, the other folds each row. They may run in any order, or what one of them
        writes and the other reads or writes lies, row by row, in the same place for both: then each block of rows goes
        through both in their order.
        Layer norm's gradients are the usual case: those of weight and bias fold the rows, that of the input each row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from pliant.codegen.c import PART_ARGUMENTS, KernelText, Writer
from pliant.codegen.loops import LoopPlan, plan_loops
from pliant.ir.loops import Buffer, Pointwise, Reduction
from pliant.lowering.tensors import numel
from pliant.records import dataclass
from pliant.schedule.fuse import total
from pliant.schedule.kernel import Kernel, Member, loads_of, memory_of, stays_alone
from pliant.schedule.memory import kernel_buffers
from pliant.symbolic.expr import Expr, Symbol
from pliant.symbolic.traverse import linear_coefficient

SHARE = 2  # of a core's cache: what a block of rows fills
SUMMED = 8  # rows that are summed before they are added to the total


@dataclass(frozen=True, slots=True)
class Pair:
    """Two kernels in order. `ordered`: a block of rows goes through the first before the second."""

    first: Kernel
    second: Kernel
    ordered: bool


def in_turn(run: Sequence[Kernel], in_place: Mapping[Buffer, Buffer], scratch: Set[Buffer]) -> Iterator[Kernel | Pair]:
    """The kernels of a run. `in_place`: buffers in the memory of others; `scratch`: those that share an entry's stack."""
    waiting: Kernel | None = None
    for kernel in run:
        if waiting is not None:
            found = _pair(waiting, kernel, in_place, scratch)
            if found is not None:
                yield found
                waiting = None
                continue
            yield waiting
        waiting = kernel
    if waiting is not None:
        yield waiting


def _pair(one: Kernel, other: Kernel, in_place: Mapping[Buffer, Buffer], scratch: Set[Buffer]) -> Pair | None:
    if not (one.reduced and other.reduced and _large_in_common(one, other)):
        return None
    buffers = [b for kernel in (one, other) for b in kernel_buffers(kernel)]
    if not scratch.isdisjoint(buffers) or any(b.role == "input" for b in one.stored | other.stored):
        return None
    plans = _plans(one, other)
    if plans is None:
        return None
    clashing = _clashing(one, other, lambda b: memory_of(b, in_place))
    if not clashing:
        return Pair(one, other, ordered=False)
    steps = [_step(plan.kernel, row, clashing) for plan, row in zip(plans, _rows(plans), strict=True)]
    return Pair(one, other, ordered=True) if steps[0] is not None and steps[0] == steps[1] else None


def _large_in_common(one: Kernel, other: Kernel) -> bool:
    """Whether both read something that is not in the cache any more when it has been read once."""
    read = [{x.buffer for m in kernel.members for x in loads_of(m.loops)} for kernel in (one, other)]
    sizes = [(numel(b.shape).as_int() or 0) * b.dtype.itemsize for b in read[0] & read[1]]
    return any(size > one.target.cache_bytes for size in sizes)


def _plans(one: Kernel, other: Kernel) -> tuple[LoopPlan, LoopPlan] | None:
    """The loops of both, one of which folds the rows of the other."""
    if any(stays_alone(kernel.members[0].loops) for kernel in (one, other)):
        return None
    plans = plan_loops(one), plan_loops(other)
    if {plan.kind for plan in plans} != {"rows", "columns"}:
        return None
    folding = next(plan for plan in plans if plan.kind == "columns")
    by_row = next(plan for plan in plans if plan.kind == "rows")
    if len(folding.parallel) != 1 or len(folding.inner) != 1 or len(by_row.parallel) != 1:
        return None
    columns = folding.parallel[0][0].extent.as_int()
    narrow = columns is not None and columns <= folding.kernel.target.widest_columns
    one_pass = all(m.phase == 0 or not m.inner for m in folding.kernel.members)
    same = folding.inner[0].extent is by_row.parallel[0][0].extent
    return plans if narrow and one_pass and same else None


def _rows(plans: Sequence[LoopPlan]) -> list[Symbol]:
    """The loop over the rows of each."""
    return [(plan.inner[0] if plan.kind == "columns" else plan.parallel[0][0]).symbol for plan in plans]


# ---- what is written by one, and read or written by the other


def _clashing(one: Kernel, other: Kernel, root: Callable[[Buffer], Buffer]) -> set[Buffer]:
    """The buffers of both in whose memory one writes and the other does anything."""
    touched = [{root(b) for b in kernel_buffers(kernel)} for kernel in (one, other)]
    written = [{root(b) for b in kernel.stored} for kernel in (one, other)]
    roots = (written[0] & touched[1]) | (written[1] & touched[0])
    return {b for kernel in (one, other) for b in kernel_buffers(kernel) if root(b) in roots}


def _step(kernel: Kernel, row: Symbol, buffers: Set[Buffer]) -> int | None:
    """The bytes from a row's elements of these buffers to the next row's, if no row reaches into another's."""
    found = {_row_bytes(kernel, row, b, e) for b, e in _places(kernel) if b in buffers}
    return found.pop() if len(found) == 1 else None


def _places(kernel: Kernel) -> Iterator[tuple[Buffer, Expr | None]]:
    """Where the kernel reads and writes memory; None: somewhere."""
    for m in kernel.members:
        for load in loads_of(m.loops):
            yield load.buffer, None if load.indirect else m.at(load.index)
        indirect = isinstance(m.loops, Pointwise) and m.loops.indirect
        yield m.loops.out, None if indirect else m.store_index


def _row_bytes(kernel: Kernel, row: Symbol, b: Buffer, index: Expr | None) -> int | None:
    if index is None:
        return None
    step, reach, rest = linear_coefficient(index, row), 0, index.drop(row)
    for axis in kernel.axes:
        if axis.symbol is not row:
            each, extent = linear_coefficient(rest, axis.symbol), axis.extent.as_int()
            number = None if each is None else each.as_int()
            if number is None or number < 0 or extent is None:
                return None
            reach, rest = reach + number * (extent - 1), rest.drop(axis.symbol)
    start, width = rest.as_int(), None if step is None else step.as_int()
    if start is None or width is None or not 0 <= start <= start + reach < width:
        return None
    return width * b.dtype.itemsize


# ---- text


def write_pair(first: Kernel, second: Kernel, *, ordered: bool) -> KernelText:
    """The C text of two kernels as one."""
    plans = plan_loops(first), plan_loops(second)
    folding = next(plan for plan in plans if plan.kind == "columns")
    by_row = next(plan for plan in plans if plan.kind == "rows")
    vector = folding.parallel[0][0]
    shared = LoopPlan("split", folding.kernel, vector, [(vector, None)], folding.inner)
    return _Folding(shared, _ByRow(by_row), rows_first=not ordered or by_row is plans[0]).write()


class _ByRow(Writer):
    """The kernel that folds each row, as a function of a range of rows."""

    def function(self) -> list[str]:
        self._reducing()
        body, self.lines = self.lines, []
        return [f"static void @_rows({PART_ARGUMENTS}) {{", *self._head(), *body, "}"]

    def work_of_row(self) -> Expr:
        return total(self.plan.inner) * self._cost()


class _Folding(Writer):
    """The kernel that folds the rows: each thread some, with the other kernel before or behind each block of them."""

    def __init__(self, plan: LoopPlan, by_row: _ByRow, rows_first: bool) -> None:
        super().__init__(plan)
        self.by_row, self.rows_first = by_row, rows_first
        later = self if rows_first else by_row
        later.far, later.loads_ahead = False, frozenset()  # what it reads is in the cache

    def write(self) -> KernelText:
        before = self.by_row.function()
        own, self.names = self.names.symbols, self.by_row.names.copy()
        self.names.symbols.update(own)
        written = super().write()
        return KernelText(
            "\n".join([*before, written.text]),
            self.by_row._comment() + written.comment,
            written.buffers,
            written.sizes,
            written.written | (self.by_row.kernel.stored & frozenset(written.buffers)),
            written.work + total(self.by_row.kernel.axes),
        )

    def _work_of_item(self, inside: Expr) -> Expr:
        return super()._work_of_item(inside) + self.by_row.work_of_row()

    def _pass(self, members: list[Member], first: tuple[str, str] | None = None) -> None:
        for m in members:
            if isinstance(m.loops, Reduction):
                self._start(m)
        block = self._rows_of_block()
        self.begin(f"for (int64_t from = begin; from < end; from += {block})")
        self.line(f"const int64_t to = p_min(from + {block}, end);")
        call = ["@_rows(p, n, from, to, slot, p_error);"]
        self._lines(call if self.rows_first else [])
        self._column_pass(members, ("from", "to"))
        self._lines([] if self.rows_first else call)
        self.end()

    def _rows_of_block(self) -> int:
        """How many rows stay in the cache."""
        (row,) = self.plan.inner
        rows = row.extent.as_int()
        buffers = dict.fromkeys(b for kernel in (self.kernel, self.by_row.kernel) for b in kernel_buffers(kernel))
        sizes = [(numel(b.shape).as_int() or 0) * b.dtype.itemsize for b in buffers]
        each = max(1, sum(size for size in sizes if size > self.target.cache_bytes) // (rows or 1))
        return max(SUMMED, self.target.cache_bytes // SHARE // each // SUMMED * SUMMED)
