"""Write a kernel as CUDA C.

In:     a `Kernel` of the schedule, a `Target`.
Out:    `DeviceKernel`s: one, or one for each range of a row's length, of which all but one have an empty grid.
Holds:  equal kernels (equal up to the names of buffers, sizes and loops) give equal text. What passes over a row share is
        in registers; values of an outer point are stored after the last pass, when no thread reads what they replace.
Reads on: `plan.py` chooses how threads share the points, `statements.py` prints what one of them does, `prelude.py` has
        the functions that texts call.
"""

from __future__ import annotations

from pliant.codegen.c_text import MEMORY_TYPES
from pliant.codegen.cuda.device_writer import DeviceWriter
from pliant.codegen.cuda.kernel_text import DeviceKernel
from pliant.codegen.cuda.plan import DevicePlan, plan_device
from pliant.codegen.cuda.reducing import DeviceReducingWriter
from pliant.codegen.cuda.scanning import DeviceScanWriter
from pliant.codegen.cuda.tables import DeviceTableWriter
from pliant.codegen.cuda.tiles import DeviceTileWriter
from pliant.codegen.cuda.windows import DeviceWindowSumWriter, DeviceWindowWriter
from pliant.schedule.fuse import total
from pliant.schedule.kernel import Kernel
from pliant.symbolic.expr import ONE, lit
from pliant.targets.target import Target

_WRITERS: dict[str, type[DeviceWriter]] = {
    "points": DeviceWriter,
    "tiles": DeviceTileWriter,
    "tables": DeviceTableWriter,
    "rows": DeviceReducingWriter,
    "columns": DeviceReducingWriter,
    "scan": DeviceScanWriter,
    "windows": DeviceWindowWriter,
    "window sums": DeviceWindowSumWriter,
}


def write_kernel(kernel: Kernel, target: Target) -> list[DeviceKernel]:
    """The CUDA C texts of a kernel, which are launched one after another."""
    return [_write(kernel, plan) for plan in plan_device(kernel, target)]


def _write(kernel: Kernel, plan: DevicePlan) -> DeviceKernel:
    writer = _WRITERS[plan.kind](plan)
    writer.write()
    names = writer.names
    buffers, sizes = tuple(names.buffers), tuple(names.sizes)
    arguments = [
        f"{'' if b in kernel.stored else 'const '}{MEMORY_TYPES[b.dtype]}* {name}" for b, name in names.buffers.items()
    ]
    arguments += [f"{'int64_t' if s.kind is int else 'double'} n{k}" for k, s in enumerate(sizes)]
    cluster = f"__cluster_dims__({plan.cluster}, 1, 1) " * (plan.cluster > 1)
    head = f'extern "C" __global__ void {cluster}__launch_bounds__({plan.threads}) @({", ".join(arguments)}) {{'
    text = "\n".join([head, *writer.lines, "}", ""])
    return DeviceKernel(
        text=text,
        comment=_comment(kernel),
        buffers=buffers,
        sizes=sizes,
        blocks=(plan.blocks, ONE, ONE),
        threads=lit(plan.threads) if plan.launched is None else plan.launched,
        shared=0,
        written=frozenset(b for b in buffers if b in kernel.stored),
        work=total(kernel.axes),
    )


def _comment(kernel: Kernel) -> str:
    """Lines that name what the kernel computes; not part of the text, so that layers share kernels."""
    origins = dict.fromkeys(m.loops.origin.text for m in kernel.members if m.loops.origin.text)
    return "".join(f"// src {origin}".replace("\n", " ") + "\n" for origin in origins)
