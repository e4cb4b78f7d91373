"""Two dimensions that are one loop are two where vectors go along the second."""

import pytest
import torch
import torch.nn.functional as F

from lowering.tracing import check, trace
from pliant import config
from pliant.codegen.c import write_kernel
from pliant.ir.loops import Axis, Buffer, LoopProgram, Pointwise
from pliant.ir.scalar import load
from pliant.lowering.lower import lower
from pliant.runtime.compile_program import compile_program
from pliant.schedule.kernel import Kernel
from pliant.schedule.rows_apart import rows_apart
from pliant.schedule.schedule import schedule
from pliant.symbolic.expr import lit, symbol

LAST = torch.channels_last


def normalized(x):
    return F.instance_norm(x)


def flat(x):
    return x.reshape(-1, 5, 6).sum(-1) * 2


def repeated(x):
    return x.flatten(1).repeat(3, 2) + 1


def merged(x):
    return x.permute(0, 2, 3, 1).reshape(-1, 8).softmax(-1)


@pytest.mark.parametrize("function", [normalized, flat, repeated, merged])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_are_eagers(function, dtype):
    torch.manual_seed(0)
    x = torch.randn(3, 8, 5, 6).to(dtype).to(memory_format=LAST)
    (found,) = compile_program(lower(trace(function, (x,))))([x])
    near = {"atol": 4e-3, "rtol": 0.02} if dtype is torch.bfloat16 else {}  # where eager rounds between
    torch.testing.assert_close(found, function(x), **near)
    check(function, x.float())
    check(function, x.float().contiguous(), dynamic=True)


def test_channels_that_lie_last_are_vectors():
    x = torch.randn(3, 32, 5, 6, dtype=torch.bfloat16).to(memory_format=LAST)
    steps = schedule(lower(trace(normalized, (x,))), config.Config().schedule).steps
    text = "".join(write_kernel(step).text for step in steps if isinstance(step, Kernel))
    assert "% 32" not in text.replace("% (32)", "") and "P_L" in text


def test_a_loop_is_not_divided_by_its_own_extent():
    i, cpu = symbol("i0"), torch.device("cpu")
    read, written = (Buffer(name, torch.float32, (lit(8),), (lit(1),), cpu, role) for name, role in (("a", "input"), ("b", "temporary")))
    loop = Pointwise(written, (Axis(i, lit(8)),), i, load(read, i % 8))
    program = LoopProgram([read], [loop], [])
    assert rows_apart(program) is program
