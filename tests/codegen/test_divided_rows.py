"""A row of which quotients and remainders are asked is written as rows of rows, whose lanes are evenly spaced."""

import pytest
import torch

from lowering.tracing import trace
from pliant import config
from pliant.codegen.c import write_kernel
from pliant.lowering.lower import lower
from pliant.runtime.compile_program import compile_program
from pliant.schedule.schedule import schedule


def transposed(x):
    """The rows of the transposed one are a quarter as long as those of the result."""
    return x.t().contiguous().view(x.shape) + x


def stretched(x):
    return x.repeat_interleave(64, 1) * 2


def repeated(x):
    return x.repeat(1, 3).exp()


def beside_pairs(x):
    return torch.stack([x.t().reshape(x.shape), x], 2).flatten(1) * 2


FUNCTIONS = (transposed, stretched, repeated, beside_pairs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_values_are_eagers(function, dtype):
    torch.manual_seed(0)
    x = (torch.randn(96, 192) * 3).to(dtype)
    (found,) = compile_program(lower(trace(function, (x,))))([x])
    torch.testing.assert_close(found, function(x))


def test_what_is_read_across_is_transposed_by_tiles():
    (step,) = schedule(lower(trace(transposed, (torch.randn(128, 512),))), config.Config().schedule).steps
    text = write_kernel(step).text
    assert "p_transpose32" in text and "p_store(" in text
