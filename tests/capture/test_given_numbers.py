"""Numbers that vary, given to functions that take them only as they are: a few graphs, then one break for all."""

import math
import statistics

import numpy as np
import pytest
import torch

import pliant

FUNCTIONS = {
    "a ufunc": np.exp,
    "a ufunc of what is computed": lambda v: 0.5 * (1 + np.cos(np.pi * v)),
    "a function of NumPy in Python": lambda v: np.median([v, 1.0, 2.0]),
    "a NumPy scalar": lambda v: np.tanh(np.float64(v)),
    "math": lambda v: math.isclose(v, 1.0),
    "statistics": lambda v: statistics.mean([v, 1.0]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_many_numbers_end_in_one_break(name):
    function = FUNCTIONS[name]

    def scaled(x, v):
        factor = function(v)
        return x * float(factor), factor

    pliant.reset()
    compiled = pliant.compile(scaled)
    graphs = []
    for i in range(16):
        x, v = torch.ones(3), 0.25 + i / 8
        (found, factor), (expected, same) = compiled(x, v), scaled(x, v)
        assert factor == same and type(factor) is type(same)
        torch.testing.assert_close(found, expected)
        graphs.append(pliant.stats()["graphs"])
    stats = pliant.stats()
    assert set(stats["break_reasons"]) == {"varying-number"}
    assert not stats["recompile_limits"] and not stats["fallbacks"]
    assert graphs[9] == graphs[-1]


def of_list(function):
    return lambda x, values: (x * 2, function(values))


@pytest.mark.parametrize("function", [statistics.mean, np.median])
def test_numbers_of_a_list_from_outside_end_in_one_break(function):
    pliant.reset()
    program = of_list(function)
    compiled = pliant.compile(program)
    for i in range(10):
        x, values = torch.ones(3), [i / 8, 2.0 - i / 16, 1.0]
        assert str(compiled(x, values)) == str(program(x, values))
    stats = pliant.stats()
    assert set(stats["break_reasons"]) == {"varying-number"}
    assert not stats["recompile_limits"] and not stats["fallbacks"]


@pytest.mark.parametrize("function", [np.mean, np.sum, np.std, np.max, lambda values: np.mean([v / 2 for v in values])])
def test_floats_of_a_list_are_for_the_graph(function):
    """What a program logs is no reason to make a graph for each value."""
    pliant.reset()
    program = of_list(function)
    compiled = pliant.compile(program)
    for i in range(6):
        x, values = torch.ones(3), [i / 8, 2.0 - i / 16, 1.0]
        (found, number), (expected, same) = compiled(x, values), program(x, values)
        assert type(number) is type(same)
        torch.testing.assert_close((found, number), (expected, same))
    stats = pliant.stats()
    assert stats["graphs"] == 2 and not stats["graph_breaks"]


def test_a_whole_graph_is_made_for_each_number():
    pliant.reset()
    compiled = pliant.compile(lambda x, v: x * float(np.exp(v)), fullgraph=True)
    for i in range(6):
        torch.testing.assert_close(compiled(torch.ones(2), 0.5 + i), torch.ones(2) * float(np.exp(0.5 + i)))
    assert not pliant.stats()["graph_breaks"]
