"""What the inner loops of a kernel compute at each point, and its outer loops have computed once, is read from there.

In:     the steps of a program.
Out:    the same; computations of kernels that reduce load such values from the buffers of others.
Holds:  outer loops of a phase are done before its inner ones. A part of a value is the same where it is the same expression of
        the kernel's loops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from pliant.ir.loops import Pointwise, Reduction
from pliant.ir.scalar import Apply, Scalar, load, replace
from pliant.ir.scalar import substitute as substitute_scalar
from pliant.schedule.kernel import Kernel, Member, Step, accumulates, loads_of


def read_known_values(steps: Iterable[Step]) -> None:
    """Change the kernels among the steps."""
    for step in steps:
        if isinstance(step, Kernel) and step.reduced:
            known = {value: m for m in step.members for value in _known(m)}
            if known:
                step.members = list(_members(step, known))


def _known(m: Member) -> Iterator[Scalar]:
    """The value of a computation of the outer loops, over the kernel's loops, if it is worth keeping."""
    loops = m.loops
    if isinstance(loops, Pointwise) and not m.inner and not accumulates(loops) and isinstance(loops.value, Apply):
        if loops.value.dtype is loops.out.dtype and loops.out.role != "input":  # an input may be read before it is written
            yield substitute_scalar(loops.value, m.place)


def _members(kernel: Kernel, known: Mapping[Scalar, Member]) -> Iterator[Member]:
    """All of them, what is read now before what reads it."""
    moved: set[int] = set()
    written = {m.loops.out: k for k, m in enumerate(kernel.members)}
    for k, m in enumerate(kernel.members):
        ready = {v: one for v, one in known.items() if all(written.get(x.buffer, -1) < k for x in loads_of(one.loops))}
        changed = _reading(kernel, m, ready)
        if changed is not m:
            read = {x.buffer for x in loads_of(changed.loops)}
            for one in ready.values():
                if one.loops.out in read and written[one.loops.out] > k and id(one) not in moved:
                    moved.add(id(one))
                    yield one
        if id(m) not in moved:
            yield changed


def _reading(kernel: Kernel, m: Member, known: Mapping[Scalar, Member]) -> Member:
    """The computation over the kernel's loops, if it can read something."""
    loops = m.loops
    if not m.inner or not isinstance(loops, Reduction) or loops.op.startswith("arg"):
        return m
    there = {v: load(one.loops.out, one.store_index) for v, one in known.items() if one.phase <= m.phase}
    value = substitute_scalar(loops.value, m.place)
    found = replace(value, there)
    if found is value:
        return m
    changed = dataclasses.replace(
        loops, axes=tuple(kernel.outer), reduce_axes=tuple(kernel.inner), index=m.store_index, value=found
    )
    return Member(changed, {a.symbol: a.symbol for a in kernel.axes}, True, m.phase)
