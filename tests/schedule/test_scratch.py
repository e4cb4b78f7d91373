"""Small temporaries inside a run of kernels need no tensor."""

import torch

from loop_programs import Program, get
from pliant import config
from pliant.ir.loops import Buffer
from pliant.ir.scalar import apply
from pliant.runtime.compile_program import compile_program
from pliant.schedule.kernel import loads_of
from pliant.schedule.schedule import schedule
from pliant.targets import cpu

OPTIONS = config.Config().schedule


def chain(rows: int, columns: int, steps: int) -> Program:
    """Rows and then columns reduced in turns, so that nothing fuses."""
    p = Program()
    x = p.tensor(rows, columns)
    for _ in range(steps):
        total = p.reduce("sum", (columns,), (rows,), lambda j, i, x=x: get(x, i, j))
        x = p.pointwise((rows, columns), lambda i, j, x=x: apply("sub", get(x, i, j), get(total, j)))
        top = p.reduce("max", (rows,), (columns,), lambda i, j: get(x, i, j))
        x = p.pointwise((rows, columns), lambda i, j: apply("sub", get(x, i, j), get(top, i)))
    p.done(x)
    return p


def bytes_of(b: Buffer) -> int:
    return b.shape[0].as_int() * (b.shape[1].as_int() if len(b.shape) > 1 else 1) * b.dtype.itemsize


def test_only_the_result_is_allocated():
    p = chain(5, 3, 4)
    planned = schedule(p.program, OPTIONS)
    assert sum(map(len, planned.allocate)) == 1 and planned.scratch
    torch.manual_seed(0)
    x = torch.randn(5, 3)
    want = x
    for _ in range(4):
        want = want - want.sum(0)
        want = want - want.amax(1, keepdim=True)
    torch.testing.assert_close(compile_program(chain(5, 3, 4).program)([x])[0], want)


def test_what_lives_at_once_does_not_overlap():
    p = chain(7, 9, 6)
    planned = schedule(p.program, OPTIONS)
    names = {b: k for k, b in enumerate(planned.scratch)}
    spans: dict[Buffer, list[int]] = {}
    for k, step in enumerate(planned.steps):
        for member in step.members:
            for b in names:
                if b is member.loops.out or any(load.buffer is b for load in loads_of(member.loops)):
                    spans.setdefault(b, []).append(k)
    for a in names:
        for b in names:
            alive_together = spans[a][0] <= spans[b][-1] and spans[b][0] <= spans[a][-1]
            apart = (
                planned.scratch[a] + bytes_of(a) <= planned.scratch[b]
                or planned.scratch[b] + bytes_of(b) <= planned.scratch[a]
            )
            assert a is b or apart or not alive_together
    assert len(set(planned.scratch.values())) < len(planned.scratch)  # memory is used again


def test_large_buffers_are_tensors():
    planned = schedule(chain(64, 64, 2).program, OPTIONS)
    assert all(bytes_of(b) <= cpu.target().scratch_each for b in planned.scratch)
    assert sum(map(len, planned.allocate)) > 1
