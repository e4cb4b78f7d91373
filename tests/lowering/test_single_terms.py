"""A sum of which one term at most is not zero is that term: nothing is added up."""

import math

import pytest
import torch
import torch.nn.functional as F

import pliant
from lowering.tracing import trace
from pliant.debug import events
from pliant.ir.interpret import run
from pliant.ir.loops import Reduction
from pliant.lowering.lower import lower

PLACES = torch.tensor([0, 3, 6, -1, 7, 2**40])  # of 7; the last three are none of these
VALUES = torch.tensor([1.5, math.nan, -math.inf, 2.0, math.nan, math.inf])


def chosen(places, values):
    here = torch.arange(7) == places[:, None]
    return torch.where(here, values[:, None], torch.zeros(())).sum(1)


def chosen_where_wanted(places, values):
    here = (places > 0)[:, None] & (places[:, None] == torch.arange(7))
    return torch.where(here, values[:, None], torch.zeros(())).sum(1)


def chosen_of_each(places, values):
    """What is chosen differs along the loop."""
    here = torch.arange(7) == places[:, None]
    return torch.where(here, values[:, None] + torch.arange(7), torch.zeros(())).sum(1)


def ones_elsewhere(places, values):
    return torch.where(torch.arange(7) == places[:, None], values[:, None], torch.ones(())).sum(1)


CASES = [(chosen, 0), (chosen_where_wanted, 0), (chosen_of_each, 1), (ones_elsewhere, 1)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function, sums", CASES)
def test_sums_that_are_left(function, sums, dynamic):
    program = lower(trace(function, (PLACES, VALUES), dynamic))
    assert sum(isinstance(c, Reduction) for c in program.computations) == sums


@pytest.mark.parametrize("values", [VALUES, torch.full((6,), -0.0)])
@pytest.mark.parametrize("function, sums", CASES)
def test_values_are_eagers(function, sums, values):
    (found,) = run(lower(trace(function, (PLACES, values))), [PLACES, values])
    wanted = function(PLACES, values)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(found.signbit() & ~found.isnan(), wanted.signbit() & ~wanted.isnan())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("points", [(), (3, 5)])
def test_the_choice_of_a_class_is_not_stored(points, dtype):
    torch.manual_seed(0)
    x, target = torch.randn(9, 33, *points, dtype=dtype), torch.randint(0, 33, (9, *points))
    target.view(-1)[4] = -100

    def step(f, of=x):
        a = of.clone().requires_grad_()
        (grad,) = torch.autograd.grad(f(a, target), a)
        return grad

    with events.collect("loops") as programs:
        found = step(pliant.compile(lambda x, t: F.cross_entropy(x, t)))
    exact = step(F.cross_entropy, x.double())
    error, eager = ((one.double() - exact).abs().max() for one in (found, step(F.cross_entropy)))
    assert error <= max(2 * eager, 1e-6)
    text = programs[-1].fields["text"]
    assert "sum(" not in text
    assert sum("eq(index(" in line for line in text.splitlines()) == 1, text
