"""Tables that are filled from one place."""

import ast

import pytest

import architecture
from pliant.capture import autodiff, handlers, opcodes, settings
from pliant.capture.handlers.table import Rows
from pliant.graph import shape_rules
from pliant.tables import Table, joined


def test_a_second_row_under_one_key_is_an_error():
    table: Table[str, int] = Table({"a": 1})
    with pytest.raises(ValueError, match="there is a row for 'a' already: 1, and now 2"):
        table["a"] = 2
    with pytest.raises(ValueError, match="'a'"):
        table |= {"b": 3, "a": 2}
    with pytest.raises(ValueError, match="'b'"):
        joined({"a": 1, "b": 2}, {"b": 2})


def test_a_callable_has_one_row():
    rows = Rows()
    rows.handles(len, max)(lambda t, args, kwargs: None)
    with pytest.raises(ValueError, match="built-in function max"):
        rows.handles(max)(lambda t, args, kwargs: None)


def test_every_module_with_rows_is_listed():
    """Rows reach the tables by the lists of themes alone."""
    listed = {one.__name__ for one in (*handlers.THEMES, *autodiff.THEMES, *opcodes.GROUPS, *shape_rules.FAMILIES, settings)}
    own = ("ROWS = ", "RULES = Rules()")
    texts = {architecture.module_name(f): ast.parse(f.read_text()).body for f in architecture.sources()}
    having = {name for name, body in texts.items() if any(ast.unparse(node).startswith(own) for node in body)}
    assert having == listed
