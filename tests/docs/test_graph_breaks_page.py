"""docs/graph-breaks.md has one section for each kind of break, no more, saying what the error says."""

import re
from pathlib import Path

import pytest

graph_breaks = pytest.importorskip("pliant.capture.graph_breaks")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "graph-breaks.md"


def sections():
    return dict(re.findall(r"^## (\S+)\n\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S))


def test_one_section_for_each_kind():
    assert list(sections()) == list(graph_breaks.KINDS)


def test_each_section_says_why_and_what_to_do():
    for name, text in sections().items():
        kind = graph_breaks.KINDS[name]
        flat = " ".join(text.split())
        assert f"**why** {kind.why}" in flat and f"**do** {kind.do}" in flat, name
