"""Where compile time went: a table and a trace for chrome://tracing or Perfetto.

In:     the stage events of `debug.events`.
Out:    `breakdown()` as text, `chrome_trace()` as the trace format's dictionary, `write_chrome_trace(path)`.
Holds:  a stage's own time is its time less that of the stages directly inside it; own times add up to the total.
"""

import json
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from pliant.debug import events
from pliant.records import dataclass


@dataclass(slots=True)
class StageTime:
    """Seconds of one stage, over all its runs."""

    calls: int = 0
    total: float = 0.0
    own: float = 0.0


def stage_times(seen: Iterable[events.Event] | None = None) -> dict[str, StageTime]:
    """Times by path (`compile/lower/fuse`), in order of first end."""
    times: dict[str, StageTime] = defaultdict(StageTime)
    for event in events.events("stage") if seen is None else seen:
        path, seconds = str(event.fields["path"]), cast(float, event.fields["seconds"])
        times[path].calls += 1
        times[path].total += seconds
        times[path].own += seconds
        parent = path.rpartition("/")[0]
        if parent:
            times[parent].own -= seconds
    return dict(times)


def breakdown(seen: Iterable[events.Event] | None = None) -> str:
    """A table of stages as a tree: runs, seconds, own seconds."""
    times = stage_times(seen)
    lines = [f"{'stage':<40}{'runs':>6}{'seconds':>10}{'own':>10}"]
    for path in sorted(times):
        t = times[path]
        name = "  " * path.count("/") + path.rpartition("/")[2]
        lines.append(f"{name:<40}{t.calls:>6}{t.total:>10.4f}{t.own:>10.4f}")
    return "\n".join(lines)


def chrome_trace(seen: Iterable[events.Event] | None = None) -> dict[str, Any]:
    """Complete events ("X") for stages, instants ("i") for everything else; times in microseconds."""
    rows = [_row(event) for event in (events.events() if seen is None else seen)]
    return {"traceEvents": rows, "displayTimeUnit": "ms"}


def _row(event: events.Event) -> dict[str, Any]:
    common = {"pid": os.getpid(), "tid": event.thread, "args": {k: str(v) for k, v in event.fields.items()}}
    if event.kind != "stage":
        return {"name": event.kind, "ph": "i", "s": "t", "ts": event.time * 1e6, **common}
    start, seconds = cast(float, event.fields["start"]), cast(float, event.fields["seconds"])
    return {"name": event.fields["name"], "ph": "X", "ts": start * 1e6, "dur": seconds * 1e6, **common}


def write_chrome_trace(path: str | os.PathLike[str]) -> Path:
    """Write what is recorded so far; open the file in chrome://tracing or ui.perfetto.dev."""
    target = Path(path)
    target.write_text(json.dumps(chrome_trace()))
    return target
