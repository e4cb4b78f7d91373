"""Rows that lie along memory are folded as lanes: the additions of each are eager's, in their order."""

import pytest
import torch

from lowering.tracing import trace
from pliant import config
from pliant.codegen.c import write_kernel
from pliant.lowering.lower import lower
from pliant.runtime.compile_program import compile_program
from pliant.schedule.schedule import schedule


def sums(x):
    return (x * 2).cumsum(-1)


def products(x):
    return (x * 0.01 + 1).cumprod(-1)


def of_half_of_it(x):
    return x[:, ::2].cumsum(-1)


def of_flags(x):
    return (x > 0).cumsum(-1, dtype=torch.float32)


def backwards(x):
    return x.flip(-1).cumsum(-1).flip(-1)


FUNCTIONS = [sums, products, of_half_of_it, of_flags, backwards]


def values(shape, dtype):
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=dtype)
    if shape[0] > 34 and shape[1] > 50:
        x[3, 50], x[17, 1], x[34, 2] = float("inf"), float("nan"), -float("inf")
    return x


@pytest.mark.spread(2, "function", "shape", "dtype")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(32, 64), (37, 130), (48, 63), (33, 1), (64, 3), (35, 0), (31, 200)])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_are_eagers(function, shape, dtype):
    x = values(shape, dtype)
    (found,) = compile_program(lower(trace(function, (x,))))([x])
    if dtype is torch.float32:
        assert torch.equal(found.nan_to_num(), function(x).nan_to_num())
    torch.testing.assert_close(found, function(x), equal_nan=True)


def text(function, *shape, dtype=torch.float32):
    steps = schedule(lower(trace(function, (torch.randn(shape).to(dtype),))), config.Config().schedule).steps
    return "".join(write_kernel(step).text for step in steps)


def test_which_rows_are_lanes():
    assert "p_transpose32" in text(sums, 32, 64) and "p_transpose16" in text(sums, 32, 64, dtype=torch.bfloat16)
    assert "p_transpose" not in text(sums, 31, 64)  # few rows: as many at a time as have registers
    assert "p_transpose" not in text(lambda x: x.cumsum(0), 64, 64)  # they lie side by side already
    assert "p_transpose" not in text(sums, 32, 64, dtype=torch.float64)
