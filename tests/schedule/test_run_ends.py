"""Runs of kernels end where they would hold more memory till their end than kernels that are calls of their own."""

import dataclasses

import pytest

from loop_programs import Program, get
from pliant import config
from pliant.ir.scalar import apply
from pliant.schedule.kernel import runs
from pliant.schedule.schedule import schedule

OPTIONS = config.Config().schedule


def normalized(tensors: int, columns: int) -> Program:
    """Of each input its columns less their sum, as results: inputs of different lengths, so that nothing fuses."""
    p = Program()
    results = []
    for k in range(tensors):
        x = p.tensor(256 + k, columns)
        total = p.reduce("sum", (columns,), (256 + k,), lambda j, i, x=x: get(x, i, j))
        results.append(p.pointwise((256 + k, columns), lambda i, j, x=x, t=total: apply("sub", get(x, i, j), get(t, j))))
    p.done(*results)
    return p


def most(planned) -> int:
    """Bytes of float32 at a time, where each run allocates before it and frees behind it; inputs are the program's."""
    sizes = {}
    now = peak = 0
    given = {b for free in planned.free for b in free} - {b for made in planned.allocate for b in made}
    for b in given:
        sizes[b] = 4 * b.shape[0].as_int() * b.shape[-1].as_int()
        now += sizes[b]
    for run in runs(planned.steps):
        for b in [b for k in run for b in planned.allocate[k] if b not in planned.in_place]:
            sizes[b] = 4 * b.shape[0].as_int() * b.shape[-1].as_int()
            now += sizes[b]
        peak = max(peak, now)
        now -= sum(sizes.get(b, 0) for k in run for b in planned.free[k])
    return peak


@pytest.mark.parametrize("columns, held, cut", [(512, False, True), (512, True, False), (4, False, False)])
def test_runs_end_where_memory_would_be_held(columns, held, cut):
    """Inputs that the caller keeps are not free at the end of a run, and small ones are not worth a call."""
    program = normalized(8, columns).program
    if held:
        program = dataclasses.replace(program, held=frozenset(range(8)))
    planned = schedule(program, OPTIONS)
    assert (len(runs(planned.steps)) > 1) == cut
    if cut:
        assert most(planned) < 10.5 * 260 * columns * 4  # of 16 tensors
