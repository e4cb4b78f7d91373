"""Graphs as rows, and what eager has allocated."""

import torch

import pliant
from pliant.debug import events


def _events(fn, *args):
    pliant.reset()
    with events.collect("nodes", "eager_memory") as seen:
        result = pliant.compile(fn)(*args)
        if result.requires_grad:
            result.sum().backward()
    return seen


def test_rows_name_what_they_read_and_their_lines():
    def f(x):
        y = x.sin()
        return y + 1

    captured, aten = (e.fields["rows"] for e in _events(f, torch.ones(3)) if e.kind == "nodes")
    first = f.__code__.co_firstlineno
    assert [(row.name, row.kind, row.reads) for row in captured[:3]] == [("x", "input", ()), ("sin", "call", ("x",)), ("add", "call", ("sin",))]
    assert [row.where.line - first for row in captured if row.where] == [1, 2]
    assert [(row.of, row.where.line - first, row.is_derivative) for row in aten if row.kind == "call"] == [("sin", 1, False), ("add", 2, False)]


def test_derivatives_name_the_call_that_they_are_of():
    seen = _events(lambda x: torch.tanh(x).exp(), torch.ones(3, requires_grad=True))
    *_, backward = (e.fields["rows"] for e in seen if e.kind == "nodes")
    derived = [row.of for row in backward if row.is_derivative]
    assert derived and set(derived) == {"tanh", "exp"} and derived.index("exp") < derived.index("tanh")


def test_views_are_told():
    *_, aten = (e.fields["rows"] for e in _events(lambda x: (x + 1).view(3, 2).t() * 2, torch.ones(6)) if e.kind == "nodes")
    assert [(row.name, row.is_view) for row in aten if row.kind == "call"] == [("add", False), ("view", True), ("t", True), ("mul", False)]


def test_eager_holds_each_result_until_its_last_use():
    def f(x):  # 400 bytes each
        a = x + 1
        b = a * 2
        return b.view(10, 10) + b.sum()

    (event,) = (e for e in _events(f, torch.ones(100)) if e.kind == "eager_memory")
    allocated = list(map(int, map(str, event.fields["allocated"])))
    # add, mul while `a` is there, a view, a sum of 4 bytes, the result while `b` and the sum are there
    assert allocated == [400, 800, 400, 404, 804] and event.fields["forward"] == 5
