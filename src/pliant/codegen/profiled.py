"""What a profiler calls the native calls of a graph's wrapper.

In:     for each entry its kernels.
Out:    the names of their ranges; `wrappers.profiled` enters these.
"""

from __future__ import annotations

from collections.abc import Sequence

from pliant.codegen.native import Entry
from pliant.schedule.kernel import Kernel

_MOST = 120  # characters of a range's name


def range_names(name: str, entries: Sequence[Entry], runs: Sequence[Sequence[Kernel]]) -> dict[str, str]:
    """entry -> the name of its range: `pliant::step sin+add`."""
    return {entry.name: f"pliant::{name} {_operators(run)}"[:_MOST] for entry, run in zip(entries, runs, strict=True)}


def _operators(kernels: Sequence[Kernel]) -> str:
    origins = dict.fromkeys(m.loops.origin.text for kernel in kernels for m in kernel.members if m.loops.origin.text)
    return "+".join(origin.partition(" ")[0].removeprefix("aten.").partition(".")[0] for origin in origins)
