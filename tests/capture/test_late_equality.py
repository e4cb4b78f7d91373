"""Sequences of sizes of which some are known only when the graph runs, compared as a whole."""

import pytest
import torch

import pliant
from pliant.debug import events


def differs(rows, x):
    if rows.size() != (x.size(0) - 1, x.size(1)):
        raise ValueError(f"rows of {tuple(rows.size())}")
    return rows * 2


def not_alike(rows, x):
    if not rows.shape == torch.Size((x.size(0) - 1, x.size(1))):  # noqa: SIM201
        raise AssertionError
    return rows * 2


def as_lists(rows, x):
    assert [*rows.shape, 3] == [x.size(0) - 1, x.size(1), 3]
    return rows * 2


def of_two_selections(rows, x):
    other = x[x[:, 0] < 1]
    if rows.shape != other.shape:
        raise ValueError("other rows")
    return rows + other


def beside_a_tensor(rows, x):
    many = (x[:, 0] > 0).sum()
    if list(rows.size()) != [many, x.size(1)]:
        raise ValueError(f"rows of {tuple(rows.size())}")
    return rows * 2


def known_to_differ(rows, x):
    return rows * (2 if rows.shape == (x.size(0) - 1, x.size(1) + 1) or rows.shape == (1, 2, 3) else 3)


def a_value(rows, x):
    return rows * 2, rows.shape == (x.size(0) - 1, x.size(1)), list(rows.shape) != [x.size(0) - 1, x.size(1)]


def outcome(function, x):
    try:
        return str(function(x))
    except (ValueError, AssertionError) as error:
        return str(error)


@pytest.mark.parametrize("program", [differs, not_alike, as_lists, of_two_selections, beside_a_tensor, known_to_differ, a_value])
def test_sizes_that_data_tells_are_one_graph(program):
    def function(x):
        return program(x[x[:, 0] > 0], x)

    pliant.reset()
    compiled = pliant.compile(function, backend="aot_eager", dynamic=True, fullgraph=True)
    fitting = [torch.cat([torch.full((1, 3), -1.0), torch.full((n, 3), 0.5)]) for n in (4, 6)]
    for x in fitting:
        x[-1] = 0.25
        given = x[1:] if program is of_two_selections else x
        assert outcome(compiled, given) == outcome(function, given)
    assert pliant.stats()["graphs"] == 1


@pytest.mark.fallbacks_expected
@pytest.mark.parametrize("program", [differs, not_alike, as_lists, of_two_selections, beside_a_tensor, a_value])
def test_where_they_do_not_fit_it_is_as_in_eager(program):
    def function(x):
        return program(x[x[:, 0] > 0], x)

    compiled = pliant.compile(function, backend="aot_eager", dynamic=True)
    pliant.reset()
    for left_out in (1, 1, 2, 0):
        x = torch.ones(5, 3)
        x[:left_out] = -1
        assert outcome(compiled, x) == outcome(function, x)


def test_a_branch_with_two_sides_breaks_at_it():
    def function(x):
        rows = x[x[:, 0] > 0]
        if rows.shape == (3, 2):
            return rows * 2
        return rows - 1

    compiled = pliant.compile(function, backend="aot_eager")
    pliant.reset()
    with events.collect("graph_break") as seen:
        for first in (1.0, -1.0, 1.0):
            x = torch.tensor([[first, 1], [1, 1], [1, 1]])
            assert torch.equal(compiled(x), function(x))
    assert len(seen) == 1
