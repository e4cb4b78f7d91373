"""Where a run of kernels ends early, so that memory is free again before more is taken.

In:     the steps in order, and how long each buffer lives.
Out:    kernels marked as the beginning of a run.
Holds:  a run is one call: what it needs is allocated before it, and freed behind it. Where that would be more than is ever
        there at once if each kernel were a call, the run is cut, and only there. Backwards are the usual case: kernel by
        kernel, they read what was saved and write a gradient as large.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

from pliant.ir.loops import Buffer
from pliant.schedule.kernel import Kernel, Step, runs
from pliant.schedule.sizes import Sizes

SLACK = 1 << 16  # bytes that a run may hold beyond, which are not worth a call


def end_runs_early(steps: Sequence[Step], lives: Mapping[Buffer, tuple[int, int]], guesses: Iterable[Sizes]) -> None:
    """`lives`: first and last step of each buffer whose memory is the program's to free."""
    for sizes in guesses:
        begun, ended = [0] * (len(steps) + 1), [0] * (len(steps) + 1)
        for buffer, (first, last) in lives.items():
            begun[first] += sizes.bytes(buffer)
            ended[last + 1] += sizes.bytes(buffer)
        live = list(itertools.accumulate(b - e for b, e in zip(begun, ended)))
        limit = max(live) + SLACK
        for run in runs(steps):
            held = live[run.start]
            for k in run[1:]:
                held += begun[k]
                step = steps[k]
                if held > limit and isinstance(step, Kernel):
                    step.apart = True
                    held = live[k]
