"""Decide which buffers exist in memory, for how long, and where.

In:     the steps in order and the program's inputs and outputs.
Out:    a `Schedule`: stores that are needed, what to allocate before and free after each step.
Holds:  a buffer lives from its first write to its last use; outputs are tensors of their own.
"""

from __future__ import annotations

import itertools

import torch

from pliant import config
from pliant.graph.packed_weights import packed_convolution
from pliant.ir.loops import Buffer, LoopProgram, Pointwise, View
from pliant.lowering.tensors import is_row_major, numel
from pliant.schedule.dependencies import access, views_in
from pliant.schedule.kernel import ExternCall, Kernel, Schedule, Step, accumulates, loads_of, runs
from pliant.schedule.run_ends import end_runs_early
from pliant.schedule.scratch import take_scratch
from pliant.schedule.sizes import Sizes, all_guesses
from pliant.symbolic.expr import ZERO, Expr


def plan(program: LoopProgram, steps: list[Step], options: config.Schedule) -> Schedule:
    """The schedule of these steps."""
    kept = {v.buffer for v in program.outputs if isinstance(v, View)}
    _decide_stores(steps, kept)
    uses = [_uses(step) for step in steps]
    given = {b for b in program.inputs if isinstance(b, Buffer)} | set(program.constants)
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for k, used in enumerate(uses):
        for buffer in used:
            first.setdefault(buffer, k)
            last[buffer] = k
    allocate: list[list[Buffer]] = [[] for _ in steps]
    free: list[list[Buffer]] = [[] for _ in steps]
    for buffer, k in first.items():
        if buffer not in given and buffer.role not in ("input", "constant") and not _made_by_extern(steps[k], buffer):
            allocate[k].append(buffer)
    for buffer, k in last.items():
        if buffer not in kept and buffer.role != "constant":
            free[k].append(buffer)
    held = {program.inputs[i] for i in program.held} | set(program.constants)
    counted = {b: k for b, k in first.items() if b not in held}
    guesses = all_guesses(program)
    ends = {b: len(steps) - 1 if b in kept else k for b, k in last.items()}
    end_runs_early(steps, {b: (0 if b in given else k, ends[b]) for b, k in counted.items()}, guesses)
    scratch = take_scratch(steps, allocate, free)
    taken: dict[Buffer, Buffer] = {}
    if options.reuse_buffers:
        taken = _Reuse(steps, allocate, last, kept, guesses).find(counted)
    return Schedule(steps, allocate, free, taken, scratch)


VIEWED = 1 << 16  # bytes from which a buffer takes the memory of one of another shape
KEEP = 0.9  # memory is kept for later up to this share of the peak: operators have temporaries of their own


class _Reuse:
    """Which buffers take over the memory of one, of the same size, that died before they are written.

    Memory is kept for a later taker only while the program's peak does not rise by it, at any of the sizes guessed. A run of kernels is one call:
    all that it needs is allocated before it and freed behind it.
    """

    def __init__(
        self,
        steps: list[Step],
        allocate: list[list[Buffer]],
        last: dict[Buffer, int],
        kept: set[Buffer],
        guesses: list[Sizes],
    ) -> None:
        self.steps, self.allocate, self.last, self.guesses = steps, allocate, last, guesses
        self.kept = kept
        self.fixed = kept | _aliased(steps)
        self.owned = {b for made in allocate for b in made} | _fresh_results(steps)
        self.run = _run_numbers(steps)
        self.taken: dict[Buffer, Buffer] = {}

    def find(self, first: dict[Buffer, int]) -> dict[Buffer, Buffer]:
        """buffer -> whose memory it takes. `first`: where buffers that are freed, or made, here are first used."""
        end = self.run[-1] if self.run else 0
        spans = {b: (self._start(b, k), end if b in self.kept else self.run[self.last[b]]) for b, k in first.items()}
        self._match([])
        self._match([_Room(sizes, self._live(spans, end, sizes)) for sizes in self.guesses])
        return self.taken

    def _start(self, b: Buffer, first_use: int) -> int:
        """The run before which the buffer is there: inputs from the start."""
        return 0 if b.role == "input" else self.run[first_use]

    def _live(self, spans: dict[Buffer, tuple[int, int]], end: int, sizes: Sizes) -> list[int]:
        """Bytes in use in each run, as things are taken now."""
        change = [0] * (end + 2)
        for b, (start, stop) in spans.items():
            old = self.taken.get(b)
            if old is not None:  # one block of memory: this part of its life begins where the last one ended
                start = spans[old][1] + 1
            if start <= stop:
                change[start] += sizes.bytes(b)
                change[stop + 1] -= sizes.bytes(b)
        return list(itertools.accumulate(change))[:-1]

    def _match(self, rooms: list[_Room]) -> None:
        """Go through the steps; without rooms nothing is kept for a later run than the next."""
        self.taken = {}
        passed_on: set[Buffer] = set()
        dead: dict[object, list[Buffer]] = {}
        dying: dict[int, list[Buffer]] = {}
        for k, step in enumerate(self.steps):
            for b in self.allocate[k]:
                old = self._updated(step, b, k) or self._overwritten(step, b, k, passed_on)
                old = old or self._donor(b, dead.get(_room_of(b), []), k, rooms)
                if old is not None:
                    self.taken[b] = old
                    passed_on.add(old)
                dying.setdefault(self.last[b], []).append(b)
            for b in dying.get(k, ()):
                if b not in self.fixed and b not in passed_on:
                    dead.setdefault(_room_of(b), []).append(b)

    def _donor(self, taker: Buffer, dead: list[Buffer], k: int, rooms: list[_Room]) -> Buffer | None:
        while dead:
            alike = (b for b in reversed(dead) if _layout(b) == _layout(taker))
            b = next(alike, dead[-1] if self._is_worth_a_view(taker) else None)
            if b is None:
                return None
            dead.remove(b)
            gap = range(self.run[self.last[b]] + 1, self.run[k])
            if not gap:
                return b
            if rooms and all(room.has(b, gap) for room in rooms):
                for room in rooms:
                    room.take(b, gap)
                return b
        return None

    def _is_worth_a_view(self, b: Buffer) -> bool:
        """Whether it has so many bytes that a tensor of another shape, made of the dead one, costs less than fresh pages."""
        return all(sizes.bytes(b) >= VIEWED for sizes in self.guesses)

    def _overwritten(self, step: Step, b: Buffer, k: int, passed_on: set[Buffer]) -> Buffer | None:
        """A value that dies in a kernel where `b`'s formula alone reads it, and only at the point that it writes."""
        if isinstance(step, ExternCall):
            return None
        member = step.writers()[b]
        if not isinstance(member.loops, Pointwise) or accumulates(member.loops):
            return None
        if not member.inner and any(m.inner and m.phase for m in step.members):
            return None  # threads that share a row may each compute it; values of inner points are stored before they are read
        elsewhere = {load.buffer for m in step.members if m is not member for load in loads_of(m.loops)}
        loads: dict[Buffer, set[Expr]] = {}
        for load in loads_of(member.loops):
            loads.setdefault(load.buffer, set()).add(load.index)
        for old, places in loads.items():
            same = _layout(old) == _layout(b) or (self._is_worth_a_view(b) and _room_of(old) == _room_of(b))
            same = same or (b not in self.kept and _size(old) == _size(b))
            ends = self.last.get(old) == k and old in self.owned and old not in self.fixed and old not in passed_on
            if same and ends and old not in elsewhere and places == {member.loops.index}:
                return old
        return None

    def _updated(self, step: Step, b: Buffer, k: int) -> Buffer | None:
        """A sum that the product written to `b` is added to, if it dies here: the library adds to it in place."""
        if not isinstance(step, ExternCall) or step.extern.out_variant not in _ADD_IN_PLACE:
            return None
        total, *rest = step.extern.args
        old = total.buffer
        if total.shape != b.shape or total.strides != b.strides or total.offset is not ZERO:
            return None
        same = _layout(old) == _layout(b) and self.last.get(old) == k
        free = same and old in self.owned and old not in self.fixed
        return old if free and all(v.buffer is not old for v in views_in(rest)) else None


def _layout(b: Buffer) -> object:
    """What buffers have in common that may be one tensor."""
    return b.device, b.dtype, b.shape, b.strides


def _size(b: Buffer) -> object:
    return b.device, b.dtype, numel(b.shape)


def _room_of(b: Buffer) -> object:
    """What buffers have in common of which one's memory may be the other's."""
    return _size(b) if is_row_major(b) else _layout(b)


class _Room:
    """Bytes in use in each run, for one guess of sizes, and what may be added."""

    def __init__(self, sizes: Sizes, live: list[int]) -> None:
        self.sizes, self.live = sizes, live
        self.limit = int(max(live, default=0) * KEEP)

    def has(self, b: Buffer, runs: range) -> bool:
        return max(self.live[runs.start : runs.stop]) + self.sizes.bytes(b) <= self.limit

    def take(self, b: Buffer, runs: range) -> None:
        for run in runs:
            self.live[run] += self.sizes.bytes(b)


# Overloads whose first argument, added to the product, may be the result's own memory.
_ADD_IN_PLACE = (torch.ops.aten.addmm.out, torch.ops.aten.baddbmm.out)


def _run_numbers(steps: list[Step]) -> list[int]:
    """For each step the number of its run."""
    return [number for number, run in enumerate(runs(steps)) for _ in run]


def _aliased(steps: list[Step]) -> set[Buffer]:
    """Buffers that an eager operator may have returned a view of: they live on under another name."""
    found: set[Buffer] = set()
    for step in steps:
        if isinstance(step, ExternCall) and step.extern.out_variant is None:
            if _may_alias(step.extern.target):
                found |= access(step.extern).reads
    return found


def _fresh_results(steps: list[Step]) -> set[Buffer]:
    """What eager operators return in memory of its own."""
    calls = [step.extern for step in steps if isinstance(step, ExternCall) and step.extern.out_variant is None]
    return {b for call in calls if not _may_alias(call.target) for b in call.outs if b is not None}


# ATen operators that may return a view of an argument, or the argument itself, though their schemas do not say so. A sparse
# tensor keeps the indices and the values that it is made of.
_UNDECLARED_ALIASES = (
    "aten::unsafe_", "aten::_unsafe_view", "aten::conj_physical", "aten::native_dropout", "aten::_sparse_", "aten::sparse_",
    "aten::_embedding_bag_", "aten::_gather_sparse_",
)  # fmt: skip


def _may_alias(target: object) -> bool:
    """Whether an eager operator's result may share memory with its arguments; what users register may always."""
    if target is packed_convolution:
        return False
    schema = getattr(target, "_schema", None)
    if schema is None or not schema.name.startswith("aten::") or schema.name.startswith(_UNDECLARED_ALIASES):
        return True
    return any(r.alias_info is not None for r in schema.returns)


def _made_by_extern(step: Step, buffer: Buffer) -> bool:
    return isinstance(step, ExternCall) and step.extern.out_variant is None and buffer in step.extern.outs


def _uses(step: Step) -> list[Buffer]:
    """Buffers in memory that a step touches, in a fixed order."""
    if isinstance(step, ExternCall):
        found = access(step.extern)
        return sorted(found.reads | found.writes, key=lambda b: b.name)
    return kernel_buffers(step)


def kernel_buffers(kernel: Kernel) -> list[Buffer]:
    """Buffers in memory that a kernel reads or writes, in order of appearance."""
    found: dict[Buffer, None] = {}
    own = {m.loops.out for m in kernel.members}
    for member in kernel.members:
        for load in loads_of(member.loops):
            if load.buffer not in own or load.buffer in kernel.stored:
                found[load.buffer] = None
        if member.loops.out in kernel.stored:
            found[member.loops.out] = None
    return list(found)


def _decide_stores(steps: list[Step], kept: set[Buffer]) -> None:
    """A kernel stores what another step, or the caller, reads; the rest stays inside the kernel."""
    readers: dict[Buffer, set[int]] = {}
    for k, step in enumerate(steps):
        for buffer in _reads(step):
            readers.setdefault(buffer, set()).add(k)
    for k, step in enumerate(steps):
        if isinstance(step, Kernel):
            for member in step.members:
                out = member.loops.out
                outside = readers.get(out, set()) - {k}
                if out in kept or outside or out.role != "temporary":
                    step.stored.add(out)
            if _overwrites(step):
                step.stored.update(m.loops.out for m in step.members)


def _overwrites(kernel: Kernel) -> bool:
    """Whether a member stores over what an earlier one reads: then nothing may be computed again in a later pass."""
    read: set[Buffer] = set()
    for member in kernel.members:
        read.update(load.buffer for load in loads_of(member.loops))
        if member.loops.out in read and kernel.reduced:
            return True
    return False


def _reads(step: Step) -> set[Buffer]:
    if isinstance(step, ExternCall):
        found = access(step.extern)
        return set(found.reads | frozenset(step.extern.mutates))
    found_loads: set[Buffer] = set()
    for member in step.members:
        touched = access(member.loops)
        found_loads |= touched.reads
    return found_loads
