"""A schedule as rows, for whoever shows it: which nodes a step computes, in which native function, and what it costs.

In:     a `Schedule`, and the entries of its runs.
Out:    `StepRow`s in order. They hold expressions and texts, no buffers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from pliant import config
from pliant.ir.loops import LoopProgram
from pliant.ir.printer import computation_text
from pliant.schedule.costs import alive, moved, operations, waiting
from pliant.schedule.fuse import why_apart
from pliant.schedule.kernel import ExternCall, Kernel, Schedule, Step, runs
from pliant.schedule.schedule import step_text
from pliant.symbolic.expr import ZERO, Expr


class Entry(Protocol):
    """A native call, and the functions that it calls, in order."""

    @property
    def name(self) -> str: ...
    @property
    def functions(self) -> tuple[str, ...]: ...


class StepRow(NamedTuple):
    """One step. `is_kernel`, else it is an operator's call.

    nodes: of the ATen graph, after which its loops are named; others may be computed within these. text, loops: what it
    computes, over buffers. run: the number of its native call, `entry`. functions: its own, or those of the whole call where
    several kernels share one. read, written: bytes. operations: of scalars. alive: bytes that the program has allocated then.
    waiting: bytes of inputs that nobody else keeps and that this step or a later one reads. apart: why a kernel is not one with
    the kernel right before it.
    """

    is_kernel: bool
    nodes: tuple[str, ...]
    text: str
    loops: str
    run: int
    entry: str
    functions: tuple[str, ...]
    device: str
    read: Expr
    written: Expr
    operations: Expr
    alive: Expr
    waiting: Expr
    apart: str


def step_rows(
    program: LoopProgram, plan: Schedule, entries: Sequence[Entry], options: config.Schedule
) -> tuple[StepRow, ...]:
    """The rows. `entries`: of the runs of kernels, in order; `options`: those that the schedule was made with."""
    held, kept, called, apart = alive(plan), waiting(program, plan), iter(entries), _reasons(plan, options)
    found: list[StepRow] = []
    for number, run in enumerate(runs(plan.steps)):
        steps = [plan.steps[k] for k in run]
        entry = next(called) if isinstance(steps[0], Kernel) else None
        functions = () if entry is None else entry.functions
        alone = len(functions) == len(steps)
        for k, step in enumerate(steps):
            own = functions[k : k + 1] if alone else tuple(dict.fromkeys(functions))
            found.append(_row(step, number, "" if entry is None else entry.name, own, held[run.start + k], kept[run.start + k], apart[run.start + k]))
    return tuple(found)


def _reasons(plan: Schedule, options: config.Schedule) -> list[str]:
    """For each step why it is not one kernel with the step before; empty for calls and behind them."""
    pairs = zip(plan.steps, plan.steps[1:])
    both = [why_apart(a, b, options) if isinstance(a, Kernel) and isinstance(b, Kernel) else "" for a, b in pairs]
    return ["", *both]


def _row(step: Step, run: int, entry: str, functions: tuple[str, ...], held: Expr, kept: Expr, apart: str) -> StepRow:
    parts = [step.extern] if isinstance(step, ExternCall) else [m.loops for m in step.members]
    read, written = moved(step)
    return StepRow(
        is_kernel=isinstance(step, Kernel),
        nodes=tuple(dict.fromkeys(part.origin.node for part in parts if part.origin.node)),
        text=step_text(step),
        loops="\n".join(map(computation_text, parts)),
        run=run,
        entry=entry,
        functions=functions,
        device=str(step.device) if isinstance(step, Kernel) else "",
        read=read,
        written=written,
        operations=ZERO if isinstance(step, ExternCall) else operations(step),
        alive=held,
        waiting=kept,
        apart=apart,
    )
