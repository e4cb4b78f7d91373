"""Write what a thread does in kernels that add many values up in a table of few elements: a small embedding's gradient.

In:     a `DevicePlan` of kind `tables`.
Out:    lines of CUDA C: a block adds its points to a copy of the table in shared memory, and that to the table.
Holds:  each block takes many times as many points as the table has elements. Half types are added up in float32.
"""

from __future__ import annotations

import torch

from pliant.codegen.c_text import MEMORY_TYPES, cast_text
from pliant.codegen.cuda.device_writer import DeviceWriter, scatter_text
from pliant.codegen.cuda.plan import span_of
from pliant.codegen.cuda.statements import NARROW, DeviceStatements
from pliant.ir.loops import Pointwise
from pliant.schedule.kernel import Member, accumulates


class DeviceTableWriter(DeviceWriter):
    """Blocks go through the points in turns."""

    def write(self) -> None:
        copies = {m.loops.out: f"x{k}" for k, m in enumerate(self.kernel.members) if accumulates(m.loops)}
        for table, copy in copies.items():
            self.line(f"__shared__ {MEMORY_TYPES[_kept_as(table.dtype)]} {copy}[{span_of(table)}];")
            self.line(f"for (int k = threadIdx.x; k < {span_of(table)}; k += {self.plan.threads}) {copy}[k] = 0;")
        self.line("__syncthreads();")
        self.copies, threads = copies, self.plan.threads
        self.begin(
            f"for ({self.integer} item = ({self.integer})blockIdx.x * {threads} + threadIdx.x; "
            f"item < {self._count(self.plan.outer)}; item += ({self.integer})gridDim.x * {threads})"
        )
        self._decompose("item", self.plan.outer)
        s = self._statements(None)
        for m in self.kernel.members:
            self._run(m, s)
        self._emit(s)
        self.end()
        self.line("__syncthreads();")
        for table, copy in copies.items():
            kept = _kept_as(table.dtype)
            value = cast_text("x", kept, table.dtype) if kept is not table.dtype else "x"
            self.begin(f"for (int k = threadIdx.x; k < {span_of(table)}; k += {threads})")
            self.line(f"const {MEMORY_TYPES[kept]} x = {copy}[k];")
            self.line(f"if (x != 0) {scatter_text('sum', table.dtype, f'{self.names.buffer(table)} + k', value)}")
            self.end()

    def _scatter(self, m: Member, loops: Pointwise, value: str, s: DeviceStatements) -> None:
        dtype = loops.out.dtype
        kept = _kept_as(dtype)
        added = cast_text(value, dtype, kept) if kept is not dtype else value
        at = f"{self.copies[loops.out]} + ({s.index(loops.index, loops.indirect, m)})"
        s.body.append(f"p_add_shared({at}, ({MEMORY_TYPES[kept]}){added});")


def _kept_as(dtype: torch.dtype) -> torch.dtype:
    """The type that a block adds up in."""
    return torch.float32 if dtype in NARROW else dtype
