"""From a loop program to kernels in order: the pass as one function.

In:     a `LoopProgram`.
Out:    a `Schedule`.
Reads on: `fuse.py`, `order.py`, `memory.py`; `kernel.py` has the types.
"""

from __future__ import annotations

from pliant import config
from pliant.ir.loops import Buffer, LoopProgram
from pliant.schedule.fuse import fuse
from pliant.schedule.kernel import ExternCall, Kernel, Schedule, Step
from pliant.schedule.memory import plan
from pliant.schedule.order import early_folds, products_in_turn


def schedule(program: LoopProgram, options: config.Schedule) -> Schedule:
    """Fuse, order and plan the memory of a program."""
    steps = products_in_turn(program, early_folds(program, fuse(program, options)))
    return plan(program, steps, options)


def schedule_text(planned: Schedule) -> str:
    """A line a step: the buffers that it computes; in brackets those that stay in registers."""
    return "\n".join(map(_step_text, planned.steps))


def _step_text(step: Step) -> str:
    if isinstance(step, ExternCall):
        outs = ", ".join(out.name for out in step.extern.outs if out is not None)
        return f"call    {step.extern.target} -> {outs}"
    outs = ", ".join(_out_text(step, member.loops.out) for member in step.members)
    return f"kernel  over {', '.join(f'{a.symbol} < {a.extent}' for a in step.axes) or '1'} -> {outs}"


def _out_text(kernel: Kernel, out: Buffer) -> str:
    return out.name if out in kernel.stored else f"[{out.name}]"
