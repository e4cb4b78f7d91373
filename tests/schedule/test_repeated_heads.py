"""Attention whose heads share keys and values reads these where they lie."""

import re

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events

GROUPS, SHARING, LENGTH, WIDTH = 2, 4, 48, 16


@pytest.fixture(autouse=True)
def fresh():
    pliant.reset()
    yield
    pliant.reset()


def repeated(t, times=SHARING):
    batch, groups, length, width = t.shape
    return t[:, :, None].expand(batch, groups, times, length, width).reshape(batch, groups * times, length, width)


def by_interleaving(t):
    return t.repeat_interleave(SHARING, 1)


def plain(q, k, v):
    return F.scaled_dot_product_attention(q, repeated(k), repeated(v))


def masked(q, k, v):
    mask = torch.arange(k.shape[2]) < 7
    return F.scaled_dot_product_attention(q, repeated(k), repeated(v), mask[None, None, None])


def interleaved(q, k, v):
    return F.scaled_dot_product_attention(q, by_interleaving(k), by_interleaving(v))


def computed(q, k, v):
    return F.scaled_dot_product_attention(q, repeated(k * 2), repeated(v + k))


def transposed(q, k, v):
    k, v = (t.transpose(1, 2).contiguous().transpose(1, 2) for t in (k, v))
    return F.scaled_dot_product_attention(q, repeated(k), repeated(v))


def written_before(q, k, v):
    k[:, :, 3] = 1.0
    return F.scaled_dot_product_attention(q, repeated(k), repeated(v))


def written_after(q, k, v):
    y = F.scaled_dot_product_attention(q, repeated(k), repeated(v))
    k.mul_(2)
    return y + repeated(k).sum()


def written_between(q, k, v):
    old = repeated(k)
    k.mul_(2)
    return F.scaled_dot_product_attention(q, old, repeated(v))


def also_returned(q, k, v):
    many = repeated(k + 1)
    return F.scaled_dot_product_attention(q, many, repeated(v)), many


def different_groups(q, k, v):
    return F.scaled_dot_product_attention(q, repeated(k), repeated(v[:, :1], GROUPS * SHARING))


def tensors(batch=3, length=LENGTH, queries=1):
    torch.manual_seed(0)
    k, v = torch.randn(2, batch, GROUPS, length, WIDTH)
    return torch.randn(batch, GROUPS * SHARING, queries, WIDTH), k, v


READ_ONCE = [plain, masked, interleaved, computed, transposed, written_before, written_after, written_between]
ALL = [*READ_ONCE, also_returned, different_groups]


@pytest.mark.parametrize("f", ALL, ids=lambda f: f.__name__)
@pytest.mark.parametrize("batch, queries", [(1, 1), (3, 1), (2, 5)])
def test_results_are_those_of_repeated_heads(f, batch, queries):
    with torch.no_grad():
        given, others = tensors(batch, queries=queries), tensors(batch, queries=queries)
        torch.testing.assert_close(pliant.compile(f, fullgraph=True)(*given), f(*others))
        torch.testing.assert_close(given, others)


@pytest.mark.parametrize("f", ALL, ids=lambda f: f.__name__)
def test_keys_are_not_repeated_in_memory(f):
    with torch.no_grad(), events.collect("loops") as found:
        pliant.compile(f, fullgraph=True)(*tensors())
    (text,) = (e.fields["text"] for e in found)
    repeats = re.search(rf"^  buf\d+\[i0 < 3, i1 < {GROUPS}, i2 < {SHARING}, i3 < {LENGTH}, i4 < {WIDTH}\]", text, re.MULTILINE)
    assert (repeats is None) is (f in READ_ONCE), text


def test_sizes_that_vary():
    with torch.no_grad():
        call = pliant.compile(plain, dynamic=True)
        for batch, length, queries in ((2, 10, 1), (3, 17, 4), (5, 48, 1)):
            given = tensors(batch, length, queries)
            torch.testing.assert_close(call(*given), plain(*given))
    assert pliant.stats()["fallbacks"] == 0


def test_gradients():
    given, others = ([t.requires_grad_() for t in tensors(queries=5)] for _ in range(2))
    for f, inputs in ((pliant.compile(computed), given), (computed, others)):
        f(*inputs).square().sum().backward()
    torch.testing.assert_close([t.grad for t in given], [t.grad for t in others])
