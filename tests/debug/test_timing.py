"""Stage times as a table and as a chrome trace."""

import json

import pytest

from pliant.debug import events, timing


def stage_event(path, start, seconds):
    fields = {"name": path.rpartition("/")[2], "path": path, "start": start, "seconds": seconds}
    return events.Event("stage", start + seconds, 1, fields)


SEEN = [
    stage_event("compile/lower", 0.0, 0.25),
    stage_event("compile/lower", 0.25, 0.25),
    stage_event("compile", 0.0, 1.0),
]


def test_own_times_add_up():
    times = timing.stage_times(SEEN)
    assert (times["compile"].total, times["compile"].own) == (1.0, 0.5)
    assert (times["compile/lower"].calls, times["compile/lower"].own) == (2, 0.5)
    assert sum(t.own for t in times.values()) == pytest.approx(1.0)


def test_breakdown_is_a_tree():
    assert timing.breakdown(SEEN).splitlines()[1:] == [
        "compile                                      1    1.0000    0.5000",
        "  lower                                      2    0.5000    0.5000",
    ]


def test_chrome_trace_has_a_bar_per_stage_and_a_mark_per_event(tmp_path):
    rows = timing.chrome_trace([*SEEN, events.Event("graph", 0.5, 1, {"name": "f"})])["traceEvents"]
    assert [(r["ph"], r["name"]) for r in rows] == [("X", "lower"), ("X", "lower"), ("X", "compile"), ("i", "graph")]
    assert (rows[1]["ts"], rows[1]["dur"]) == (0.25e6, 0.25e6)
    path = timing.write_chrome_trace(tmp_path / "trace.json")
    assert "traceEvents" in json.loads(path.read_text())
