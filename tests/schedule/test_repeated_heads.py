"""Attention whose heads share keys and values reads these where they lie."""

import re

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.debug import events
from pliant.ir.loops import Axis, Buffer, Extern, LoopProgram, Pointwise, View
from pliant.ir.scalar import const, load
from pliant.ir.verify import verify
from pliant.schedule.repeated_heads import without_repeated_heads
from pliant.symbolic.expr import ZERO, lit, symbol

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


def one_for_both(q, k, v):
    both = repeated(k * v)
    return F.scaled_dot_product_attention(q, both, both)


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


READ_ONCE = [plain, masked, interleaved, computed, one_for_both, transposed, written_before, written_after, written_between]
ALL = [*READ_ONCE, also_returned, different_groups]


@pytest.mark.spread(2, "f", "queries")
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


@pytest.mark.parametrize("role", ["input", "temporary"])
@pytest.mark.parametrize("device, width, copied", [("cpu", 7, False), ("cuda", 7, True), ("cuda", 8, False)])
def test_kernels_of_gpus_read_only_rows_that_are_aligned(device, width, copied, role):
    def buffer(name, heads, role):
        shape = (1, heads, LENGTH, width)
        steps = (heads * LENGTH * width, LENGTH * width, width, 1)
        return Buffer(name, torch.float32, tuple(map(lit, shape)), tuple(map(lit, steps)), torch.device(device), role)

    def whole(b):
        return View(b, b.shape, b.strides, ZERO, b.dtype)

    g, r, n, e = (Axis(symbol(f"i{k}"), lit(count)) for k, count in enumerate((GROUPS, SHARING, LENGTH, width)))
    query, kept, many, result = (
        buffer("q", GROUPS * SHARING, "input"), buffer("k", GROUPS, role), buffer("many", GROUPS * SHARING, "temporary"),
        buffer("y", GROUPS * SHARING, "extern"),
    )  # fmt: skip
    place = LENGTH * width * g.symbol + width * n.symbol + e.symbol
    index = LENGTH * width * (SHARING * g.symbol + r.symbol) + width * n.symbol + e.symbol
    made = [] if role == "input" else [Pointwise(kept, (g, n, e), place, const(0, torch.float32))]
    attention = torch.ops.aten._scaled_dot_product_cudnn_attention.default
    call = Extern(attention, (whole(query), whole(many), whole(many), None, False), {}, (result,))
    steps = [*made, Pointwise(many, (g, r, n, e), index, load(kept, place)), call]
    program = LoopProgram([query, *([kept] if role == "input" else [])], steps, [whole(result)])
    verify(program)
    found = without_repeated_heads(program)
    verify(found)
    read = found.computations[-1].args[1]
    assert [n.as_int() for n in read.shape] == [1, GROUPS, LENGTH, width] and (read.buffer is not kept) is copied
