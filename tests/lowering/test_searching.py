"""Binary search as loops: eager's positions for sorted rows, unsorted ones, NaN and infinities."""

import pytest
import torch

import pliant
from lowering.tracing import lowered
from pliant.debug import events

inf, nan = float("inf"), float("nan")
VALUES = torch.cat([torch.randn(100) * 2, torch.tensor([nan, inf, -inf, 0.0, -0.0, -3, 3.0])])


def same(function, *args: torch.Tensor, dynamic: bool = False) -> bool:
    """Whether nothing was called, for eager's positions."""
    with events.collect("extern") as called:
        found, expected = pliant.compile(function, dynamic=dynamic)(*args), function(*args)
    assert torch.equal(found, expected) and found.dtype is expected.dtype
    return not called


@pytest.mark.spread(2, "count", "dtype")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64])
@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 100])
def test_rows_of_all_lengths(count, dtype):
    unsorted = torch.randn(count)
    edges = unsorted.sort().values
    with_nan = torch.cat([edges[:-1], torch.tensor([nan])])
    for row in (edges, unsorted, edges.round(), with_nan):
        row, values = (t.nan_to_num(0, 100, -100) if dtype is torch.int64 else t for t in (row, VALUES))
        for right in (False, True):
            assert same(lambda a, b, right=right: torch.searchsorted(b, a, right=right), values.to(dtype), row.to(dtype))


def test_forms_of_the_call():
    rows, values = torch.randn(5, 33).sort(-1).values, torch.randn(5, 70)
    assert same(lambda b, x: torch.searchsorted(b * 2, x * 2, side="right"), rows, values)
    assert same(lambda b, x: torch.bucketize(x + 1, b, out_int32=True), rows[0].clone(), values)
    assert same(lambda b, x: torch.searchsorted(b, x).float().mean(), rows, values)


def test_what_stays_a_call_is_right():
    rows, values = torch.randn(5, 33).sort(-1).values, torch.randn(5, 70)
    assert not same(lambda b, x: torch.searchsorted(b, x), rows, values, dynamic=True)
    assert not same(lambda b, x: torch.searchsorted(b, x.t()), rows, torch.randn(70, 5))
    assert not same(lambda b, x: torch.searchsorted(b[:, :0], x), rows, values)


def test_rows_of_halves_are_converted_once():
    """Compilers have vectors of lookups for words alone."""
    loops = lowered(torch.searchsorted, torch.empty(4, 64).bfloat16(), torch.empty(4, 9).bfloat16()).computations
    assert [loop.out.dtype for loop in loops] == [torch.float32, torch.int64]
