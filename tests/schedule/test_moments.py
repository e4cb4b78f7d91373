"""Moments of what is too large to be read twice: one pass by chunks, as near to float64 as eager's."""

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F

from lowering.tracing import trace
from pliant import config
from pliant.codegen.c import write_kernel
from pliant.ir.interpret import run
from pliant.ir.verify import verify
from pliant.lowering.lower import lower
from pliant.runtime.compile_program import compile_program
from pliant.schedule import moments as moments_module
from pliant.schedule.kernel import Kernel, loads_of
from pliant.schedule.moments import moments_in_one_pass
from pliant.schedule.schedule import schedule
from pliant.targets import cpu, registry

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def target():
    """The host with a cache that holds little, so that small tensors are large."""
    there = cpu.target()
    registry.provide("cpu", lambda _: dataclasses.replace(there, cache_bytes=1 << 14))
    yield there
    registry.provide("cpu", lambda _: there)


def batch_norm(x):
    return aten.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5)


def group_norm(x):
    return aten.native_group_norm(x, None, None, x.shape[0], x.shape[1], x.shape[2] * x.shape[3], 2, 1e-5)


def by_hand(x):
    centred = x - x.mean(0)
    return (centred * centred).mean(0)


def moments(x):
    return torch.var_mean(x, 0)


def all_of_it(x):
    return torch.var_mean(x)


NARROW, WIDE_ROWS, IMAGES = (2048, 24), (1024, 520), (8, 12, 32, 32)
CASES = [
    (moments, NARROW, False), (moments, WIDE_ROWS, False), (moments, (1100, 33), False), (by_hand, NARROW, False),
    (all_of_it, (300, 400), False), (batch_norm, IMAGES, True), (batch_norm, IMAGES, False),
    (batch_norm, (32, 4, 24, 24), False), (group_norm, (2, 8, 96, 96), False),
]  # fmt: skip


def normal(shape):
    torch.manual_seed(0)
    return torch.randn(shape, dtype=torch.float64)


def first_apart(shape):
    x = normal(shape)
    x[0] += 1e3
    return x


VALUES = {
    "normal": normal,
    "large mean": lambda shape: normal(shape) * 1e-2 + 1e4,
    "large": lambda shape: normal(shape) * 1e17,
    "first apart": first_apart,
    "constant": lambda shape: torch.full(shape, 3.3, dtype=torch.float64),
}


def made(shape, last, values, dtype=torch.float32):
    x = VALUES[values](shape).to(dtype)
    return x.to(memory_format=torch.channels_last) if last else x


def leaves(found):
    return [found] if isinstance(found, torch.Tensor) else list(found)


def error(got, exact):
    return float((got.double() - exact).abs().max())


@pytest.mark.spread(2, "values", "function", "shape")
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("function, shape, last", CASES)
def test_errors_are_at_most_twice_those_of_eager(function, shape, last, values):
    x = made(shape, last, values)
    program = lower(trace(function, (x,)))
    assert moments_in_one_pass(program) is not program
    found = leaves(compile_program(program)([x]))
    for got, eager, exact in zip(found, leaves(function(x)), leaves(function(x.double())), strict=True):
        usual = 1e-6 * exact.abs().max() + 1e-7 * x.std()  # a mean of what adds up to little
        assert error(got, exact) <= max(2 * error(eager, exact), float(usual))


@pytest.mark.spread(2, "function", "shape", "dtype")
@pytest.mark.parametrize("function, shape, last", CASES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(function, shape, last, dtype):
    x = made(shape, last, "normal", dtype)
    found = leaves(compile_program(lower(trace(function, (x,))))([x]))
    rtol, atol = (1e-10, 1e-10) if dtype is torch.float64 else (1.6e-2, 4e-2)
    for got, eager in zip(found, leaves(function(x)), strict=True):
        torch.testing.assert_close(got, eager, rtol=rtol, atol=atol)


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 3e38])
@pytest.mark.parametrize("at", [0, 5, 2047])
def test_values_that_are_not_finite(value, at):
    x = made(NARROW, False, "normal")
    x[at, 3], x[1, 4], x[0, 5], x[1, 5] = value, value, 3e38, -3e38
    variance, mean = compile_program(lower(trace(moments, (x,))))([x])
    torch.testing.assert_close(variance, x.var(0), equal_nan=True)
    torch.testing.assert_close(mean, x.mean(0), equal_nan=True, rtol=1e-6, atol=0.1)  # 3e38 - 3e38 has lost what was between


@pytest.mark.parametrize("function, shape, last", CASES)
def test_the_loops_mean_the_same(function, shape, last):
    shape = (*shape[:-1], min(shape[-1], 16)) if len(shape) == 2 else (4, 4, 32, 32)
    x = made(shape, last, "normal", torch.float64)
    program = lower(trace(function, (x,)))
    changed = moments_in_one_pass(program)
    verify(changed, "moments")
    for got, expected in zip(run(changed, [x]), run(program, [x]), strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("function, shape, last", CASES)
def test_the_input_is_read_once(function, shape, last):
    """For moments, and once more for what is normalized."""
    program = lower(trace(function, (made(shape, last, "normal"),)))
    given = program.inputs[0]
    steps = schedule(program, config.Config().schedule).steps
    readers = [k for k in steps if isinstance(k, Kernel) and any(x.buffer is given for m in k.members for x in loads_of(m.loops))]
    assert len(readers) == (2 if "norm" in function.__name__ else 1)
    for kernel in readers:
        assert all(m.phase == 0 for m in kernel.members if m.inner)
        (name,) = (f"a{k}" for k, b in enumerate(write_kernel(kernel).buffers) if b is given)
        samples, _, behind = write_kernel(kernel).text.partition(" acc0[")
        whole = (behind or samples).split("#if")[0]  # vectors; what is left of a row is the same under a mask
        assert whole.count(f"p_load_far(&{name}[") <= 1


def test_samples_of_columns_are_chosen_on_vectors():
    """A loop over numbers of which the larger one is chosen is one of branches."""
    x = made(WIDE_ROWS, False, "normal")
    steps = schedule(lower(trace(moments, (x,))), config.Config().schedule).steps
    samples, _, _ = write_kernel(steps[0]).text.partition(" acc0[")
    assert "P_NAN_MOREv" in samples and "? " not in samples


def test_sizes_that_vary():
    x = made((16, 24, 16, 16), True, "large mean")
    program = lower(trace(batch_norm, (x,), True))
    assert moments_in_one_pass(program) is not program
    verify(moments_in_one_pass(program), "moments")


def test_what_is_left_alone(target):
    x = made((2048, 24), False, "normal")
    for function in (
        lambda x: F.layer_norm(x, (24,)),  # a row is in the cache
        lambda x: ((x - x[0]) ** 2).sum(0) + x.sum(0),  # one pass as it is
        lambda x: ((x - x.amax(0)) ** 2).sum(0),
        lambda x: ((x * 2 - x.mean(0)) ** 2).sum(0),
    ):
        program = lower(trace(function, (x,)))
        assert moments_in_one_pass(program) is program
    registry.provide("cpu", lambda _: target)
    program = lower(trace(moments, (x,)))
    assert moments_in_one_pass(program) is program


def test_sums_of_other_values_are_not_compared(monkeypatch):
    """In a long chain everything comes from all before it: what is looked at must not grow with its square."""

    def chained(x):
        total = x.new_zeros(8)
        for rows in x.unbind():
            centred = rows - total[:, None]
            total = total + (centred * centred).sum(1)
        return total

    compared = []
    monkeypatch.setattr(moments_module, "_pair", lambda *given: compared.append(given))
    moments_in_one_pass(lower(trace(chained, (torch.randn(24, 8, 32),))))
    assert len(compared) <= 24
