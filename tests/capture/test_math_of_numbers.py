"""Functions of `math` of numbers that vary, or that only running tells: Python's own results, in one graph for all."""

import functools
import math

import numpy as np
import pytest
import torch

import pliant
from pliant.symbolic.rules import floats


def of_double(function):
    return lambda v: function(2 * v, v + 1)


FUNCTIONS = {
    **{
        name: getattr(math, name)
        for name in (*(n for n, c in floats.MATH.items() if c.arity == 1), "degrees", "radians")
    },
    **{
        f"{n} with a constant": functools.partial(getattr(math, n), 0.3) for n, c in floats.MATH.items() if c.arity == 2
    },
    **{f"{n} of a number and its double": of_double(getattr(math, n)) for n, c in floats.MATH.items() if c.arity == 2},
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


@pytest.mark.parametrize(
    "function", [math.sin, math.cos, math.tan, lambda v: math.fmod(v, 2), lambda v: math.remainder(v, 3)]
)
def test_infinity_raises_as_in_python(function):
    of_tensor, of_argument = (
        pliant.compile(f) for f in (lambda x: x * function(x.item()), lambda x, v: x * function(v))
    )
    for v in (0.5, 1.5):
        x = torch.tensor(v, dtype=torch.float64)
        assert of_tensor(x).item() == of_argument(x, v).item() == v * function(v)
    with pytest.raises(ValueError, match="math domain error"):
        of_tensor(torch.tensor(math.inf))
    with pytest.raises(ValueError, match="math domain error"):
        of_argument(x, math.inf)


@pytest.mark.parametrize("value", [-math.inf, math.nan, 1e300])
@pytest.mark.parametrize("function", [math.floor, int, round, lambda v: v // 2])
def test_integers_of_what_has_none_are_as_in_python(function, value):
    def of_tensor(x):
        return x * function(x.item())

    def of_argument(x, v):
        return x * function(v)

    one = torch.tensor(1.0, dtype=torch.float64)
    pliant.reset()
    for program, values in (
        (of_tensor, [(one * v,) for v in (1.5, 2.5)]),
        (of_argument, [(one, v) for v in (1.5, 2.5)]),
    ):
        compiled = pliant.compile(program)
        for arguments in values:
            assert compiled(*arguments).item() == program(*arguments).item()
        last = (one * value,) if program is of_tensor else (one, value)
        try:
            expected = program(*last)
        except (OverflowError, ValueError) as error:
            with pytest.raises(type(error), match=str(error)):
                compiled(*last)
        else:
            torch.testing.assert_close(compiled(*last), expected, equal_nan=True)
    assert not pliant.stats()["fallbacks"]


def test_a_number_that_is_infinite_at_first():
    compiled = pliant.compile(lambda x, v: x * v, dynamic=True)
    for v in (math.inf, 2.0):
        assert torch.equal(compiled(torch.ones(3), v), torch.ones(3) * v)
    assert not pliant.stats()["fallbacks"]


@pytest.mark.parametrize(("function", "inside", "outside"), [("fmod", 2.0, 0.0), ("remainder", 2.0, 0.0)])
def test_second_numbers_outside_their_domain(function, inside, outside):
    compiled = pliant.compile(lambda x: x * getattr(math, function)(5.5, x.item()))
    assert compiled(torch.tensor(inside)).item() == inside * getattr(math, function)(5.5, inside)
    with pytest.raises(ValueError, match="math domain error"):
        compiled(torch.tensor(outside))


@pytest.mark.parametrize("value", [3.0, -0.5, 200.0, -2.0])
def test_gamma_of_any_number(value):
    compiled = pliant.compile(lambda x: x * math.gamma(x.item()))
    compiled(torch.tensor(1.5, dtype=torch.float64))
    try:
        expected = value * math.gamma(value)
    except (ValueError, OverflowError) as error:
        with pytest.raises(type(error)):
            compiled(torch.tensor(value, dtype=torch.float64))
    else:
        assert compiled(torch.tensor(value, dtype=torch.float64)).item() == expected


@pytest.mark.parametrize("value", [0.7, 2.5])
def test_branches_on_what_python_alone_computes(value):
    def program(x, v):
        return x * 2 if math.hypot(v, 1.0) > 2 else x * math.gamma(v + 1)

    compiled = pliant.compile(program, dynamic=True)
    for v in (value, 0.9, 3.5, value):
        torch.testing.assert_close(compiled(torch.ones(3), v), program(torch.ones(3), v))


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


@pytest.mark.parametrize("library", [math, np], ids=lambda library: library.__name__)
@pytest.mark.parametrize("name", ["isfinite", "isinf", "isnan"])
def test_whether_numbers_are_finite_is_asked_without_fixing_them(library, name):
    ask = getattr(library, name)

    def guarded(x, v):
        return (x * 3, ask(v)) if ask(v) else (x * v, ask(v * 1e300))

    pliant.reset()
    compiled = pliant.compile(guarded, fullgraph=True)
    for v in (0.5, 1.5, 2.5, math.nan, 1e9, math.inf, -math.inf, 3.5, -0.0):
        found, expected = compiled(torch.ones(2), v), guarded(torch.ones(2), v)
        assert torch.equal(found[0], expected[0]) or math.isnan(v)
        assert found[1:] == expected[1:] and [*map(type, found)] == [*map(type, expected)]
    # For the first value, those that vary, those of which the product is infinite, and each that is not finite.
    assert pliant.stats()["recompiles"] <= 5
