"""Kernels ask for memory ahead: where they read or write more than the cache holds, in long runs."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events

LARGE, SMALL = torch.randn(1024, 2048), torch.randn(64, 256)


def asked(f, *args, dynamic=False) -> tuple[int, int]:
    """How many of the kernels' accesses ask for what follows: loads and stores."""
    with events.collect("output_code") as found:
        got = pliant.compile(f, dynamic=dynamic)(*args)
    torch.testing.assert_close(got, f(*args))
    text = "".join(one.fields["text"] for one in found)
    return text.count("p_load_ahead(&"), text.count("p_store_ahead(&")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_loads_and_stores_of_large_tensors(dtype):
    x = LARGE.to(dtype)
    assert asked(lambda a: a.tanh(), x) == (1, 1)
    assert asked(lambda a: a.tanh(), x[:32].clone()) == (0, 0)
    assert asked(lambda a, b: a + b, x, x[0].clone()) == (1, 1)  # a row stays in the cache


def test_rows_are_asked_for_where_they_are_read_first():
    loads, stores = asked(lambda a: F.softmax(a, -1), LARGE)
    assert (loads, stores) == (1, 1)


def test_columns_of_short_rows():
    assert asked(lambda a: a.abs().sum(0), torch.randn(1 << 14, 64)) == (1, 0)
    assert asked(lambda a: a.abs().sum(0), LARGE) == (0, 0)


def test_sizes_that_are_not_known_may_be_large():
    assert asked(lambda a: a * 2 + 1, SMALL, dynamic=True) == (1, 1)


def test_what_does_not_follow_is_not_asked_for():
    at = torch.randint(0, 1024, (1024,))
    assert asked(lambda a, i: a[i] * 2, LARGE, at) == (0, 1)  # rows that are looked up
    assert asked(lambda a, b: a.t() + b, LARGE, LARGE.t().contiguous()) == (0, 0)  # tiles
    assert asked(lambda a: a[:, :64] * 2, torch.randn(1 << 14, 128)) == (0, 0)  # short runs
