"""How rows of vocabularies' lengths are given to blocks of a GPU, and where their accesses to memory begin."""

import pytest
import torch
import torch.nn.functional as F

from lowering.tracing import trace
from pliant import config
from pliant.codegen.cuda.writer import write_kernel
from pliant.lowering.lower import lower
from pliant.schedule.kernel import Kernel
from pliant.schedule.schedule import schedule
from pliant.targets import cuda


def text_of(function, *args):
    planned = schedule(lower(trace(function, args, False)), config.Config().schedule)
    kernels = [step for step in planned.steps if isinstance(step, Kernel)]
    return "\n".join(one.text for kernel in kernels for one in write_kernel(kernel, cuda.target(90)))


@pytest.mark.parametrize(
    ("rows", "dtype", "clusters"),
    [(4096, torch.bfloat16, False), (64, torch.bfloat16, True), (4096, torch.float32, True)],
)
def test_a_long_row_is_one_blocks_where_there_are_many_and_registers_hold_it(rows, dtype, clusters):
    text = text_of(lambda x: F.softmax(x, -1), torch.empty(rows, 50304, dtype=dtype))
    assert ("__cluster_dims__" in text) is clusters


def test_a_thread_begins_where_its_stores_are_aligned():
    """Rows of results are odd, those of the source are not: loads are shifted, stores are whole pieces."""

    def program(x):
        part = x[:, :50257]
        return part.float().amax(1), part.contiguous()

    text = text_of(program, torch.empty(4096, 50264, dtype=torch.bfloat16))
    (shift,) = {line.strip() for line in text.splitlines() if "int shift" in line}
    assert "50257*i0" in shift and "50264*i0" not in shift
