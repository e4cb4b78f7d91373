"""What the steps of a schedule move, compute and hold, as expressions in sizes.

In:     a `Schedule`.
Out:    bytes read and written by a step, scalar operations of a kernel, bytes allocated at each step.
Holds:  bytes are those of memory: a kernel reads each buffer once, and what stays in its registers is not counted.
"""

from __future__ import annotations

from collections.abc import Iterable

from pliant.ir.loops import Axis, Buffer, LoopProgram, View
from pliant.ir.scalar import Apply, walk
from pliant.schedule.dependencies import access
from pliant.schedule.fuse import total
from pliant.schedule.kernel import ExternCall, Kernel, Schedule, Step, all_axes, loads_of
from pliant.schedule.memory import kernel_buffers
from pliant.symbolic.expr import ONE, ZERO, Expr
from pliant.symbolic.rules.extrema import minimum


def total_of(parts: Iterable[Expr]) -> Expr:
    """The sum."""
    found: Expr = ZERO
    for part in parts:
        found = found + part
    return found


def operations(kernel: Kernel) -> Expr:
    """Scalar operations of all points: those of a computation's value, and one more where points are folded."""
    return total_of(
        total(all_axes(m.loops)) * (len({x for x in walk(m.loops.value) if isinstance(x, Apply)}) + (m.loops.axes != all_axes(m.loops)))
        for m in kernel.members
    )


def bytes_of(buffer: Buffer) -> Expr:
    """Of the elements, those that share memory (expanded dimensions) once."""
    count: Expr = ONE
    for extent, stride in zip(buffer.shape, buffer.strides, strict=True):
        count = count if stride is ZERO else count * extent
    return count * buffer.dtype.itemsize


def moved(step: Step) -> tuple[Expr, Expr]:
    """Bytes that a step reads and writes."""
    if isinstance(step, ExternCall):
        touched = access(step.extern)
        return total_of(map(bytes_of, touched.reads)), total_of(map(bytes_of, touched.writes))
    own = {m.loops.out for m in step.members}
    reads = [b for b in kernel_buffers(step) if b not in own or b not in step.stored]
    return total_of(_read(step, b) for b in reads), total_of(map(bytes_of, step.stored))


def _read(kernel: Kernel, buffer: Buffer) -> Expr:
    """At most the whole buffer, and at most an element for each point that the index tells apart."""
    loads = [m.at(load.index) for m in kernel.members for load in loads_of(m.loops) if load.buffer is buffer]
    points = [_points(kernel, index) for index in dict.fromkeys(loads)]
    return minimum(bytes_of(buffer), total_of(points) * buffer.dtype.itemsize)


def _points(kernel: Kernel, index: Expr) -> Expr:
    axes: list[Axis] = [a for a in kernel.axes if a.symbol in index.free]
    return total(axes)


def alive(plan: Schedule) -> list[Expr]:
    """Bytes that the program has allocated at each step."""
    owned: dict[Buffer, Expr] = {}
    found = []
    for step, made, dead in zip(plan.steps, plan.allocate, plan.free, strict=True):
        results = [b for b in step.extern.outs if b is not None] if isinstance(step, ExternCall) else []
        for buffer in (*made, *results):
            owned[buffer] = ZERO if buffer in plan.in_place else bytes_of(buffer)
        found.append(total_of(owned.values()))
        for buffer in dead:
            if buffer not in plan.in_place.values():
                owned.pop(buffer, None)
    return found


def waiting(program: LoopProgram, plan: Schedule) -> list[Expr]:
    """Bytes of inputs that the caller does not keep, at each step: those that this or a later one reads."""
    given = [b for k, b in enumerate(program.inputs) if isinstance(b, Buffer) and k not in program.held]
    last: dict[Buffer, int] = {}
    for k, step in enumerate(plan.steps):
        last.update(dict.fromkeys(access(step.extern).reads if isinstance(step, ExternCall) else kernel_buffers(step), k))
    return [total_of(bytes_of(b) for b in given if last.get(b, -1) >= k) for k in range(len(plan.steps))]


def results_of(program: LoopProgram) -> Expr:
    """Bytes of what the program returns in memory of its own."""
    given = {b for b in program.inputs if isinstance(b, Buffer)}
    return total_of(bytes_of(b) for b in {v.buffer for v in program.outputs if isinstance(v, View)} - given)
