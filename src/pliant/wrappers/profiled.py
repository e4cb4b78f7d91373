"""The wrapper of a graph while a profiler records: each native call in a range named after what it computes.

In:     the wrapper's source, and the names of the ranges.
Out:    the source with a test in front, which costs a look at a global, and the one that serves while the test holds.
Holds:  both have the same statements on the same lines, so that errors tell the same from either.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

PROFILER, PROFILED, RANGE = "profiler", "profiled", "profiler_range"  # globals of wrappers
_HEAD = "def call(args):\n"
_NATIVE = r"(?m)^( +)(((?:entry|launch)\d+)\(.*)$"


def testing(source: str) -> str:
    """With the test in front: one line more."""
    return source.replace(_HEAD, f"{_HEAD}    if {PROFILER}._is_profiler_enabled: return {PROFILED}(args)\n", 1)


def in_ranges(source: str, names: Mapping[str, str]) -> str:
    """With the ranges: one line more, too."""

    def ranged(match: re.Match[str]) -> str:
        indent, statement, entry = match.groups()
        return f"{indent}with {RANGE}({names.get(entry, entry)!r}): {statement}"

    return re.sub(_NATIVE, ranged, source.replace(_HEAD, f"{_HEAD}    # a profiler records\n", 1))
