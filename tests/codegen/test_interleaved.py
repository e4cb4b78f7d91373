"""Two kernels that go through the same rows take them in turn: what both read comes from memory once."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from lowering.tracing import lowered
from pliant import config
from pliant.codegen.interleaved import Pair, in_turn, write_pair
from pliant.codegen.native import write_native
from pliant.codegen.wrapper import runs_of
from pliant.runtime.compile_program import compile_program
from pliant.schedule.kernel import Kernel
from pliant.schedule.memory import kernel_buffers
from pliant.schedule.schedule import schedule

ROWS, COLUMNS = 1031, 512  # more than the cache, and no whole number of blocks
aten = torch.ops.aten


def layer_norm_gradients(g, x, mean, rstd, w, b):
    return aten.native_layer_norm_backward(g, x, [x.shape[1]], mean, rstd, w, b, [True, True, True])


def softmax_and_sums(x):
    return torch.softmax(x, 1), x.sum(0), (x * x).sum(0)


def normalized_and_extremes(x):
    return x / x.norm(dim=1, keepdim=True), x.amax(0), x.argmin(0)


def arguments(dtype=torch.float32, rows=ROWS):
    torch.manual_seed(0)
    x = torch.randn(rows, COLUMNS, dtype=dtype)
    _, mean, rstd = aten.native_layer_norm(x, [COLUMNS], None, None, 1e-5)
    return torch.randn_like(x), x, mean, rstd, torch.randn(COLUMNS, dtype=dtype), torch.randn(COLUMNS, dtype=dtype)


PROGRAMS = {
    "layer norm": (layer_norm_gradients, arguments()),
    "layer norm, half": (layer_norm_gradients, arguments(torch.bfloat16, 2 * ROWS)),
    "softmax": (softmax_and_sums, (arguments()[1],)),
    "extremes": (normalized_and_extremes, (arguments()[1],)),
}


def kernels_of(f, *args) -> list[Kernel]:
    program = dataclasses.replace(lowered(f, *args), held=frozenset(range(len(args))))  # the caller keeps them
    (run,) = runs_of(schedule(program, config.Config().schedule))
    return run


def text_of(f, *args) -> str:
    planned = schedule(lowered(f, *args), config.Config().schedule)
    return write_native(runs_of(planned), {}, planned.scratch, planned.in_place).texts[0]


@pytest.mark.parametrize("name", PROGRAMS)
def test_there_is_one_kernel_and_it_computes_what_eager_does(name):
    f, args = PROGRAMS[name]
    (pair,) = in_turn(kernels_of(f, *args), {}, set())
    assert isinstance(pair, Pair) and not pair.ordered
    compiled, exact = compile_program(lowered(f, *args)), f(*[a.double() for a in args])
    for threads in (1, 2):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            found = compiled([*args])
        finally:
            torch.set_num_threads(before)
        for got, eager, right in zip(found, f(*args), exact, strict=True):
            allowed = 2 * (eager.double() - right).abs().max() + 1e-6 * right.abs().max()
            assert (got.double() - right).abs().max() <= allowed


def test_each_gradient_of_layer_norm_reads_memory_once():
    """Behind a block of rows that one kernel went through, the other asks for nothing ahead: it is in the cache."""
    text = text_of(layer_norm_gradients, *arguments())
    rows, folds = text.split("_rows(void** p", 1)[1].split("_part(void** p", 1)
    assert rows.count("p_load_far(") and folds.count("p_load(")
    assert "p_load_far(" not in folds and "p_load_ahead(" not in folds
    assert text.count("_rows(p, n, from, to") == 1 and folds.count("p_run(") == 1


@pytest.mark.parametrize(
    "f, args",
    [
        (layer_norm_gradients, arguments(rows=64)),  # in the cache anyway
        (lambda x, y: (torch.softmax(x, 1), y.sum(0)), arguments()[:2]),  # nothing in common
        (lambda x: (torch.softmax(x, 1), x.sum(0)), (torch.zeros(256, 8192),)),  # sums of too many columns for a thread
        (lambda x: (torch.softmax(x, 1), x.sum(0), x.sum(0).sum()), (torch.zeros(3, 1031, 512),)),  # other rows
    ],
)
def test_other_kernels_stay_apart(f, args):
    assert not any(isinstance(one, Pair) for one in in_turn(kernels_of(f, *args), {}, set()))


def layer_norm_kernels() -> tuple[Kernel, Kernel]:
    """The kernel that folds the rows, and that of the input's gradient."""
    one, other = kernels_of(layer_norm_gradients, *arguments())
    return (one, other) if len(one.stored) == 2 else (other, one)


def test_a_result_in_the_memory_of_what_both_read_is_written_behind_both():
    folding, by_row = layer_norm_kernels()
    (result,) = by_row.stored
    read = next(b for b in kernel_buffers(folding) if b.shape == result.shape)
    (pair,) = in_turn([folding, by_row], {result: read}, set())
    assert isinstance(pair, Pair) and pair.ordered
    text = write_pair(pair.first, pair.second, ordered=True).text
    assert text.index("vacc0[u] = vacc0[u] + xacc0", text.index("int64_t from")) < text.index("@_rows(p, n, from, to")


def test_memory_that_does_not_lie_alike_for_both_keeps_them_apart():
    folding, by_row = layer_norm_kernels()
    (result,) = by_row.stored
    sums = next(iter(folding.stored))
    for in_place, scratch in (({result: sums}, set()), ({sums: result}, set()), ({}, {sums})):
        assert list(in_turn([folding, by_row], in_place, scratch)) == [folding, by_row]


def test_layers_with_equal_norms_share_a_text():
    def two(g, x, mean, rstd, w, b, h, y):
        return layer_norm_gradients(g, x, mean, rstd, w, b), layer_norm_gradients(h, y, mean, rstd, w, b)

    args = arguments()
    text = text_of(two, *args, args[0].clone(), args[1].clone())
    assert text.count("_rows(void** p") == 1
