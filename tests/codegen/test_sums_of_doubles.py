"""Sums of doubles along rows: several at a time, each of a part of the row, as an addition waits for the one before it."""

import pytest
import torch

import pliant
from pliant.debug import events


def program(x):
    doubled = x * 2
    rows = x.sum(-1), (1 + x / 100).prod(-1), doubled, doubled.sum(-1), (x > 0).any(-1), x.amax(-1)
    return *rows, *torch.var_mean(x, -1, correction=0), x.sum()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("columns", [3, 131, 5000])
def test_values(columns, dynamic):
    pliant.reset()
    x = torch.randn(5, columns, dtype=torch.float64)
    compiled = pliant.compile(program, dynamic=dynamic)
    for given in (x, x[:, : columns - columns // 2].clone()):
        torch.testing.assert_close(compiled(given), program(given), rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("at", [0, 130, 511])
def test_nan_is_the_largest(at):
    x = torch.randn(3, 512, dtype=torch.float64)
    x[1, at] = torch.nan
    got = pliant.compile(lambda x: x.amax(-1), dynamic=False)(x)
    assert got.isnan().tolist() == [False, True, False]


@pytest.mark.parametrize(("columns", "sums"), [(512, 4), (96, 2), (32, 1)])
def test_as_many_sums_as_a_row_is_worth(columns, sums):
    pliant.reset()
    with events.collect("output_code") as found:
        pliant.compile(lambda x: x.sum(-1), dynamic=False)(torch.ones(40, columns, dtype=torch.float64))
    (clause,) = [line for line in found[-1].fields["text"].splitlines() if "reduction(+:" in line]
    assert clause.count("acc") == sums
