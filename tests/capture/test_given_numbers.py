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
    "a function of NumPy in Python": lambda v: np.mean([v, 1.0]),
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


def test_a_whole_graph_is_made_for_each_number():
    pliant.reset()
    compiled = pliant.compile(lambda x, v: x * float(np.exp(v)), fullgraph=True)
    for i in range(6):
        torch.testing.assert_close(compiled(torch.ones(2), 0.5 + i), torch.ones(2) * float(np.exp(0.5 + i)))
    assert not pliant.stats()["graph_breaks"]
