"""`fill` with a tensor of one element is a loop, and a number from the CPU no tensor, where all values fit."""

import pytest
import torch

import pliant
from lowering.tracing import trace
from pliant.debug import events
from pliant.ir.loops import Extern
from pliant.ir.scalar import loads
from pliant.lowering.lower import lower


def first_is_zero(x):
    y = x.clone()
    y[..., 0] = 0
    return y


@pytest.mark.parametrize(
    ("program", "x", "calls"),
    [
        (first_is_zero, torch.arange(1, 7).view(2, 3), 0),
        (lambda x: torch.fill(x, x.sum()), torch.rand(3, 4), 0),
        (lambda x: torch.fill(x.to(torch.int8), x[1]), torch.arange(4), 1),  # eager refuses what does not fit
    ],
)
def test_fill(program, x, calls):
    with events.collect("loops") as found:
        got = pliant.compile(program, fullgraph=True)(x)
    torch.testing.assert_close(got, program(x))
    assert found[0].fields["text"].count("aten.fill") == calls


@pytest.mark.parametrize("dtype", [None, torch.int64, torch.int32, torch.float64])
@pytest.mark.parametrize(("start", "end", "step"), [(-1.5, 1.0, 1), (2.5, -1.0, -1.5), (-2.75, 0.5, 1.5), (0, 0.5, 1)])
def test_arange_between_floats_that_sizes_give(dtype, start, end, step):
    """Whole numbers count from the truncated start by the truncated step."""

    def count(x):
        return torch.arange(start * x.size(0), end * x.size(0), step, dtype=dtype)

    compiled = pliant.compile(count, dynamic=True, fullgraph=True)
    for n in (5, 8, 13):
        got, expected = compiled(torch.zeros(n)), count(torch.zeros(n))
        assert got.dtype is expected.dtype
        torch.testing.assert_close(got, expected)


def test_arange_by_fractions_counts_in_double_precision():
    def program(x):
        return torch.arange(0, 4, 0.3) * x, torch.arange(0.1, 1.2, 0.1) * x

    for mine, theirs in zip(pliant.compile(program, fullgraph=True)(torch.ones(1)), program(torch.ones(1)), strict=True):
        assert torch.equal(mine, theirs)


def test_arange_between_elements_of_floats():
    """As positions that a model pools: the size is data's."""

    def distances(x):
        places = torch.arange(0, x.size(1), dtype=x.dtype)
        pooled = torch.cat([places.new_tensor([-1.0]), places[1:-1]])[::2]
        first = pooled[0] - places[0]
        return torch.arange(first + 4 * len(pooled), pooled[0] - places[-1] - 1, -2, dtype=torch.long) + x.sum()

    pliant.reset()
    compiled = pliant.compile(distances, fullgraph=True)
    for n in (6, 9, 12):
        x = torch.randn(2, n)
        torch.testing.assert_close(compiled(x), distances(x))


def test_a_number_goes_to_another_device():
    """It is computed where it goes: its memory, which another result is in, cannot be read from there."""

    def program():
        number = torch.full((), 5, dtype=torch.int64)
        return number, number.to("meta"), torch.ones(2, device="meta") * number

    graph = trace(program, ())
    program = lower(graph, lambda device: True)
    assert {output.buffer.device.type for output in program.outputs} == {"cpu", "meta"}
    for c in program.computations:
        assert isinstance(c, Extern) or {x.buffer.device for x in loads(c.value)} <= {c.out.device}
