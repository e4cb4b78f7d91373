"""Group computations into kernels.

In:     a `LoopProgram` and its dependencies.
Out:    the steps: kernels and extern calls in a valid order.
Holds:  every step comes after those it depends on, and one that writes an input after those that may fail; inside a
        kernel each value is read only at the point that wrote it.
Method: computations in program order; each joins the latest kernel, not before its last dependency, with which it
        shares data and whose iteration space fits (exactly, after splitting axes), else it starts a new step.
        Vertical fusion (producer and consumer), reductions with producers and epilogues, and siblings are the same
        operation here.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
from collections.abc import Iterator, Sequence, Set

from pliant import config
from pliant.ir.failing import may_fail
from pliant.ir.loops import Axis, Buffer, Computation, Extern, LoopProgram, Pointwise, Reduction, Scan
from pliant.ir.scalar import Load, cast, const
from pliant.lowering.tensors import numel
from pliant.records import dataclass
from pliant.schedule.align import Alignment, align, fresh_axis
from pliant.schedule.dependencies import dependencies, writes_input
from pliant.schedule.divided import over_pieces
from pliant.schedule.kernel import (
    ExternCall,
    Kernel,
    Loops,
    Member,
    Step,
    accumulates,
    all_axes,
    inner_axes,
    loads_of,
    stays_alone,
)
from pliant.schedule.windows import reads_windows
from pliant.symbolic.expr import ONE, ZERO, Expr, Symbol
from pliant.symbolic.traverse import step_along, substitute

MAX_BUFFERS = 48  # distinct buffers in one kernel
ALONE = "its loops are a kernel of their own"
MOST_TRIED = 32  # kernels that a computation may join; hundreds may read one tensor that a loop of the program takes apart


def fuse(program: LoopProgram, options: config.Schedule) -> list[Step]:
    """The steps of the program."""
    return _Fuser(program, options).run()


class _Fuser:
    """The steps so far, `growing` the kernels among them by position; `touching`: for each buffer the positions of the
    kernels that read or write it, in order; `writing`: of those that write it."""

    def __init__(self, program: LoopProgram, options: config.Schedule) -> None:
        self.program, self.options = program, options
        self.steps: list[Step] = []
        self.growing: dict[int, _Growing] = {}
        self.touching: dict[Buffer, list[int]] = {}
        self.writing: dict[Buffer, set[int]] = {}

    def run(self) -> list[Step]:
        before = dependencies(self.program)
        position: list[int] = []
        checked = 0  # the first step behind all that may fail
        for k, computation in enumerate(self.program.computations):
            earliest = max((position[d] for d in before[k]), default=0)
            if writes_input(computation):
                earliest = max(earliest, checked)
            position.append(self._add(computation, earliest))
            if may_fail(computation):
                checked = max(checked, position[k] + 1)
        return self.steps

    def _add(self, computation: Computation, earliest: int) -> int:
        """Put a computation in a step at or after `earliest`; the step's position."""
        if isinstance(computation, Extern):
            self.steps.append(ExternCall(computation))
            return len(self.steps) - 1
        loops = _without_unit_reduction(computation)
        found = self._joined(loops, earliest) if self.options.fuse and not stays_alone(loops) else None
        if found is None:
            found = len(self.steps)
            self.growing[found] = _Growing(_alone(loops))
            self.steps.append(self.growing[found].kernel)
        self.writing.setdefault(loops.out, set()).add(found)
        for b in {loops.out, *[load.buffer for load in loads_of(loops)]}:
            _insert(self.touching.setdefault(b, []), found)
        return found

    def _joined(self, loops: Loops, earliest: int) -> int | None:
        """The kernel that takes the computation in: the latest one, those that feed it first."""
        reads = {load.buffer for load in loads_of(loops)}
        feeding = sorted({k for b in reads for k in self.writing.get(b, ()) if k >= earliest}, reverse=True)
        others = self._others(reads | {loops.out}, feeding, earliest)
        ranked = (k for k in itertools.chain(feeding, others) if self._takes(k, loops))
        return next((k for k in itertools.islice(ranked, MOST_TRIED) if join(self.growing[k], loops)), None)

    def _others(self, buffers: set[Buffer], feeding: list[int], earliest: int) -> Iterator[int]:
        """Kernels that touch one of the buffers, but those of `feeding`, the latest first. As they are asked for: hundreds may
        touch what only the first few are asked about."""
        touching = [reversed(self.touching[b]) for b in buffers if b in self.touching]
        for k, _ in itertools.groupby(heapq.merge(*touching, reverse=True)):
            if k < earliest:
                return
            if k not in feeding:
                yield k

    def _takes(self, k: int, loops: Loops) -> bool:
        """Whether the kernel is on the computation's device and not full."""
        kernel = self.growing[k].kernel
        return kernel.device == loops.out.device and len(kernel.members) < self.options.fusion_limit


def _insert(positions: list[int], position: int) -> None:
    """Put a position in its place among others, where it is not there yet."""
    at = bisect.bisect_left(positions, position)
    if at == len(positions) or positions[at] != position:
        positions.insert(at, position)


def _without_unit_reduction(loops: Loops) -> Loops:
    """A reduction over a single point is its value, and so is a scan."""
    if isinstance(loops, Scan) and loops.axis.extent is ONE:
        return Pointwise(loops.out, all_axes(loops), loops.index, cast(loops.value, loops.out.dtype), origin=loops.origin)
    if not isinstance(loops, Reduction) or any(a.extent is not ONE for a in loops.reduce_axes):
        return loops
    value = const(0, loops.out.dtype) if loops.op.startswith("arg") else cast(loops.value, loops.out.dtype)
    unit: dict[Symbol, Expr] = {a.symbol: ZERO for a in loops.reduce_axes}
    return Pointwise(
        loops.out, (*loops.axes, *loops.reduce_axes), substitute(loops.index, unit), value, origin=loops.origin
    )


class _Growing:
    """A kernel that takes computations in, with what its members load and write looked up by buffer. `points`: of its inner
    loops and of those around them, where that was asked for."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.writers: dict[Buffer, Member] = {}
        self.loads: dict[Buffer, list[tuple[Member, Load]]] = {}
        self.points: dict[bool, Expr] = {}
        for member in kernel.members:
            self._note(member)

    def add(self, member: Member) -> None:
        self.kernel.members.append(member)
        self._note(member)

    def _note(self, member: Member) -> None:
        self.writers[member.loops.out] = member
        for load in loads_of(member.loops):
            self.loads.setdefault(load.buffer, []).append((member, load))

    def buffers(self) -> Set[Buffer]:
        """What it reads or writes."""
        return self.writers.keys() | self.loads.keys()

    def domain(self, *, inner: bool, points: Expr) -> list[Axis] | None:
        """Its loops, or those around what it reduces, if they have so many points: no others can be aligned."""
        found = self.points.get(inner)
        if found is None:
            found = self.points[inner] = total(self.kernel.axes if inner else self.kernel.outer)
        if found is not points:
            return None
        return self.kernel.axes if inner else self.kernel.outer

    def anchors(self, buffer: Buffer) -> list[Expr]:
        """Indices at which the kernel writes and loads a buffer."""
        found = [member.at(load.index) for member, load in self.loads.get(buffer, ()) if not load.indirect]
        writer = self.writers.get(buffer)
        return found if writer is None or accumulates(writer.loops) else [writer.store_index, *found]


def _alone(loops: Loops) -> Kernel:
    """A kernel of one computation."""
    place: dict[Symbol, Expr] = {}
    axes: list[Axis] = []
    reduced: set[Symbol] = set()
    inner_symbols = {a.symbol for a in inner_axes(loops)}
    for axis in all_axes(loops):
        if axis.extent is ONE:
            place[axis.symbol] = ZERO
            continue
        fresh = fresh_axis(axis.extent)
        axes.append(fresh)
        place[axis.symbol] = fresh.symbol
        if axis.symbol in inner_symbols:
            reduced.add(fresh.symbol)
    return Kernel(axes, reduced, [Member(loops, place, True, 0)])


# -- joining a kernel -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Trial:
    """A computation tentatively placed in a kernel."""

    alignment: Alignment
    inner: bool


def join(growing: _Growing, loops: Loops) -> bool:
    """Take a computation into a kernel if that is valid and shares data; whether it was done."""
    found = _fitting(growing, loops)
    if isinstance(found, str):
        return False
    _commit(growing, *found)
    return True


def _fitting(growing: _Growing, loops: Loops) -> tuple[Alignment, Member] | str:
    """The computation in its place in a kernel, or why it has none there."""
    kernel = growing.kernel
    if stays_alone(kernel.members[0].loops):
        return ALONE
    held, touched = growing.buffers(), {load.buffer for load in loads_of(loops)} | {loops.out}
    if len(held | touched) > MAX_BUFFERS:
        return f"together they touch more than {MAX_BUFFERS} buffers"
    why = "they read and write nothing in common" if held.isdisjoint(touched) else "their loops go over different points"
    for trial in _trials(growing, loops):
        member = _placed(growing, loops, trial)
        if isinstance(member, str):
            why = member
        elif _hinders(kernel, member, trial.alignment):
            why = "one of them reads or writes across the rows that the other goes along"
        elif _sums_windows(kernel, member):
            why = "results of windows would be computed one by one for a sum over them"
        else:
            return trial.alignment, member
    return why


def why_apart(first: Kernel, second: Kernel, options: config.Schedule) -> str:
    """Why a kernel does not compute what one behind it does, in words."""
    if not options.fuse:
        return "the option `fuse` is off"
    if first.device != second.device:
        return "they run on different devices"
    if len(first.members) >= options.fusion_limit:
        return "the first has as many computations as `fusion_limit` allows"
    growing = _Growing(first)
    for member in second.members:
        found = ALONE if stays_alone(member.loops) else _fitting(growing, member.loops)
        if isinstance(found, str):
            return found
    return "what the second waits for comes behind the first in the program"


def _trials(growing: _Growing, loops: Loops) -> Iterator[_Trial]:
    """Alignments worth checking, the most promising anchors first."""
    points = total(all_axes(loops))
    both = (True, False) if growing.kernel.reduced and isinstance(loops, Pointwise) else (True,)
    domains = [(inner, axes) for inner in both if (axes := growing.domain(inner=inner, points=points)) is not None]
    anchors = _anchors(growing, loops)[:6] if domains else []
    for inner, axes in domains:
        for own, theirs in anchors:
            for alignment in align(all_axes(loops), own, axes, theirs):
                yield _Trial(alignment, inner)


def _anchors(growing: _Growing, loops: Loops) -> list[tuple[Expr, Expr]]:
    """Pairs of indices into a common buffer: (the computation's, the kernel's), those with most axes first."""
    own: list[tuple[Buffer, Expr]] = [(x.buffer, x.index) for x in loads_of(loops) if not x.indirect]
    own.append((loops.out, loops.index))
    pairs = [(index, other) for buffer, index in own for other in growing.anchors(buffer)]
    pairs = list(dict.fromkeys(pairs))
    symbols = {a.symbol for a in all_axes(loops)}
    return sorted(pairs, key=lambda pair: -len(symbols & pair[0].free))


def _placed(growing: _Growing, loops: Loops, trial: _Trial) -> Member | str:
    """The member that the trial makes, or why it is not valid."""
    kernel, alignment = growing.kernel, trial.alignment
    place = alignment.left
    if isinstance(loops, Reduction) and not _same_reduced(kernel, loops, alignment):
        return "they reduce over different loops"
    over = over_pieces(loops, alignment) if isinstance(loops, Pointwise) else None
    if over is not None:
        loops, place = over, {a.symbol: a.symbol for a in over.axes}
    member = Member(loops, place, trial.inner, 0)
    phase = _phase(growing, member, alignment.moved())
    if phase is None:
        return "a value is needed at another point than where it is computed"
    member.phase = phase
    if trial.inner and phase > 0 and is_split(kernel):
        return "threads share the reduction whose result it needs"
    return member


def _hinders(kernel: Kernel, member: Member, alignment: Alignment) -> bool:
    """Whether a kernel that reduces would read or write across its rows because of the computation, and would not without.
    Such accesses touch a line of memory for each element; kernels that reduce nothing go in tiles.
    """
    if not (kernel.reduced or isinstance(member.loops, Reduction)):
        return False
    if (total(list(alignment.axes)).as_int() or _MANY) < _MANY:
        return False
    near, moved = kernel.target.cache_bytes // _OF_CACHE, alignment.moved()
    before = [substitute(e, moved) for one in kernel.members for e in _accesses(one, near)]
    added = _accesses(member, near)
    loops = [axis.symbol for axis in alignment.axes]
    alone = added if isinstance(member.loops, Reduction) else before
    return _in_step(alone, loops) and not _in_step([*before, *added], loops)


def _sums_windows(kernel: Kernel, member: Member) -> bool:
    """Whether a kernel would compute results of windows for a sum over them, one by one: a loop that takes several at a time
    reads less, and leaves the sum to another."""
    if kernel.target.window_points == 1 or not (kernel.reduced or isinstance(member.loops, Reduction)):
        return False
    return member.inner and any(reads_windows(m.loops) for m in (*kernel.members, member) if m.inner)


_MANY = 1 << 14  # points of a kernel from which on its accesses are what it costs
_OF_CACHE = 16  # a table of such a part of a core's cache stays there while each point looks something up


def _accesses(member: Member, near: int) -> list[Expr]:
    """Where a computation stores, and loads from buffers of more than `near` bytes."""
    far = [load for load in loads_of(member.loops) if not _is_within(load.buffer, near)]
    return [member.store_index, *[member.at(load.index) for load in far]]


def _is_within(buffer: Buffer, size: int) -> bool:
    elements = numel(buffer.shape).as_int()
    return elements is not None and elements * buffer.dtype.itemsize <= size


def _in_step(accesses: Sequence[Expr], loops: Sequence[Symbol]) -> bool:
    """Whether one of the loops goes through all that is accessed element by element, or stays where it is."""
    return any(all(step_along(e, s) in (0, 1) for e in accesses) and any(step_along(e, s) == 1 for e in accesses) for s in loops)


def _same_reduced(kernel: Kernel, loops: Reduction, alignment: Alignment) -> bool:
    """Whether the reduction folds the axes that the kernel folds already (or all pieces map cleanly if none yet)."""
    mine = _pieces(loops.reduce_axes, alignment)
    others = _pieces(loops.axes, alignment)
    if not mine or mine & others:
        return not mine and not kernel.reduced
    if not kernel.reduced:
        return not any(isinstance(m.loops, Reduction) for m in kernel.members)
    theirs = {piece.symbol for s in kernel.reduced for piece in alignment.right_axes[s]}
    return mine == theirs


def _pieces(axes: Sequence[Axis], alignment: Alignment) -> set[Symbol]:
    """The loops of the common space that these axes run over; sizes occur in the map as strides and are no loops."""
    found = {s for axis in axes for s in alignment.left[axis.symbol].free}
    return found & {a.symbol for a in alignment.axes}


def _phase(growing: _Growing, member: Member, moved: dict[Symbol, Expr]) -> int | None:
    """The first phase in which the member may run, or None if it needs a value from another point."""
    phase = 0
    shares = False
    for load in loads_of(member.loops):
        writer = growing.writers.get(load.buffer)
        index = member.at(load.index)
        if writer is None:
            shares = shares or _loads(growing, load, index, moved)
            continue
        if load.indirect or substitute(writer.store_index, moved) is not index:
            return None
        shares = True
        phase = max(phase, _ready(writer))
    out = member.loops.out
    if out in growing.writers:
        return None
    for other, load in growing.loads.get(out, ()):
        at_store = substitute(other.at(load.index), moved) is member.store_index
        if load.indirect or not at_store or not other.inner <= member.inner:
            return None
        shares = True
        phase = max(phase, other.phase)
    return phase if shares else None


def _ready(writer: Member) -> int:
    """The phase from which on the writer's value can be read."""
    return writer.phase + 1 if isinstance(writer.loops, Reduction) else writer.phase


def _loads(growing: _Growing, load: Load, index: Expr, moved: dict[Symbol, Expr]) -> bool:
    """Whether the kernel loads the same element at the same point."""
    return any(substitute(m.at(other.index), moved) is index for m, other in growing.loads.get(load.buffer, ()))


def _commit(growing: _Growing, alignment: Alignment, member: Member) -> None:
    """Refine the kernel's axes as the alignment says and add the member."""
    kernel, moved = growing.kernel, alignment.moved()
    if moved:
        for other in kernel.members:
            other.move(moved)
        kernel.axes = [piece for axis in kernel.axes for piece in alignment.right_axes.get(axis.symbol, (axis,))]
        kernel.reduced = {
            piece.symbol
            for axis_symbol in kernel.reduced
            for piece in alignment.right_axes.get(axis_symbol, (_axis(axis_symbol),))
        }
    if isinstance(member.loops, Reduction) and not kernel.reduced:
        kernel.reduced = _pieces(member.loops.reduce_axes, alignment)
    growing.add(member)
    growing.points.clear()


def _axis(s: Symbol) -> Axis:
    return Axis(s, ONE)


def is_split(kernel: Kernel) -> bool:
    """Whether the kernel's threads share one reduction (few outer points, many inner ones), which allows only one pass
    over the inner loops."""
    target = kernel.target
    if not kernel.reduced or target.splits_programs:
        return False
    outer = total(kernel.outer).as_int()
    if outer is None or outer > target.split_outer:
        return False
    inner = total(kernel.inner).as_int()
    return inner is None or inner > target.split_inner


def total(axes: Sequence[Axis]) -> Expr:
    """Points of a loop nest."""
    return numel(tuple([axis.extent for axis in axes]))
