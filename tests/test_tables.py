"""Tables that are filled from one place."""

import ast

import pytest

import architecture
from pliant.capture import autodiff, handlers, opcodes
from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.handlers.table import Rows
from pliant.capture.outside import settings
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


def test_rules_have_the_parameters_of_what_they_handle():
    rows = Rows()

    @rows.takes(sum)
    def total(t, items, /, start=0):
        return t, items, start

    assert rows.callables[sum]("t", ([1],), {"start": 2}) == ("t", [1], 2)
    with pytest.raises(GraphBreak, match="bad-call"):
        rows.callables[sum]("t", ([1],), {"from_": 2})


def test_an_error_inside_a_rule_is_no_misfit():
    rows = Rows()

    @rows.takes(len)
    def length(t, obj):
        raise TypeError("inside")

    with pytest.raises(TypeError, match="inside"):
        rows.callables[len]("t", ([],), {})


def test_refusals_name_the_function():
    rows = Rows()
    rows.refuses((input, open), "side-effect-call", "a call of {}", "do without")
    with pytest.raises(GraphBreak, match="a call of input") as found:
        rows.callables[input](None, (), {})
    assert found.value.do == "do without"


def test_one_rule_for_several_callables_gets_each():
    rows = Rows()
    rows.each((min, max), lambda function, more, t, args, kwargs: (function, more, args), 3)
    assert rows.callables[max](None, (1, 2), {}) == (max, 3, (1, 2))


def test_every_module_with_rows_is_listed():
    """Rows reach the tables by the lists of themes alone."""
    listed = {one.__name__ for one in (*handlers.THEMES, *autodiff.THEMES, *opcodes.GROUPS, *shape_rules.FAMILIES, settings)}
    own = ("ROWS = ", "RULES = Rules()")
    texts = {architecture.module_name(f): ast.parse(f.read_text()).body for f in architecture.sources()}
    having = {name for name, body in texts.items() if any(ast.unparse(node).startswith(own) for node in body)}
    assert having == listed
