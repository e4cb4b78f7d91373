"""Rows that are only moved: parts one below the other are copied in one go, parts side by side in a loop each."""

import pytest
import torch
import torch.nn.functional as F

from lowering.tracing import trace
from pliant import config
from pliant.codegen.c import write_kernel
from pliant.lowering.lower import lower
from pliant.runtime.compile_program import compile_program
from pliant.schedule.schedule import schedule


def below(x):
    return torch.cat([x, x.flip(1), x], 0)


def of_channels(x):
    return torch.cat([x.view(3, -1, 5, 7), x.view(3, -1, 5, 7)], 1)


def across(x):
    return torch.cat([x, x], 1)


def transposed_below(x):
    return torch.cat([x.mT, x.mT.contiguous()], 0)


def padded_rows(x):
    return F.pad(x, (0, 0, 2, 3))


def turned(x):
    return x.roll((5, 3), (0, 1))


def of_rows_and_positions(x):
    return torch.cat([x, torch.arange(12).to(x.dtype)[:, None].expand(12, x.shape[1])], 0)


FUNCTIONS = [below, of_channels, across, transposed_below, padded_rows, turned, of_rows_and_positions]


def text(function, x):
    steps = schedule(lower(trace(function, (x,))), config.Config().schedule).steps
    return "".join(write_kernel(step).text for step in steps)


@pytest.mark.spread(2, "dtype", "function")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.bool])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_are_eagers(function, dtype):
    torch.manual_seed(0)
    x = (torch.randn(12, 35) * 9).to(dtype)
    (found,) = compile_program(lower(trace(function, (x,))))([x])
    torch.testing.assert_close(found, function(x), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_conditions_on_rows_are_outside_of_their_loops(dtype):
    x = torch.randn(12, 35).to(dtype)
    assert "i1" not in text(lambda x: torch.cat([x, x], 0), x)  # all of a part is one row
    assert "i2" not in text(of_channels, x)
    rows = text(below, x)
    assert " else {" in rows and "?" not in rows.partition("_part(")[2]


def test_bytes_are_left_to_the_compiler():
    of_bytes = torch.ones(12, 35, dtype=torch.int8)
    for function in (lambda x: x.clamp(1, 5), lambda x: x > 3, lambda x: x & 7, below):
        assert "P_L" not in text(function, of_bytes).partition("_part(")[2]
    assert "P_L" in text(lambda x: x.float().exp(), of_bytes)
