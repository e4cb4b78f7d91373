"""A break inside a library names its line, and the place where the program called it."""

import importlib.util

import pytest
import torch

import pliant
from pliant.errors import GraphBreakError


@pytest.fixture
def library(tmp_path):
    """An installed module whose functions break."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    path = folder / "library_that_breaks.py"
    path.write_text(
        "import pliant\n\n\ndef inner(x):\n    pliant.graph_break()\n    return x + 1\n\n\ndef outer(x):\n    return inner(x) * 2\n"
    )
    spec = importlib.util.spec_from_file_location("library_that_breaks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_programs_line_is_named_too(library):
    def step(x):
        y = x.sin()
        return library.outer(y)  # the program's call

    with pytest.raises(GraphBreakError) as caught:
        pliant.compile(step, fullgraph=True)(torch.ones(2))
    text = str(caught.value)
    assert "library_that_breaks.py:5 in inner    pliant.graph_break()" in text
    assert "called from test_library_breaks.py:" in text and "# the program's call" in text


def test_so_is_the_call_of_a_function_that_is_the_librarys(library):
    with pytest.raises(GraphBreakError) as caught:
        pliant.compile(library.outer, fullgraph=True)(torch.ones(2))  # compiled here
    assert "library_that_breaks.py:5 in inner" in str(caught.value) and "# compiled here" in str(caught.value)


def test_a_break_in_the_program_is_one_line():
    def step(x):
        pliant.graph_break()
        return x + 1

    with pytest.raises(GraphBreakError) as caught:
        pliant.compile(step, fullgraph=True)(torch.ones(2))
    assert "called from" not in str(caught.value)
