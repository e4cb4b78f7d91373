"""Reductions of few results as reductions of chunks: the same values, from many blocks."""

import dataclasses

import pytest
import torch

from loop_programs import Program, get
from pliant.ir.interpret import run
from pliant.ir.loops import Reduction
from pliant.ir.scalar import IndexValue, apply, walk
from pliant.ir.verify import verify
from pliant.runtime.compile_program import compile_program
from pliant.schedule.split import split_reductions
from pliant.symbolic.expr import Symbol, symbol
from pliant.targets import cpu, registry


@pytest.fixture(autouse=True)
def target():
    """The host, splitting as a GPU of eight multiprocessors does."""
    there = cpu.target()
    registry.provide("cpu", lambda _: dataclasses.replace(there, splits_programs=True, lanes=4, vector_bytes=1, split_outer=16, parts=32))
    yield
    registry.provide("cpu", lambda _: there)


def reduced(op, outer, over, dtype, *, columns=False):
    p = Program()
    for s in (*outer, *over):
        if isinstance(s, Symbol):
            p.program.inputs.append(s)
    x = p.tensor(*over, *outer, dtype=dtype) if columns else p.tensor(*outer, *over, dtype=dtype)
    index = (lambda *at: at[len(outer) :] + at[: len(outer)]) if columns else (lambda *at: at)
    return p.done(p.reduce(op, outer, over, lambda *at: get(x, *index(*at)), dtype)), x


CASES = [
    ((), (100_000,), False),
    ((3,), (9973,), False),
    ((2,), (7, 11, 257), False),
    ((40,), (5000,), True),
    ((6,), (3, 4001), True),
]

FLOATS = [("sum", torch.float64), ("max", torch.float32), ("prod", torch.float64)]
OPERATORS = [*FLOATS, ("sum", torch.int64), ("min", torch.int32), ("any", torch.bool), ("all", torch.bool)]


@pytest.mark.spread(2, "outer", "op", "symbolic")
@pytest.mark.parametrize("outer, over, columns", CASES)
@pytest.mark.parametrize("op, dtype", OPERATORS)
@pytest.mark.parametrize("symbolic", [False, True, "first"])
def test_values(op, dtype, outer, over, columns, symbolic):
    sizes = (*outer, *over)
    names = tuple(symbol(f"s{k}") if symbolic is True or symbolic and k == len(outer) else n for k, n in enumerate(sizes))
    program, x = reduced(op, names[: len(outer)], names[len(outer) :], dtype, columns=columns)
    if symbolic:
        program.hints = {s: n for s, n in zip(names, sizes, strict=True) if isinstance(s, Symbol)}
    divided = split_reductions(program)
    verify(divided, "split")
    assert sum(isinstance(c, Reduction) for c in divided.computations) == 2
    shape = (*over, *outer) if columns else sizes
    torch.manual_seed(0)
    values = torch.rand(shape, dtype=torch.float64)
    values = (values < 0.9999) if dtype is torch.bool else 1 + values / 1e4 if op == "prod" else values * 100
    given = [*(n for s, n in zip(names, sizes, strict=True) if isinstance(s, Symbol)), values.to(dtype)]
    (expected,), (found,) = run(program, given), run(divided, given)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)
    if op == "sum" and dtype is torch.float64:
        torch.testing.assert_close(compile_program(program)(list(given))[0], expected, rtol=1e-9, atol=0)


def test_loops_of_known_extents_are_divided_before_those_that_vary():
    """Images in a batch of any size, channels last: chunks of images, none of which may be empty."""
    batch = symbol("n")
    program, _ = reduced("sum", (4,), (batch, 3136), torch.float32, columns=True)
    program.hints = {batch: 4}
    part, whole = split_reductions(program).computations
    assert [a.extent.as_int() for a in part.axes] == [32, 4]
    assert sum(a.extent.as_int() is None for a in part.reduce_axes) == 1
    assert not any(isinstance(node, IndexValue) for node in walk(part.value))  # each chunk's points are all there
    assert [a.extent.as_int() for a in whole.reduce_axes] == [32]


def test_loops_that_vary_are_divided_as_one():
    """Chunks of all tokens, not of the few sequences."""
    batch, length = symbol("n"), symbol("l")
    program, _ = reduced("sum", (4,), (batch, length), torch.float32, columns=True)
    program.hints = {batch: 4, length: 128}
    part, _ = split_reductions(program).computations
    assert [a.extent.as_int() for a in part.axes] == [32, 4]
    assert len(part.reduce_axes) == 1 and part.reduce_axes[0].extent.free == {batch, length}


def test_what_is_left_alone():
    for outer, over in (((1000,), (5000,)), ((3,), (100,))):
        program, _ = reduced("sum", outer, over, torch.float32)
        assert split_reductions(program).computations == program.computations
    program, _ = reduced("argmax", (1,), (100_000,), torch.float32)
    assert split_reductions(program).computations == program.computations


def test_what_a_row_has_once_does_not_make_it_a_column():
    """Rows of deviations from their means lie along memory."""
    p = Program()
    x, mean = p.tensor(40, 4096), p.tensor(40)
    program = p.done(p.reduce("sum", (40,), (4096,), lambda i, r: apply("sub", get(x, i, r), get(mean, i))))
    assert split_reductions(program).computations == program.computations


def test_loads_that_lie_in_two_ways_are_split_for_the_fewer_blocks():
    """A kernel that runs along the results has few blocks, whatever the other load would want."""
    p = Program()
    along, across = p.tensor(8, 4096), p.tensor(4096, 8)
    out = p.reduce("sum", (8,), (4096,), lambda i, r: apply("mul", get(along, i, r), get(across, r, i)))
    parts = split_reductions(p.done(out)).computations[0]
    assert parts.axes[0].extent.as_int() >= 16


@pytest.mark.parametrize("written", ["", "by itself", "from them"])
def test_rows_that_a_cluster_keeps_are_whole_where_they_are_written(written):
    there = cpu.target()
    registry.provide("cpu", lambda _: dataclasses.replace(
        there, splits_programs=True, lanes=4, vector_bytes=1, split_outer=16, parts=32, split_inner=4096, cluster=4
    ))  # fmt: skip
    p = Program()
    x = p.tensor(6, 40_000)
    total = p.reduce("sum", (6,), (40_000,), lambda i, j: get(x, i, j), torch.float32)
    mean = p.pointwise((6,), lambda i: get(total, i))
    by = {"by itself": lambda i, j: get(x, i, j), "from them": lambda i, j: apply("div", get(x, i, j), get(mean, i))}
    results = [total, mean, *([p.pointwise((6, 40_000), by[written])] if written else [])]
    divided = split_reductions(p.done(*results))
    assert sum(isinstance(c, Reduction) for c in divided.computations) == (1 if written == "from them" else 2)
