"""docs/pipeline.md shows what the stages really print for its program."""

import re
import textwrap
from pathlib import Path

import pytest

from pliant.debug import events

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "pipeline.md").read_text()
SHOWN = dict(re.findall(r"^```text (\w+)\n(.*?)^```", PAGE, re.M | re.S))
PROGRAM = re.search(r"^```python\n(.*?)^```", PAGE, re.M | re.S)[1]


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """kind of event -> the texts that the page's program prints."""
    file = tmp_path_factory.mktemp("page") / "page.py"
    file.write_text(PROGRAM)
    with events.collect(*events.KINDS) as seen:
        exec(compile(PROGRAM, str(file), "exec"), {"__name__": "page"})
    texts = {kind: [e.fields["text"] for e in seen if e.kind == kind and "text" in e.fields] for kind in events.KINDS}
    return texts | {"wrapper": texts["output_code"]}


@pytest.mark.parametrize("kind", [k for k in SHOWN if k != "guard"])
def test_stage_prints_what_the_page_shows(kind, printed):
    shown = textwrap.dedent(SHOWN[kind]).strip()
    found = "\n\n".join(printed[kind])
    assert shown in found, f"the page shows\n{shown}\nprinted is\n{found}"


def test_guards_are_among_those_shown(printed):
    assert set(SHOWN["guard"].strip().splitlines()) <= set(printed["guard"])
