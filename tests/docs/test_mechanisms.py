"""The table in docs/pipeline.md of what decides about a call names what is there, in the order in which it is asked."""

import inspect
import re

import pytest

import architecture
from pliant.capture.protocols import calls

PAGE = (architecture.SOURCE.parent / "docs" / "pipeline.md").read_text()
ROWS = re.findall(r"^\| \d+ \|.*\| `([\w/.]+)`: `(\w+)` \|$", PAGE, re.M)


@pytest.mark.parametrize(("file", "name"), ROWS)
def test_what_the_table_names_is_there(file, name):
    text = (architecture.SOURCE / "pliant" / file).read_text()
    assert re.search(rf"^(?:def {name}\(|{name}\b.*=)", text, re.M), f"{file} has no {name}"


def test_the_table_has_every_row():
    assert len(ROWS) == len(re.findall(r"^\| \d+ \|", PAGE, re.M)) > 10


@pytest.mark.parametrize(
    ("function", "asked"),
    [
        (calls.call, ["marked.resolve(", "_TAKING", "find_row(", "marked.call_marked(", "_KINDS"]),
        (calls._call_function, ["is_torch_leaf(", "find_special(", "fold(", "call_numpy(", "repeated.call("]),
    ],
)
def test_they_are_asked_in_this_order(function, asked):
    text = inspect.getsource(function)
    places = [text.index(one) for one in asked]
    assert places == sorted(places)
