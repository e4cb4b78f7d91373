"""Integers in kernels: those of 64 bits become floats as they are read, remainders take no branch, columns turn in tiles."""

import pytest
import torch
import torch.nn.functional as F

from lowering.tracing import trace
from pliant import config
from pliant.codegen.c import write_kernel
from pliant.lowering.lower import lower
from pliant.runtime.compile_program import compile_program
from pliant.schedule.schedule import schedule

INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]


def text(function, *args):
    steps = schedule(lower(trace(function, args)), config.Config().schedule).steps
    return "".join(write_kernel(step).text for step in steps).partition("_part(")[2]


def compiled(function, *args):
    (found,) = compile_program(lower(trace(function, args)))(list(args))
    return found


@pytest.mark.parametrize("shape", [(3, 37), (1, 5), (64,)])
def test_large_integers_as_floats(shape):
    torch.manual_seed(0)
    x = torch.randint(-(2**62), 2**62, shape)
    x.view(-1)[:4] = torch.tensor([2**63 - 1, -(2**63), 2**53 + 1, 0])
    torch.testing.assert_close(compiled(lambda x: x.float() * 2, x), x.float() * 2, rtol=0, atol=0)
    small = x % 1000
    for function in (torch.sin, torch.exp2, lambda x: x.to(torch.bfloat16) + 1):
        torch.testing.assert_close(compiled(function, small), function(small))
    assert "p_load64_f(" in text(torch.sin, torch.zeros(64, dtype=torch.int64))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_remainders_have_the_sign_of_the_divisor(dtype):
    low = 0 if dtype is torch.uint8 else -100
    x = torch.arange(low, 100).to(dtype)
    for by in (7, 1) if dtype is torch.uint8 else (7, -7, 1, -1):
        assert torch.equal(compiled(lambda x, by=by: x % by, x), x % by)
    divisors = torch.where(x == 0, torch.ones_like(x), x).flip(0)
    assert torch.equal(compiled(lambda x, y: x % y, x, divisors), x % divisors)
    assert "?" not in text(lambda x: x % 7, x)


def test_a_row_compared_with_labels_is_on_vectors():
    def program(x, t):
        return F.log_softmax(x, 1).where(t[:, None] != torch.arange(21)[:, None, None], x)

    x, t = torch.randn(2, 21, 16, 16), torch.randint(0, 21, (2, 16, 16))
    torch.testing.assert_close(compiled(program, x, t), program(x, t))
    assert "#pragma omp simd\n    for (int64_t i2" not in text(program, x, t)


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64])
@pytest.mark.parametrize("shape", [(70, 150), (128, 128), (65, 257)])
def test_tiles_of_64_bits(shape, dtype):
    torch.manual_seed(0)
    x = (torch.randn(shape) * 1000).to(dtype)
    assert torch.equal(compiled(lambda x: x.t().contiguous(), x), x.t())
    assert "p_transpose64" in text(lambda x: x.t().contiguous(), torch.zeros(128, 128, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.float64])
@pytest.mark.parametrize("shape", [(5, 33), (4, 7), (1, 9), (3, 1), (6, 0)])
def test_running_sums_row_by_row(shape, dtype):
    torch.manual_seed(0)
    x = (torch.randn(shape) * 50).to(dtype)
    for function in (lambda x: x.cumsum(1), lambda x: x.cumprod(1), lambda x: x.cumsum(0)):
        torch.testing.assert_close(compiled(function, x), function(x))
    whole = torch.zeros(64, 64, dtype=dtype)
    assert f"acc[{2 if dtype.is_floating_point else 1}]" in text(lambda x: x.cumsum(1), whole)
