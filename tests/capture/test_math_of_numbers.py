"""Functions of `math` of numbers that vary, or that only running tells: Python's own results, in one graph for all."""

import math

import pytest
import torch

import pliant
from pliant.symbolic.rules import floats

FUNCTIONS = {
    **{name: getattr(math, name) for name in (*floats.MATH, "degrees", "radians")},
    "log to a base": lambda v: math.log(v, 3.0),
    "round to decimals": lambda v: round(v, 2),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_numbers_of_arguments_and_of_tensors(name):
    function = FUNCTIONS[name]
    values = (1.25, 1.755, 2.5) if name == "acosh" else (0.25, 0.755, 0.5)

    def of_argument(x, v):
        return x * function(v), function(v)

    def of_tensor(x):
        return x * function(x.item()), function(x.item())

    pliant.reset()
    first, second = (pliant.compile(program, fullgraph=True) for program in (of_argument, of_tensor))
    for v in values:
        x = torch.tensor(v, dtype=torch.float64)
        for found, expected in ((first(x, v), of_argument(x, v)), (second(x), of_tensor(x))):
            assert found[0].item() == expected[0].item() and found[1] == expected[1]
    assert pliant.stats()["graphs"] == 3 and pliant.stats()["fallbacks"] == 0


@pytest.mark.parametrize("name", ["log10", "log1p", "acosh", "atanh", "log to a base"])
def test_outside_their_domain_they_raise_as_in_python(name):
    function = FUNCTIONS[name]
    compiled = pliant.compile(lambda x: x * function(x.item()))
    inside, outside = (torch.tensor(v, dtype=torch.float64) for v in ((1.5, 0.5) if name == "acosh" else (0.5, -1.5)))
    assert compiled(inside).item() == inside.item() * function(inside.item())
    with pytest.raises(ValueError, match="math domain error|expected"):
        compiled(outside)


@pytest.mark.parametrize("name", ["log10", "degrees", "radians", "round to decimals"])
def test_what_is_no_number_is_refused_as_in_python(name):
    compiled = pliant.compile(lambda x, value: x * FUNCTIONS[name](value))
    with pytest.raises(TypeError):
        compiled(torch.ones(2), "3")
