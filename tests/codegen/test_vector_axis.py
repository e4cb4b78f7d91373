"""Along which loop memory is read and written: what most of the memory wants."""

from loop_programs import Program, get
from pliant import config
from pliant.codegen.loops import merged, order_axes, weighted_accesses
from pliant.ir.scalar import apply
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
