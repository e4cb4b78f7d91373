"""Loops over what is put together from parts: one for each where a part is read across its rows."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from lowering.tracing import check, lowered
from pliant.ir.loops import Pointwise
from pliant.ir.scalar import Apply, walk


def joined(a, b):
    return F.gelu(torch.cat([a * 2, b.mT + 1], -1))


def halves(a, b):
    """The gradient of `chunk` has this form."""
    return F.pad(a.mT * 2, (0, a.shape[0])) + 1


def three(a, b):
    return torch.cat([b.mT, a.sin(), b.mT.cos()], -1).exp()


def loops_of(function, *args):
    return [c for c in lowered(function, *args).computations if isinstance(c, Pointwise)]


def choices(loops):
    return [one for loop in loops for one in walk(loop.value) if isinstance(one, Apply) and one.op == "where"]


@pytest.mark.parametrize(("function", "count"), [(joined, 2), (halves, 2), (three, 3)])
def test_a_loop_for_each_part(function, count):
    args = torch.randn(40, 48), torch.randn(64, 40)
    loops = loops_of(function, *args)
    assert len(loops) == count and not choices(loops)
    for dynamic in (False, True):
        check(function, *args, dynamic=dynamic)


def test_parts_that_lie_in_rows_stay_one_loop():
    args = torch.randn(40, 48), torch.randn(40, 64)
    assert len(loops_of(lambda a, b: F.gelu(torch.cat([a * 2, b + 1], -1)), *args)) == 1


def test_short_parts_stay_one_loop():
    args = torch.randn(40, 8), torch.randn(8, 40)
    assert len(loops_of(joined, *args)) == 1
    check(joined, *args)


def test_an_input_that_is_updated_by_parts():
    def update(x, a, b):
        x.mul_(torch.cat([b.mT.exp(), a.sin()], -1))
        return x + 1

    x, a, b = torch.randn(40, 112), torch.randn(40, 48), torch.randn(64, 40)
    mine = x.clone()
    torch.testing.assert_close(pliant.compile(update)(mine, a, b), update(x, a, b))
    torch.testing.assert_close(mine, x)


def test_readers_of_one_part_and_of_all():
    def function(a, b):
        y = torch.cat([b.mT.exp(), a.sin()], -1).tanh()
        return y[:, :64].sum(0), y.softmax(-1), y[:, 64:] * 2, y.mT.contiguous()

    for dynamic in (False, True):
        check(function, torch.randn(40, 48), torch.randn(64, 40), dynamic=dynamic)
