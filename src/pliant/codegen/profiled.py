"""The wrapper of a graph while a profiler records: each native call in a range named after what it computes.

In:     the wrapper's source, and for each entry its kernels.
Out:    the source with a test in front, which costs a look at a global, and the one that serves while the test holds.
Holds:  both have the same statements on the same lines, so that errors tell the same from either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pliant.codegen.native import Entry
from pliant.schedule.kernel import Kernel

PROFILER, PROFILED, RANGE = "profiler", "profiled", "profiler_range"  # globals of wrappers
_HEAD = "def call(args):\n"
_NATIVE = re.compile(r"^( +)(((?:entry|launch)\d+)\(.*)$", re.M)
_MOST = 120  # characters of a range's name


def range_names(name: str, entries: Sequence[Entry], runs: Sequence[Sequence[Kernel]]) -> dict[str, str]:
    """entry -> the name of its range: `pliant::step sin+add`."""
    return {entry.name: f"pliant::{name} {_operators(run)}"[:_MOST] for entry, run in zip(entries, runs, strict=True)}


def _operators(kernels: Sequence[Kernel]) -> str:
    origins = dict.fromkeys(m.loops.origin for kernel in kernels for m in kernel.members if m.loops.origin)
    return "+".join(origin.partition(" ")[0].removeprefix("aten.").partition(".")[0] for origin in origins)


def testing(source: str) -> str:
    """With the test in front: one line more."""
    return source.replace(_HEAD, f"{_HEAD}    if {PROFILER}._is_profiler_enabled: return {PROFILED}(args)\n", 1)


def in_ranges(source: str, names: Mapping[str, str]) -> str:
    """With the ranges: one line more, too."""

    def ranged(match: re.Match[str]) -> str:
        indent, statement, entry = match.groups()
        return f"{indent}with {RANGE}({names.get(entry, entry)!r}): {statement}"

    return _NATIVE.sub(ranged, source.replace(_HEAD, f"{_HEAD}    # a profiler records\n", 1))
