"""Run what folds much memory into little as soon as it can, so that what it reads is not kept for it.

In:     the steps in a valid order.
Out:    the same steps; kernels that read much more than they write (the sums that are gradients of biases, of scales)
        come right after the last step that they depend on.
Holds:  the order stays valid: a moved kernel writes temporaries only and is moved neither before a step that writes
        what it reads, nor before one that writes memory of the caller's, nor before one that tells or checks a size.
        Calls of eager operators keep their order.
"""

from __future__ import annotations

from collections.abc import Iterable

from pliant.ir.loops import Buffer, LoopProgram
from pliant.schedule.dependencies import access, defines_symbols
from pliant.schedule.kernel import ExternCall, Step
from pliant.schedule.sizes import Sizes

FOLDS = 4  # times as many bytes read as written


def early_folds(program: LoopProgram, steps: list[Step]) -> list[Step]:
    """The steps in their new order."""
    sizes = Sizes(program)
    place: list[tuple[int, int, int]] = []
    written: dict[Buffer, int] = {}  # the latest place at which a buffer is written
    barrier = -1
    for k, step in enumerate(steps):
        reads, writes = _touched(step)
        moves = not isinstance(step, ExternCall) and _is_own(writes) and FOLDS * sizes.sum(writes) <= sizes.sum(reads)
        major = max([barrier, *[written.get(b, -1) for b in reads | writes]]) if moves else k
        place.append((major, int(moves), k))
        written.update(dict.fromkeys(writes, major))
        if not moves and (not _is_own(writes) or isinstance(step, ExternCall) and defines_symbols(step.extern)):
            barrier = k
    return [steps[k] for _, _, k in sorted(place)]


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
