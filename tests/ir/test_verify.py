"""Each rule of the verifier has a program that breaks it, and one that does not."""

from __future__ import annotations

import pytest
import torch

from pliant.errors import VerifyError
from pliant.ir.interpret import run
from pliant.ir.loops import Axis, Buffer, LoopProgram, Pointwise, Reduction, Scan, View
from pliant.ir.printer import program_text
from pliant.ir.scalar import Apply, apply, cast, const, load
from pliant.ir.verify import verify
from pliant.symbolic.expr import ZERO, lit, symbol

f32 = torch.float32
i0, r0, s0 = symbol("i0"), symbol("r0"), symbol("s0")


def make(name: str, role: str = "temporary", dtype: torch.dtype = f32, *shape) -> Buffer:
    sizes = shape or (s0,)
    return Buffer(name, dtype, sizes, (lit(1),) * len(sizes), torch.device("cpu"), role)


A, OUT = make("a", "input"), make("out")
AXES = (Axis(i0, s0),)
ONE = apply("add", load(A, i0), const(1, f32))


def program(*computations, output: Buffer = OUT) -> LoopProgram:
    view = View(output, output.shape, output.strides, ZERO, output.dtype)
    return LoopProgram([A, s0], list(computations), [view])


def test_a_good_program_passes_prints_and_runs():
    total = make("total", "temporary", f32, lit(1))
    good = program(
        Pointwise(OUT, AXES, i0, ONE), Reduction(total, (), (Axis(r0, s0),), "sum", ZERO, load(OUT, r0)), output=total
    )
    verify(good)
    assert program_text(good) == (
        "graph(a: f32[s0], s0)\n"
        "  out[i0 < s0] = add(load(a, i0), 1.0)\n"
        "  total[] = sum(r0 < s0) load(out, r0)\n"
        "  return total"
    )
    assert run(good, [torch.arange(4.0), 4])[0].item() == 10
    assert run(good, [torch.empty(0), 0])[0].item() == 0


BAD = {
    "unknown scan `max`": [Scan(OUT, (), AXES[0], "max", i0, ONE)],
    "the scanned value": [Scan(OUT, (), AXES[0], "sum", i0, ONE, torch.float64)],
    "read before it is written": [Pointwise(OUT, AXES, i0, load(make("late"), i0))],
    "written twice": [Pointwise(OUT, AXES, i0, ONE)] * 2,
    "after it was updated in place": [Pointwise(A, AXES, i0, ONE), Pointwise(OUT, AXES, i0, ONE)],
    "is not defined here": [Pointwise(OUT, AXES, i0, load(A, r0))],
    "expected torch.float32": [Pointwise(OUT, AXES, i0, cast(ONE, torch.int64))],
    "different dtypes": [Pointwise(OUT, AXES, i0, Apply(f32, "add", (load(A, i0), const(1, torch.int64))))],
    "is not defined for torch.int64": [
        Pointwise(OUT, AXES, i0, cast(Apply(torch.int64, "sqrt", (const(4, torch.int64),)), f32))
    ],
    "is not defined for torch.bfloat16": [
        Pointwise(OUT, AXES, i0, cast(Apply(torch.bfloat16, "neg", (cast(ONE, torch.bfloat16),)), f32))
    ],
    "unknown operator": [Pointwise(OUT, AXES, i0, Apply(f32, "frobnicate", (ONE,)))],
    "takes 2 arguments": [Pointwise(OUT, AXES, i0, Apply(f32, "add", (ONE,)))],
    "unknown reduction": [Reduction(OUT, AXES, (), "median", i0, ONE)],
    "share a symbol": [Pointwise(OUT, (*AXES, *AXES), i0, ONE)],
    "also a size symbol": [Pointwise(OUT, (Axis(s0, s0),), s0, load(A, s0))],
    "never written": [],
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_program_is_refused(message):
    with pytest.raises(VerifyError, match=message):
        verify(program(*BAD[message]), "a pass")


def test_a_load_outside_is_an_error_unless_it_is_not_chosen():
    beyond = load(A, i0 + 1)
    with pytest.raises(IndexError):
        run(program(Pointwise(OUT, AXES, i0, beyond)), [torch.arange(3.0), 3])
    from pliant.ir.scalar import index_value, where

    guarded = where(apply("lt", index_value(i0 + 1), index_value(s0)), beyond, const(-1, f32))
    assert run(program(Pointwise(OUT, AXES, i0, guarded)), [torch.arange(3.0), 3])[0].tolist() == [1, 2, -1]
