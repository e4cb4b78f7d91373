"""Large products with columns to spare, whose rows are copied: made in blocks, with the same values."""

import dataclasses

import pytest
import torch

import pliant
from lowering.tracing import trace
from pliant.ir.interpret import run
from pliant.ir.loops import Extern
from pliant.ir.verify import verify
from pliant.lowering.lower import lower
from pliant.runtime import compile_graph
from pliant.runtime.cuda import large_results
from pliant.schedule import row_blocks
from pliant.targets import cpu, registry


@pytest.fixture(autouse=True)
def target(monkeypatch):
    """A machine that wants rows of products aligned, and for which little is large."""
    there = cpu.target()
    monkeypatch.setattr(row_blocks, "LARGE", 1024)
    registry.provide("cpu", lambda _: dataclasses.replace(there, product_bytes=16, product_depth=64))
    pliant.reset()
    yield
    registry.provide("cpu", lambda _: there)
    pliant.reset()


def rows(x, w, b):
    return x @ w.t()


def biased(x, w, b):
    return torch.nn.functional.linear(x, w, b).relu()


def of_a_batch(x, w, b):
    return torch.nn.functional.linear(x.view(2, -1, 64), w, b) * 2, x.sum()


def given_in_part(x, w, b):
    return (x @ w.t())[:, 5:]


def in_heads(x, w, b):
    return (x @ w.t()).view(-1, 5, 50).transpose(0, 1).contiguous() + 1


def in_part_of_heads(x, w, b):
    return (x @ w.t())[:, :240].view(-1, 3, 80).permute(1, 2, 0).contiguous() * 2


def one_column(x, w, b):
    return (x @ w.t())[:, 3] + 1


def one_column_for_all(x, w, b):
    return (x @ w.t())[:, 3:4] + torch.zeros(1, 7, dtype=x.dtype)


def read_twice(x, w, b):
    logits = x @ w.t()
    return logits * 2, logits.float().exp().sum(1)


def of_columns(x, w, b):
    return (x @ w.t()).t() + 1


def and_a_loss(x, w, b):
    logits, labels = x @ w.t(), torch.arange(x.shape[0]) * 3
    return logits, torch.nn.functional.cross_entropy(logits.float(), labels)


def biased_and_a_loss(x, w, b):
    logits = torch.nn.functional.linear(x.view(2, -1, 64), w, b)
    picked = logits.float().log_softmax(2).gather(2, torch.arange(x.shape[0]).view(2, -1, 1) * 3)
    return picked.sum(), logits


def rounded_and_exact(x, w, b):
    """What is not rounded is not read from a result that is."""
    exact = (x @ w.t()).float() * 1.0001
    return exact.bfloat16(), exact.exp().sum(1)


def sum_of_rows(x, w, b):
    logits = x @ w.t()
    return logits + 1, logits.sum(0)


def read_by_a_product(x, w, b):
    logits = x @ w.t()
    return logits * 2, logits @ w


def arguments(count=32, classes=250):
    torch.manual_seed(0)
    dtype = torch.bfloat16
    return torch.randn(count, 64).to(dtype), torch.randn(classes, 64).to(dtype), torch.randn(classes).to(dtype)


def close(found, wanted):
    """Sums are rounded to bfloat16 in another order."""
    torch.testing.assert_close(found, wanted, rtol=0.016, atol=0.05)


PRODUCTS = (torch.ops.aten.mm.out, torch.ops.aten.addmm.out)


def products(program):
    return [c for c in program.computations if isinstance(c, Extern) and c.out_variant in PRODUCTS]


BLOCKED = {
    rows: 4, biased: 4, of_a_batch: 4, of_columns: 4, and_a_loss: 4, biased_and_a_loss: 1,
    rounded_and_exact: 1, given_in_part: 1, in_heads: 1, in_part_of_heads: 4, one_column: 1, one_column_for_all: 1,
    read_twice: 1, sum_of_rows: 1, read_by_a_product: 2,
}  # fmt: skip


@pytest.mark.spread(2, "count", "function")
@pytest.mark.parametrize("function", list(BLOCKED))
@pytest.mark.parametrize("count", [6, 32, 34, 66])
def test_values_are_those_of_the_whole(function, count):
    args = arguments(count)
    program = row_blocks.in_blocks_of_rows(lower(trace(function, args)))
    verify(program)
    library_adds = function is biased_and_a_loss and count >= 64  # the bias, before the sum is rounded
    assert len(products(program)) == (4 if library_adds else BLOCKED[function])
    wanted = function(*args)
    for found in (run(program, list(args)), compile_graph.compile_graph(trace(function, args))(list(args))):
        close(tuple(found), wanted if isinstance(wanted, tuple) else (wanted,))


@pytest.mark.parametrize("function", [rows, biased, of_a_batch, and_a_loss, biased_and_a_loss])
def test_rows_that_vary(function):
    compiled = pliant.compile(function, dynamic=True)
    with torch.no_grad():
        for count in (32, 2, 4, 6, 34):
            args = arguments(count)
            close(compiled(*args), function(*args))
    assert pliant.stats()["graphs"] <= 2


@pytest.mark.parametrize("change", [{"classes": 256}, {"count": 2}])
def test_products_that_are_left(change):
    program = lower(trace(rows, arguments(**change)))
    assert row_blocks.in_blocks_of_rows(program) is program


def test_a_factor_that_is_written_before_the_copy():
    def writes(x, w, b):
        logits = x @ w.t()
        w.mul_(2)
        return logits * 2 + w.sum(1)

    args, others = arguments(), arguments()
    close(pliant.compile(writes)(*args), writes(*others))
    torch.testing.assert_close(args, others)


@pytest.mark.parametrize("function", [rows, of_a_batch])
def test_all_blocks_are_behind_the_recording(monkeypatch, function):
    monkeypatch.setattr(large_results, "LARGE", 1024)
    args = arguments()
    program = row_blocks.in_blocks_of_rows(lower(trace(lambda x, w, b: function(x.tanh(), w, b), args)))
    parts = large_results.split(program)
    assert parts is not None
    assert not products(parts.begin)
    assert len(products(parts.end)) == 4
