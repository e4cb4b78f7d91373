"""Run what frees memory before what takes it.

In:     the steps in a valid order.
Out:    the same steps; kernels that read much more than they write (the sums that are gradients of biases, of scales)
        come right after the last step that they depend on, so that what they read is not kept for them (or, where another
        kernel reads it too, right before that one, so that it comes from memory once); so do kernels
        that make a result of what nothing else reads (a product's cast), where the peak of memory is lower for it; of
        two neighbouring products that which needs less comes first (the gradient of the weight: the activation ends
        there).
Holds:  the order stays valid: a moved kernel writes temporaries only and is moved neither before a step that writes
        what it reads, nor before one that writes memory of the caller's, nor before one that tells or checks a size.
        Calls of eager operators other than products keep their order.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterable, Sequence

import torch

from pliant.ir.loops import Buffer, LoopProgram, View
from pliant.schedule.dependencies import access, defines_symbols
from pliant.schedule.kernel import ExternCall, Step, runs
from pliant.schedule.sizes import Sizes, all_guesses

FOLDS = 4  # times as many bytes read as written


def early_kernels(program: LoopProgram, steps: list[Step]) -> list[Step]:
    """The steps in their new order."""
    guesses = all_guesses(program)
    results = {v.buffer for v in program.outputs if isinstance(v, View)}
    last = {b: k for k, step in enumerate(steps) for b in _touched(step)[0]}
    folds = [_folds(step, guesses) for step in steps]
    ends = [_ends(step, k, last, results) for k, step in enumerate(steps)]
    beside = _beside_readers(steps, folds, guesses)
    found = _moved_up(steps, folds, beside)
    if not any(ends):
        return found
    earlier = _moved_up(steps, [one or other for one, other in zip(folds, ends)], beside)
    lower = all(peak(program, earlier, sizes) < peak(program, found, sizes) for sizes in guesses)
    return earlier if lower else found


def _folds(step: Step, guesses: list[Sizes]) -> bool:
    """Whether it reads much more than it writes."""
    reads, writes = _touched(step)
    return any(FOLDS * sizes.sum(writes) <= sizes.sum(reads) for sizes in guesses)


def _ends(step: Step, k: int, last: dict[Buffer, int], results: set[Buffer]) -> bool:
    """Whether it only makes results, of something that ends there."""
    reads, writes = _touched(step)
    return writes <= results and any(last[b] == k and _is_own((b,)) for b in reads - results)


def _beside_readers(steps: list[Step], folds: list[bool], guesses: list[Sizes]) -> dict[int, int]:
    """By their places, folds that end no buffer by coming early, since another kernel reads the same: the place of the last
    one. Right before it, what both read may come from memory once."""
    touched = [_touched(step) for step in steps]
    between = _Between(touched)
    readers: dict[Buffer, list[int]] = {}
    for k, (step, (reads, _)) in enumerate(zip(steps, touched, strict=True)):
        for b in reads if not isinstance(step, ExternCall) and not folds[k] else ():
            readers.setdefault(b, []).append(k)
    found: dict[int, int] = {}
    for k, (reads, writes) in enumerate(touched):
        if not folds[k] or isinstance(steps[k], ExternCall):
            continue
        for j in sorted({j for b in reads for j in readers.get(b, ())}, reverse=True):
            alone = reads - touched[j][0]
            if all(FOLDS * sizes.sum(writes) > sizes.sum(alone) for sizes in guesses):
                if between.may_wait(k, j):
                    found[k] = j
                break
    return found


class _Between:
    """What lies between two steps: where buffers are read and written, and where memory that is not the program's own is."""

    def __init__(self, touched: list[tuple[set[Buffer], set[Buffer]]]) -> None:
        self.touched = touched
        self.read: dict[Buffer, list[int]] = {}
        self.written: dict[Buffer, list[int]] = {}
        self.foreign: list[int] = []
        for k, (reads, writes) in enumerate(touched):
            for b in reads:
                self.read.setdefault(b, []).append(k)
            for b in writes:
                self.written.setdefault(b, []).append(k)
            if not _is_own(writes):
                self.foreign.append(k)

    def may_wait(self, k: int, j: int) -> bool:
        """Whether nothing between a kernel and the one that it is to come right before, nor that one, is in its way."""
        reads, writes = self.touched[k]
        start, stop = (k + 1, j + 1) if k < j else (j, k)
        if not _is_own(writes) or _any_within(self.foreign, start, stop):
            return False
        if any(_any_within(self.written.get(b, ()), start, stop) for b in reads | writes):
            return False
        return not any(_any_within(self.read.get(b, ()), start, stop) for b in writes)


def _any_within(places: Sequence[int], start: int, stop: int) -> bool:
    """Whether one of these places, which ascend, is within a range."""
    at = bisect.bisect_left(places, start)
    return at < len(places) and places[at] < stop


def _moved_up(steps: list[Step], moving: list[bool], beside: dict[int, int]) -> list[Step]:
    """The steps, kernels that are `moving` and may be moved right after the last step that they depend on, or right before
    the one that they are to be `beside`."""
    place: list[tuple[int, int, int]] = []
    written: dict[Buffer, int] = {}  # the latest place at which a buffer is written
    barrier = -1
    for k, step in enumerate(steps):
        reads, writes = _touched(step)
        moves = moving[k] and not isinstance(step, ExternCall) and _is_own(writes)
        major = max([barrier, *[written.get(b, -1) for b in reads | writes]]) if moves else k
        near = beside.get(k)
        if moves and near is not None and major < near:
            major = near
            place.append((major, -1, k))
        else:
            place.append((major, int(moves), k))
        written.update(dict.fromkeys(writes, major))
        if not moves and (not _is_own(writes) or isinstance(step, ExternCall) and defines_symbols(step.extern)):
            barrier = k
    return [steps[k] for _, _, k in sorted(place)]


def peak(program: LoopProgram, steps: list[Step], sizes: Sizes) -> int:
    """The most bytes in use at once: a run of kernels has all its buffers from its start to its end. What only one kernel
    sees is in registers."""
    spans: dict[Buffer, tuple[int, int]] = {}
    inside: dict[Buffer, Step | None] = {}  # the kernel that alone touches it
    count = 0
    for number, run in enumerate(runs(steps)):
        count = number + 1
        for step in (steps[k] for k in run):
            reads, writes = _touched(step)
            for b in reads | writes:
                spans[b] = (spans.get(b, (number, number))[0], number)
                inside[b] = step if inside.get(b, step) is step and not isinstance(step, ExternCall) else None
    stay = {v.buffer for v in program.outputs if isinstance(v, View)}
    held = {program.inputs[k] for k in program.held}
    change = [0] * (count + 1)
    for b, (start, end) in spans.items():
        if b in held or (inside[b] is not None and b not in stay and b.role == "temporary"):
            continue
        size = sizes.bytes(b)
        change[0 if b.role == "input" else start] += size
        change[count if b in stay else end + 1] -= size
    return max(itertools.accumulate(change), default=0)


_aten = torch.ops.aten
_PRODUCTS = (_aten.mm.out, _aten.bmm.out, _aten.addmm.out, _aten.baddbmm.out)


def products_in_turn(program: LoopProgram, steps: list[Step]) -> list[Step]:
    """The steps with neighbouring products in the order in which they need less memory."""
    sizes, found = Sizes(program), list(steps)
    stay = {v.buffer for v in program.outputs if isinstance(v, View)} | {program.inputs[i] for i in program.held}
    last = {b: k for k, step in enumerate(found) for b in _touched(step)[0]}
    for k, (one, other) in enumerate(itertools.pairwise(steps)):
        one = found[k]
        if not (_is_product(one) and _is_product(other)):
            continue
        (reads, writes), (other_reads, other_writes) = _touched(one), _touched(other)
        if writes & other_reads or writes & other_writes or reads & other_writes:
            continue
        ends, other_ends = [
            sizes.sum(b for b in own - stay if last[b] in (k, k + 1))
            for own in (reads - other_reads, other_reads - reads)
        ]
        taken, other_taken = sizes.sum(writes), sizes.sum(other_writes)
        if max(other_taken, other_taken - other_ends + taken) < max(taken, taken - ends + other_taken):
            found[k], found[k + 1] = other, one
            last |= {b: k + 1 for b in reads if last[b] == k} | {b: k for b in other_reads - reads if last[b] == k + 1}
    return found


def _is_product(step: Step) -> bool:
    return isinstance(step, ExternCall) and step.extern.out_variant in _PRODUCTS


def _touched(step: Step) -> tuple[set[Buffer], set[Buffer]]:
    """Buffers read, unless the step itself writes them, and buffers written."""
    parts = [step.extern] if isinstance(step, ExternCall) else [m.loops for m in step.members]
    reads: set[Buffer] = set()
    writes: set[Buffer] = set()
    for part in parts:
        touched = access(part)
        reads |= touched.reads
        writes |= touched.writes
    return reads if isinstance(step, ExternCall) else reads - writes, writes


def _is_own(writes: Iterable[Buffer]) -> bool:
    return all(b.role in ("temporary", "extern") for b in writes)
