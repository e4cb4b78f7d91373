"""Decide which buffers exist in memory, for how long, and where.

In:     the steps in order and the program's inputs and outputs.
Out:    a `Schedule`: stores that are needed, what to allocate before and free after each step.
Holds:  a buffer lives from its first write to its last use; outputs are tensors of their own.
"""

from __future__ import annotations

from pliant import config
from pliant.ir.loops import Buffer, LoopProgram, View
from pliant.ir.scalar import Load
from pliant.schedule.dependencies import access
from pliant.schedule.kernel import ExternCall, Kernel, Schedule, Step, loads_of


def plan(program: LoopProgram, steps: list[Step], options: config.Schedule) -> Schedule:
    """The schedule of these steps."""
    kept = {v.buffer for v in program.outputs if isinstance(v, View)}
    _decide_stores(steps, kept)
    uses = [_uses(step) for step in steps]
    given = {b for b in program.inputs if isinstance(b, Buffer)} | set(program.constants)
    first: dict[Buffer, int] = {}
    last: dict[Buffer, int] = {}
    for k, used in enumerate(uses):
        for buffer in used:
            first.setdefault(buffer, k)
            last[buffer] = k
    allocate: list[list[Buffer]] = [[] for _ in steps]
    free: list[list[Buffer]] = [[] for _ in steps]
    for buffer, k in first.items():
        if buffer not in given and buffer.role not in ("input", "constant") and not _made_by_extern(steps[k], buffer):
            allocate[k].append(buffer)
    for buffer, k in last.items():
        if buffer not in kept and buffer.role != "constant":
            free[k].append(buffer)
    taken = _reuse(steps, allocate, last, kept) if options.reuse_buffers else {}
    return Schedule(steps, allocate, free, taken)


def _reuse(
    steps: list[Step], allocate: list[list[Buffer]], last: dict[Buffer, int], kept: set[Buffer]
) -> dict[Buffer, Buffer]:
    """Buffers that take over the memory of one that died before they are first written, of the same size and layout."""
    taken: dict[Buffer, Buffer] = {}
    shared = _aliased(steps)
    dead: dict[object, list[Buffer]] = {}
    owned: set[Buffer] = set()
    dying: dict[int, list[Buffer]] = {}
    for k in range(len(steps)):
        for b in allocate[k]:
            layout = (b.dtype, b.shape, b.strides)
            if dead.get(layout):
                taken[b] = dead[layout].pop()
            owned.add(b)
            dying.setdefault(last[b], []).append(b)
        for b in dying.get(k, ()):
            if b not in kept and b not in shared and b in owned:
                dead.setdefault((b.dtype, b.shape, b.strides), []).append(b)
    return taken


def _aliased(steps: list[Step]) -> set[Buffer]:
    """Buffers that an eager operator may have returned a view of: they live on under another name."""
    found: set[Buffer] = set()
    for step in steps:
        if isinstance(step, ExternCall) and step.extern.out_variant is None:
            if _may_alias(step.extern.target):
                found |= access(step.extern).reads
    return found


# ATen operators that may return a view of an argument, or the argument itself, though their schemas do not say so.
_UNDECLARED_ALIASES = ("aten::unsafe_", "aten::_unsafe_view", "aten::conj_physical", "aten::native_dropout")


def _may_alias(target: object) -> bool:
    """Whether an eager operator's result may share memory with its arguments; what users register may always."""
    schema = getattr(target, "_schema", None)
    if schema is None or not schema.name.startswith("aten::") or schema.name.startswith(_UNDECLARED_ALIASES):
        return True
    return any(r.alias_info is not None for r in schema.returns)


def _made_by_extern(step: Step, buffer: Buffer) -> bool:
    return isinstance(step, ExternCall) and step.extern.out_variant is None and buffer in step.extern.outs


def _uses(step: Step) -> list[Buffer]:
    """Buffers in memory that a step touches, in a fixed order."""
    if isinstance(step, ExternCall):
        found = access(step.extern)
        return sorted(found.reads | found.writes, key=lambda b: b.name)
    return kernel_buffers(step)


def kernel_buffers(kernel: Kernel) -> list[Buffer]:
    """Buffers in memory that a kernel reads or writes, in order of appearance."""
    found: dict[Buffer, None] = {}
    own = {m.loops.out for m in kernel.members}
    for member in kernel.members:
        for load in loads_of(member.loops):
            if load.buffer not in own or load.buffer in kernel.stored:
                found[load.buffer] = None
        if member.loops.out in kernel.stored:
            found[member.loops.out] = None
    return list(found)


def _decide_stores(steps: list[Step], kept: set[Buffer]) -> None:
    """A kernel stores what another step, or the caller, reads; the rest stays inside the kernel."""
    readers: dict[Buffer, set[int]] = {}
    for k, step in enumerate(steps):
        for buffer in _reads(step):
            readers.setdefault(buffer, set()).add(k)
    for k, step in enumerate(steps):
        if isinstance(step, Kernel):
            for member in step.members:
                out = member.loops.out
                outside = readers.get(out, set()) - {k}
                if out in kept or outside or out.role != "temporary":
                    step.stored.add(out)
            if _overwrites(step):
                step.stored.update(m.loops.out for m in step.members)


def _overwrites(kernel: Kernel) -> bool:
    """Whether a member stores over what an earlier one reads: then nothing may be computed again in a later pass."""
    read: set[Buffer] = set()
    for member in kernel.members:
        read.update(load.buffer for load in loads_of(member.loops))
        if member.loops.out in read and kernel.reduced:
            return True
    return False


def _reads(step: Step) -> set[Buffer]:
    if isinstance(step, ExternCall):
        found = access(step.extern)
        return set(found.reads | frozenset(step.extern.mutates))
    found_loads: set[Buffer] = set()
    for member in step.members:
        touched = access(member.loops)
        found_loads |= touched.reads
    return found_loads


def is_own_load(kernel: Kernel, load: Load) -> bool:
    """Whether a load reads what the kernel itself computes."""
    return any(m.loops.out is load.buffer for m in kernel.members)
