"""Positions of maxima and minima of what has no vectors of its own: blocks are searched where one may hold a better element."""

import pytest
import torch

from lowering.tracing import trace
from pliant import config
from pliant.codegen.c import write_kernel
from pliant.lowering.lower import lower
from pliant.runtime.compile_program import compile_program
from pliant.schedule.schedule import schedule

INF, NAN = float("inf"), float("nan")


def positions(x):
    return (*x.max(-1), *x.min(-1), x.argmax(-1), x.argmin(0), x.argmax(), x.mT.argmin())


def rows(dtype):
    """Ascending, descending, equal elements, few values, infinities, NaN early and late, alone, and the least number first."""
    torch.manual_seed(0)
    n = 77
    found = torch.stack([torch.arange(n) * 1.0, -torch.arange(n) * 1.0, torch.full((n,), 3.0), torch.randint(0, 3, (n,)) * 1.0, torch.randn(n) * 9])
    if not dtype.is_floating_point:
        return found.to(dtype)
    special = torch.randn(5, n)
    special[0, 3], special[0, 50], special[1, 70], special[2, :] = NAN, NAN, NAN, -INF
    special[3, 16:20], special[4, 0] = INF, -INF
    return torch.cat([found, special]).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.int32, torch.uint8])
def test_the_first_position_is_found(dtype):
    x = rows(dtype)
    for found, wanted in zip(compile_program(lower(trace(positions, (x,))))([x]), positions(x), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def test_values_and_positions_have_loops_of_their_own():
    (step,) = schedule(lower(trace(lambda x: tuple(x.max(-1)), (rows(torch.float64),))), config.Config().schedule).steps
    text = write_kernel(step).text
    assert "simd reduction(max:acc0)" in text and "simd reduction(|:any)" in text
