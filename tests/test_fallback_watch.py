"""The watch over tests sees what runs eagerly, also where statistics are reset, unless the test looks itself."""

import pytest

import pliant
from fallback_watch import watching
from pliant.debug import events


def fall_back(why):
    events.record("fallback", name="f", why=why, reason="test", where=None)


def test_what_runs_eagerly_is_seen_whatever_is_reset():
    with watching() as watch:
        fall_back("one")
        pliant.reset()
        fall_back("two")
        fall_back("two")
        events.record("recompile_limit", name="f", limit=8, why="three", where=None)
        pliant.stats()
    assert watch.unasked() == {"one": 1, "two": 2, "three": 1}


LOOKS = {
    "fallbacks": lambda: pliant.stats()["fallbacks"],
    "fallback_reasons": lambda: pliant.stats()["fallback_reasons"],
    "events": lambda: events.events("fallback"),
    "collected": lambda: events.collect("fallback", "skip"),
}


@pytest.mark.parametrize("look", LOOKS)
def test_who_looks_is_left_alone(look):
    with watching() as watch:
        fall_back("one")
        LOOKS[look]()
    assert watch.unasked() == {}


def test_who_looks_at_something_else_is_not():
    with watching() as watch:
        fall_back("one")
        assert pliant.stats()["graphs"] >= 0 and events.events("graph") is not None
    assert watch.unasked() == {"one": 1}
