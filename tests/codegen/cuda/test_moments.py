"""Moments in one pass as CUDA C: two kernels for both of them, of which one reads the input, once."""

import dataclasses

import pytest
import torch

from codegen.cuda.programs import DeviceProgram
from lowering.tracing import trace
from pliant.lowering.lower import lower
from pliant.targets import cpu, cuda, registry


@pytest.fixture(autouse=True)
def target():
    """Reductions are split as on a GPU of four multiprocessors with a small cache."""
    there = cpu.target()
    small = dataclasses.replace(cuda.target(90), split_outer=16, split_inner=1 << 10, parts=32, cluster=1, shared_cache_bytes=1 << 16)
    registry.provide("cpu", lambda _: small)
    yield small
    registry.provide("cpu", lambda _: there)


@pytest.mark.parametrize("shape, dims", [((4096, 24), (0,)), ((8, 12, 16, 32), (0, 2, 3)), ((300, 400), (0, 1))])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values(shape, dims, dtype, target):
    torch.manual_seed(0)
    x = (torch.randn(shape, dtype=torch.float64) + 1e3 * (dtype is torch.float32)).to(dtype)
    if len(shape) == 4:
        x = x.to(memory_format=torch.channels_last)
    program = DeviceProgram(lower(trace(lambda x: torch.var_mean(x, dims), (x,))), target)
    given = program.program.inputs[0]
    assert len(program.kernels) == 2
    assert [given in kernel.buffers for kernel in program.kernels] == [True, False]
    for got, exact in zip(program([x]), torch.var_mean(x.double(), dims), strict=True):
        torch.testing.assert_close(got.double(), exact, rtol=3e-6 if dtype is torch.float32 else 1e-2, atol=1e-3)


def test_what_stays_in_the_cache_is_read_twice(target):
    x = torch.randn(640, 24)
    program = DeviceProgram(lower(trace(lambda x: torch.var_mean(x, (0,)), (x,))), target)
    given = program.program.inputs[0]
    assert sum(given in kernel.buffers for kernel in program.kernels) == 2
    for got, exact in zip(program([x]), torch.var_mean(x, (0,)), strict=True):
        torch.testing.assert_close(got, exact)
