"""Regular expressions of the package do what those of `re` do, and are compiled when they are first used."""

import re

from pliant import regular


def test_is_compiled_once_and_when_it_is_used(monkeypatch):
    made = []
    monkeypatch.setattr(regular.re, "compile", lambda text, flags=0, make=re.compile: made.append(text) or make(text, flags))
    one = regular.pattern(r"^a(b+)", re.M)
    assert not made
    assert one.findall("ab\nabb") == ["b", "bb"] and one.sub("c", "abb") == "c"
    assert [one.match("ab")[1], one.match("abb")[1]] == ["b", "bb"]
    assert made == [r"^a(b+)"] * 3  # once a method
    assert one.pattern == r"^a(b+)" and one.flags & re.M
