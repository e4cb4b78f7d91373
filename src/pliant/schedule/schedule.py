"""From a loop program to kernels in order: the pass as one function.

In:     a `LoopProgram`.
Out:    a `Schedule`.
Reads on: `moments.py`, `split.py`, `fuse.py`, `order.py`, `memory.py`; `kernel.py` has the types.
"""

from __future__ import annotations

from pliant import config
from pliant.ir.failing import may_fail
from pliant.ir.loops import Buffer, Computation, LoopProgram
from pliant.ir.verify import verify
from pliant.schedule.dependencies import writes_input
from pliant.schedule.fast_scalars import in_fast_scalars
from pliant.schedule.fuse import fuse
from pliant.schedule.kernel import ExternCall, Kernel, Schedule, Step, runs
from pliant.schedule.known_values import read_known_values
from pliant.schedule.memory import plan
from pliant.schedule.moments import moments_in_one_pass
from pliant.schedule.order import early_kernels, products_in_turn
from pliant.schedule.rows_apart import rows_apart
from pliant.schedule.split import split_reductions


def schedule(program: LoopProgram, options: config.Schedule) -> Schedule:
    """Fuse, order and plan the memory of a program."""
    program = _checked(rows_apart(program), program, "rows apart")
    summed = _checked(moments_in_one_pass(program), program, "moments")
    program = _checked(split_reductions(summed, set(summed.computations).difference(program.computations)), summed, "split")
    if config.get().build.numerics == "fast":
        program = _checked(in_fast_scalars(program), program, "fast scalars")
    steps = products_in_turn(program, early_kernels(program, fuse(program, options)))
    read_known_values(steps)
    _set_apart(steps)
    return plan(program, steps, options)


def _checked(changed: LoopProgram, program: LoopProgram, name: str) -> LoopProgram:
    if changed is not program and config.get().general.verify_passes:
        verify(changed, name)
    return changed


def _set_apart(steps: list[Step]) -> None:
    """Begin a run of kernels at the first that writes an input: a run goes on to its end before it says that it failed."""
    first = next((k for k, step in enumerate(steps) if any(map(writes_input, _parts(step)))), 0)
    step = steps[first] if first else None
    if isinstance(step, Kernel):
        (before,) = [run for run in runs(steps) if first in run]
        step.apart = any(may_fail(part) for k in range(before.start, first) for part in _parts(steps[k]))


def _parts(step: Step) -> list[Computation]:
    return [m.loops for m in step.members] if isinstance(step, Kernel) else [step.extern]


def schedule_text(planned: Schedule) -> str:
    """A line a step: the buffers that it computes; in brackets those that stay in registers."""
    return "\n".join(map(step_text, planned.steps))


def step_text(step: Step) -> str:
    """One step."""
    if isinstance(step, ExternCall):
        outs = ", ".join(out.name for out in step.extern.outs if out is not None)
        return f"call    {step.extern.target} -> {outs}"
    outs = ", ".join(_out_text(step, member.loops.out) for member in step.members)
    return f"kernel  over {', '.join(f'{a.symbol} < {a.extent}' for a in step.axes) or '1'} -> {outs}"


def _out_text(kernel: Kernel, out: Buffer) -> str:
    return out.name if out in kernel.stored else f"[{out.name}]"
