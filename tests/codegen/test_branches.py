"""Values that are computed only where they are chosen: each part is written once, however often it is named."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from lowering.tracing import trace
from pliant import config
from pliant.codegen.c import write_kernel
from pliant.codegen.cuda.writer import write_kernel as write_device_kernel
from pliant.lowering.lower import lower
from pliant.schedule.kernel import Kernel
from pliant.schedule.schedule import schedule
from pliant.targets import cuda


def joined(a, b, x):
    return torch.cat([(a * b[:4]).relu(), (a * b).sigmoid() * (a * b), F.max_pool2d(x, 3, 2)], 1)


def pooled(window):
    """A maximum of `window` elements beside what reads one element for all lanes, for which it is no loop on vectors."""
    return lambda a, b, x: torch.cat([(a * b).relu(), F.max_pool2d(x, (1, window), (1, 2))], 1)


def c_text(kernel):
    return write_kernel(kernel).text


def cuda_text(kernel):
    (written,) = write_device_kernel(kernel, cuda.target(90))
    return written.text


def text_of(write, window: int) -> str:
    args = torch.randn(2, 4, 6, 6), torch.randn(4, 1, 1), torch.randn(2, 3, 6, 10 + window)
    planned = schedule(lower(trace(pooled(window), args)), config.Config().schedule)
    (kernel,) = [step for step in planned.steps if isinstance(step, Kernel)]
    return write(kernel)


@pytest.mark.parametrize("write, begins", [(c_text, "({ const float "), (cuda_text, "[&] { const float ")])
def test_a_chain_of_maxima_grows_by_its_length(write, begins):
    texts = [text_of(write, window) for window in (3, 6, 9)]
    assert all(f" {begins}" in text for text in texts), "the choice is written on vectors, which this test is not about"
    lengths = [len(text) for text in texts]
    assert lengths[2] - lengths[1] < 1.5 * (lengths[1] - lengths[0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_values_of_branches(dtype):
    torch.manual_seed(0)
    a, b, x = (torch.randn(shape).to(dtype) for shape in ((2, 4, 6, 6), (4, 1, 1), (2, 3, 13, 13)))
    x[0, 0, 3, 3], x[1, 2, 5, 5], a[0, 1, 2, 3] = torch.nan, torch.inf, torch.nan
    rtol, atol = (1.6e-2, 1e-2) if dtype is torch.bfloat16 else (1e-5, 1e-6)
    torch.testing.assert_close(pliant.compile(joined)(a, b, x), joined(a, b, x), rtol=rtol, atol=atol, equal_nan=True)
