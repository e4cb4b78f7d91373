"""Along which loop memory is read and written: what most of the memory wants."""

import pytest
import torch

from loop_programs import Program, get
from pliant import config
from pliant.codegen.loops import merged, order_axes, weighted_accesses
from pliant.ir.scalar import apply
from pliant.runtime.compile_program import compile_program
from pliant.schedule.schedule import schedule


def test_small_tensors_do_not_outvote_large_ones():
    """Eight numbers a channel lie densely along the channels, the images along their pixels."""
    p = Program()
    x = p.tensor(64, 32, 784)
    channels = [p.tensor(32) for _ in range(8)]

    def value(n, c, i):
        total = get(x, n, c, i)
        for one in channels:
            total = apply("add", total, get(one, c))
        return total

    (kernel,) = schedule(p.done(p.pointwise((64, 32, 784), value)), config.Config().schedule).steps
    kernel = merged(kernel)
    _, vector = order_axes(kernel, weighted_accesses(kernel))
    assert vector.extent.as_int() == 784


@pytest.mark.parametrize(("step", "told"), [(4096, False), (16, True)])
def test_loads_far_apart_are_no_vectors(step, told):
    """A compiler that is told to make vectors of them loads all that lies between: a second of its time, and slow code."""
    p = Program()
    x = p.tensor(40, step)
    program = p.done(p.pointwise((40,), lambda i: apply("mul", get(x, i, 3), get(x, i, 1))))
    compiled = compile_program(program)
    assert ("#pragma omp simd" in compiled.source) == told
    given = torch.randn(40, step)
    (got,) = compiled([given])
    assert torch.equal(got, given[:, 3] * given[:, 1])
