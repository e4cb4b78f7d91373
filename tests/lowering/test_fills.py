"""`fill` with a tensor of one element is a loop, and a number from the CPU no tensor, where all values fit."""

import pytest
import torch

import pliant
from pliant.debug import events


def first_is_zero(x):
    y = x.clone()
    y[..., 0] = 0
    return y


@pytest.mark.parametrize(
    ("program", "x", "calls"),
    [
        (first_is_zero, torch.arange(1, 7).view(2, 3), 0),
        (lambda x: torch.fill(x, x.sum()), torch.rand(3, 4), 0),
        (lambda x: torch.fill(x.to(torch.int8), x[1]), torch.arange(4), 1),  # eager refuses what does not fit
    ],
)
def test_fill(program, x, calls):
    with events.collect("loops") as found:
        got = pliant.compile(program, fullgraph=True)(x)
    torch.testing.assert_close(got, program(x))
    assert found[0].fields["text"].count("aten.fill") == calls
