"""The event record: counts, history, stages, log channels, subscribers."""

import ast
import os
import subprocess
import sys
import threading
import warnings

import pytest
import torch

import architecture
import pliant
from pliant import config
from pliant.debug import events
from pliant.errors import ConfigError, PliantWarning


@pytest.fixture(autouse=True)
def fresh_record():
    events.reset()
    yield
    events.set_logs("")
    events.reset()


def test_levels_are_set_of_channels_that_are_logged_alone():
    """Setting one walks all loggers of the process."""
    code = "import logging; from pliant.debug import events; print({n for n in logging.root.manager.loggerDict if 'pliant.' in n})"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PLIANT_LOGS")}
    assert subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True).stdout == "set()\n"


def test_stats_count_kinds_and_reasons():
    events.record("graph", name="f", nodes=3)
    events.record("graph_break", reason="side-effect-call")
    events.record("graph_break", reason="side-effect-call")
    events.record("graph_break", reason="data-dependent")
    events.record("recompile", name="f", why="x.size(0): 3 -> 4")
    events.record("fallback", name="g", why="no C compiler")
    seen = events.stats()
    assert (seen["graphs"], seen["graph_breaks"], seen["recompiles"], seen["fallbacks"]) == (1, 3, 1, 1)
    assert seen["break_reasons"] == {"side-effect-call": 2, "data-dependent": 1}
    assert seen["recompile_reasons"] == {"x.size(0): 3 -> 4": 1}
    events.reset()
    assert events.stats()["graphs"] == 0


def branches(x, w):
    y = (x @ w).sin()
    if y.sum() > 0:
        y = y + torch.linalg.det(x.T @ x)
    return y.exp().sum()


@pytest.mark.fallbacks_expected  # it records all events, this one too
def test_every_channel_is_recorded_by_a_program(tmp_path):
    with config.patch(cache_dir=str(tmp_path)), events.collect() as heard, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = pliant.compile(branches)
        for size in (3, 4):
            x = torch.randn(size, 3, requires_grad=True)
            run(x, torch.randn(3, 5)).backward()
        with config.patch(compiler="/nowhere/cc"):
            pliant.compile(lambda x: x.cos() * 3.25)(torch.ones(3))
    recorded = {events.KINDS[event.kind].channel for event in heard}
    assert recorded == set(events.CHANNELS) - {"cuda_graphs", "background", "patterns"}  # which need a GPU, or are asked for
    assert all(
        "?" not in event.line.partition("\n")[0] for event in heard if event.kind in ("build", "schedule", "extern")
    )


def test_every_kind_is_recorded_somewhere():
    calls = [node for path in architecture.SOURCE.rglob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    calls = [c for c in calls if isinstance(c, ast.Call) and ast.unparse(c.func).rpartition(".")[2] == "record"]
    assert {c.args[0].value for c in calls if c.args and isinstance(c.args[0], ast.Constant)} == set(events.KINDS)


def test_history_is_bounded_but_counts_are_not():
    total = events.HISTORY + events.PENDING + 5
    for i in range(total):
        events.record("guard", text=i)
    kept = events.events("guard")
    assert len(kept) == events.HISTORY
    assert kept[-1].fields["text"] == total - 1


def test_threads_lose_no_event():
    def work():
        for _ in range(5_000):
            events.record("graph", name="f")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert events.stats()["graphs"] == 20_000


def test_stages_nest_and_a_stage_in_itself_counts_once():
    with events.stage("lower", graph=1), events.stage("fuse"), events.stage("lower"):
        pass
    seen = events.stats()
    assert seen["calls"] == {"lower": 1, "fuse": 1}
    assert seen["seconds"]["lower"] >= seen["seconds"]["fuse"] >= 0
    assert [e.fields["path"] for e in events.events("stage")] == ["lower/fuse/lower", "lower/fuse", "lower"]
    assert events.events("stage")[-1].fields["graph"] == 1


def test_stage_ends_when_its_block_raises():
    with pytest.raises(ValueError), events.stage("lower"):
        raise ValueError
    with events.stage("fuse"):
        pass
    failed, after = events.events("stage")
    assert failed.fields["error"] == "ValueError" and after.fields["path"] == "fuse"


def test_channels_select_what_is_logged(capsys):
    events.set_logs("graph_breaks,+recompiles")
    events.record("graph_break", reason="call", where="a.py:3 in f", why="w", do="d")
    events.record("recompile", name="f", why="size", where="a.py:9 in g")
    events.record("guard", text="hidden")
    assert capsys.readouterr().err == (
        "[pliant:graph_breaks] graph break [call] a.py:3 in f\n"
        "  why  w\n"
        "  do   d\n"
        "[pliant:recompiles] recompiling f: size\n"
        "  a.py:9 in g\n"
        "  {'name': 'f', 'why': 'size', 'where': 'a.py:9 in g'}\n"
    )


@pytest.mark.fallbacks_expected  # an event is recorded by hand
def test_nothing_is_logged_by_default(capsys):
    events.record("fallback", name="f", why="w")
    assert capsys.readouterr().err == ""


def test_wants_tells_whether_a_text_is_worth_building():
    assert not events.wants("output_code")
    events.set_logs("output_code")
    assert events.wants("output_code")
    assert not events.wants("graph_code")
    with events.collect("graph_code"):
        assert events.wants("graph_code")


def test_unknown_channel_suggests_the_near_miss():
    with pytest.raises(ConfigError, match="did you mean `graph_breaks`"):
        events.set_logs("graph_brakes")


def test_collect_hears_only_its_kinds_and_ends():
    with events.collect("graph") as heard:
        events.record("graph", name="f")
        events.record("guard", text="t")
    events.record("graph", name="g")
    assert [e.fields["name"] for e in heard] == ["f"]


def test_a_failing_subscriber_warns_and_harms_nobody():
    def broken(event):
        raise RuntimeError("no")

    end = events.subscribe(broken)
    try:
        with pytest.warns(PliantWarning, match="subscriber failed"):
            events.record("graph", name="f")
        events.record("graph", name="f")  # the second time is silent
    finally:
        end()
    assert events.stats()["graphs"] == 2


def test_warn_once():
    with pytest.warns(PliantWarning, match="hello"):
        assert events.warn_once("key", "hello")
    assert not events.warn_once("key", "hello")


def test_every_kind_prints_with_missing_fields():
    for kind in events.KINDS:
        assert events.Event(kind, 0.0, 0, {}).line.count("{") == 0
