"""Floats that become integers and floats again: no -0.0, and what the processor makes of NaN and of what is too large."""

import pytest
import torch

import pliant

GIVEN = (-0.3, 0.3, -1.7, 2.5, -0.0, 1e5, -7e4, float("nan"), float("inf"), -float("inf"), 3e9, -0.99)


@pytest.mark.spread(2, "kind", "whole", "repeats")
@pytest.mark.parametrize("kind", (torch.float32, torch.float64, torch.bfloat16))
@pytest.mark.parametrize("whole", (torch.int32, torch.int64, torch.int16, torch.int8))
@pytest.mark.parametrize("repeats", (1, 3))
def test_the_sign_of_zero_is_lost(kind, whole, repeats):
    def program(x):
        back = x.to(whole)
        either = torch.where(x > 0, x.to(whole), (x * 2).to(whole))
        return back.to(kind), back * 1.5, back / 3.0, back.float() + x, either.to(kind), 1 / back.to(kind)

    given = torch.tensor(GIVEN[: 12 if whole is torch.int64 or whole is torch.int32 else 5]).to(kind).repeat(repeats)
    for found, wanted in zip(pliant.compile(program)(given), program(given), strict=True):
        assert torch.equal(found.isnan(), wanted.isnan())
        assert torch.equal(found[~found.isnan()], wanted[~wanted.isnan()])
        assert torch.equal(torch.signbit(found[~found.isnan()]), torch.signbit(wanted[~wanted.isnan()]))
