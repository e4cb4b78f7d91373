"""Small temporaries of one run of kernels: they lie on the stack of the native entry, where making a tensor of each
would take longer than the kernels.

In:     the steps in order, what would be allocated before and freed behind each.
Out:    `take_scratch`: buffer -> offset in the entry's scratch memory; taken out of what is allocated and freed.
Holds:  such a buffer is small, of known size, and nothing outside its run sees it; two share memory only if one is dead.
"""

from __future__ import annotations

from pliant.ir.loops import Buffer
from pliant.schedule.kernel import Kernel, Step, runs
from pliant.targets.target import Target

ALIGN = 64


def take_scratch(steps: list[Step], allocate: list[list[Buffer]], free: list[list[Buffer]]) -> dict[Buffer, int]:
    """Offsets of the buffers that need no allocation."""
    found: dict[Buffer, int] = {}
    for run in runs(steps):
        first = steps[run.start]
        if not isinstance(first, Kernel):
            continue
        target = first.target
        ending = {b for k in run for b in free[k]}
        slots: dict[int, list[int]] = {}  # size -> offsets that are free again
        end = 0
        for k in run:
            for b in allocate[k]:
                size = _size(b, target)
                if b not in ending or size is None:
                    continue
                if slots.get(size):
                    found[b] = slots[size].pop()
                elif end + size <= target.scratch_bytes:
                    found[b], end = end, end + size
            for b in free[k]:
                if b in found:
                    slots.setdefault(_size(b, target) or 0, []).append(found[b])
            allocate[k] = [b for b in allocate[k] if b not in found]
            free[k] = [b for b in free[k] if b not in found]
    return found


def _size(b: Buffer, target: Target) -> int | None:
    """Bytes, rounded up; None if that is not known or too much."""
    last = 0
    for extent, stride in zip(b.shape, b.strides):
        many, step = extent.as_int(), stride.as_int()
        if many is None or step is None:
            return None
        last += max(many - 1, 0) * step
    size = (last + 1) * b.dtype.itemsize
    return -(-size // ALIGN) * ALIGN if size <= target.scratch_each else None
