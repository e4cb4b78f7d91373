"""Write the loops and statements of kernels that reduce nothing, and what all kernels need: text, values, loops.

In:     a `LoopPlan`.
Out:    lines of C in `lines`; names of buffers and sizes in `names`.
Holds:  a value that the kernel computed is read from its register, its row buffer or its array, never from memory that
        nobody else needs; loads of what a later member overwrites come before the store.
Reads on: `reducing_writer.py`, `c.py`.
"""

from __future__ import annotations

import torch

from pliant.codegen.expressions import MEMORY_TYPES, Names, Statements, cast_text
from pliant.codegen.loops import TILE, LoopPlan, step_along
from pliant.codegen.reductions import Accumulator
from pliant.ir.loops import Axis, Buffer, Pointwise, Reduction
from pliant.ir.scalar import Load
from pliant.schedule.kernel import Member, loads_of
from pliant.symbolic.expr import ONE, Expr


class KernelWriter:
    """Text, loops and values of one kernel; subclasses write the loops of each kind of plan."""

    def __init__(self, plan: LoopPlan) -> None:
        self.plan = plan
        self.kernel = plan.kernel
        self.names = Names()
        self.lines: list[str] = []
        self.depth = 1
        self.counter = [0]
        self.writers = {m.loops.out: m for m in self.kernel.members}
        self.order = {id(m): k for k, m in enumerate(self.kernel.members)}
        self.cross: dict[Buffer, str] = {}
        self.scratch: dict[Buffer, str] = {}
        self.allocated: list[str] = []
        self.staged: dict[tuple[Buffer, Expr], str] = {}
        self.accumulators: dict[int, Accumulator] = {}
        self.known: dict[Buffer, str] = {}
        self.open: Statements | None = None
        self.columns = bool(plan.kernel.reduced) and plan.vector in plan.kernel.outer
        for k, axis in enumerate(dict.fromkeys([a for a, _ in plan.parallel] + plan.inner)):
            self.names.symbols[axis.symbol] = f"i{k}"

    # -- text ------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def begin(self, text: str) -> None:
        self.line(text + " {")
        self.depth += 1

    def end(self) -> None:
        self.depth -= 1
        self.line("}")

    def loop(self, axis: Axis, start: str = "0", stop: str | None = None) -> None:
        name = self.names.symbols[axis.symbol]
        self.begin(f"for (int64_t {name} = {start}; {name} < {stop or self.names.text(axis.extent)}; {name}++)")

    # -- parallel loops ----------------------------------------------------------------------------------------------

    def _count(self, axis: Axis, block: int | None) -> str:
        extent = self.names.text(axis.extent)
        return extent if block is None else f"({extent} + {block - 1}) / {block}"

    def _is_direct(self) -> bool:
        """Whether the parallel range is the vectorized loop itself."""
        parallel = self.plan.parallel
        return len(parallel) == 1 and parallel[0][0] is self.plan.vector and parallel[0][1] is None

    def _decompose(self) -> None:
        """Open the loop over parallel items and find each axis's value or block."""
        self.begin("for (int64_t t = begin; t < end; t++)")
        parallel = self.plan.parallel
        rest = "t"
        for k in range(len(parallel) - 1, -1, -1):
            axis, block = parallel[k]
            name = self.names.symbols[axis.symbol]
            count = self._count(axis, block)
            item = rest if k == 0 else f"{rest} % ({count})"
            if block is None:
                self.line(f"const int64_t {name} = {item};")
            else:
                self.line(f"const int64_t {name}b = ({item}) * {block};")
                extent = axis.extent.as_int()
                whole = extent is not None and extent % block == 0
                stop = f"{name}b + {block}"
                stop = stop if whole else f"p_min({stop}, {self.names.text(axis.extent)})"
                self.line(f"const int64_t {name}e = {stop};")
            if k > 0:
                self.line(f"const int64_t q{k} = {rest} / ({count});")
                rest = f"q{k}"

    def _block_loop(self, axis: Axis) -> None:
        name = self.names.symbols[axis.symbol]
        self.loop(axis, f"{name}b", f"{name}e")

    # -- kernels without reductions --------------------------------------------------------------------------------

    def _points(self) -> None:
        if self.plan.vector is None:
            self._section(self.kernel.members, None, None)
            return
        if self._is_direct():
            self._section(self.kernel.members, self.plan.vector, ("begin", "end"))
            return
        self._decompose()
        blocked = {axis for axis, block in self.plan.parallel if block is not None}
        opened = 1
        if len(self.plan.inner) > 1:
            self._stage_transposed(self.plan.inner[0], self.plan.vector)
        for axis in self.plan.inner[:-1]:
            self._block_loop(axis)
            opened += 1
        name = self.names.symbols[self.plan.vector.symbol]
        bounds = (f"{name}b", f"{name}e") if self.plan.vector in blocked else None
        self._section(self.kernel.members, self.plan.vector, bounds)
        for _ in range(opened):
            self.end()

    def _stage_transposed(self, tiled: Axis, vector: Axis) -> None:
        """Copy tiles of what runs along `tiled` into small arrays: rows a power of two apart share few cache lines."""
        statements = self._statements(vector)
        for m in self.kernel.members:
            for load in loads_of(m.loops):
                e = m.at(load.index)
                if load.buffer in self.writers or (load.buffer, e) in self.staged or step_along(e, tiled) != 1:
                    continue
                if step_along(e, vector) in (0, 1) or not statements.in_range(load, m):
                    continue
                name = f"s{len(self.staged)}"
                v, t = self.names.symbols[vector.symbol], self.names.symbols[tiled.symbol]
                element = f"{name}[({v} - {v}b) * {TILE + 1} + {t} - {t}b]"
                self.line(f"{MEMORY_TYPES[load.dtype]} {name}[{2 * TILE * (TILE + 1)}];")
                self.line(f"for (int64_t {v} = {v}b; {v} < {v}e; {v}++) for (int64_t {t} = {t}b; {t} < {t}e; {t}++)")
                self.line(f"  {element} = {self.names.buffer(load.buffer)}[{self.names.text(e)}];")
                self.staged[(load.buffer, e)] = f"({element} != 0)" if load.dtype is torch.bool else element

    def _ordered(self) -> None:
        opened = 0
        vector = self.plan.vector
        if vector is not None:
            self._decompose()
            opened += 1
        for axis in self.plan.inner if vector is None else self.plan.inner[:-1]:
            self.loop(axis)
            opened += 1
        bounds = None
        if vector is not None:
            name = self.names.symbols[vector.symbol]
            bounds = (f"{name}b", f"{name}e")
        self._section(self.kernel.members, vector, bounds)
        for _ in range(opened):
            self.end()

    def _section(self, members: list[Member], vector: Axis | None, bounds: tuple[str, str] | None) -> None:
        """One innermost loop (or one point) that runs members."""
        statements = self._statements(vector)
        for m in members:
            self._run(m, statements)
        self._emit(statements, vector, bounds, self._simd(members))

    def _simd(self, members: list[Member]) -> str:
        ordered = self.plan.kind == "ordered" and self.plan.vector is None
        arg = any(isinstance(m.loops, Reduction) and m.loops.op.startswith("arg") for m in members) and not self.columns
        return "" if ordered or arg else "#pragma omp simd"

    def _emit(self, s: Statements, vector: Axis | None, bounds: tuple[str, str] | None, pragma: str) -> None:
        for text in s.before:
            self.line(text)
        if vector is None:
            for text in s.body:
                self.line(text)
            return
        if pragma:
            self.line(pragma)
        self.loop(vector, *(bounds or ()))
        for text in s.body:
            self.line(text)
        self.end()

    def _statements(self, vector: Axis | None) -> Statements:
        self.known = {}
        self.open = Statements(
            self.names, vector.symbol if vector else None, self.kernel.axes, self._resolve, self.counter
        )
        return self.open

    # -- values ----------------------------------------------------------------------------------------------------

    def _resolve(self, load: Load, member: Member) -> str | None:
        """The name of a value that the kernel computed, or None if it is read from memory."""
        writer = self.writers.get(load.buffer)
        if self.staged and writer is None:
            staged = self.staged.get((load.buffer, member.at(load.index)))
            if staged is not None and self.open is not None:
                self.open.varying.add(staged)
                return staged
        if writer is None or self.order[id(writer)] >= self.order[id(member)]:
            return None
        known = self.known.get(load.buffer) or self.cross.get(load.buffer)
        if known is not None:
            self._mark(known)
            return known
        if load.buffer in self.scratch:
            return self._scratch_element(load.buffer)
        if load.buffer in self.kernel.stored and not self._is_stored_later(writer):
            return None
        assert self.open is not None
        self.known[load.buffer] = self.open.value(writer.loops.value, writer)
        return self.known[load.buffer]

    def _is_stored_later(self, writer: Member) -> bool:
        """Whether the value is in memory only after the reductions: parts that threads share do not store it."""
        return self.plan.kind == "split" and not writer.inner and writer.phase == 0

    def _mark(self, name: str) -> None:
        """Array elements change along the vectorized loop."""
        if "[" in name and self.open is not None:
            self.open.varying.add(name)

    def _scratch_element(self, b: Buffer) -> str:
        flat: Expr = ONE - ONE
        for axis in self.plan.inner:
            flat = flat * axis.extent + axis.symbol
        text = self.names.text(flat)
        if self.columns:
            text = f"({text}) * {self.plan.width} + {self._column()}"
        element = f"{self.scratch[b]}[{text}]"
        if self.open is not None:
            self.open.varying.add(element)
        return element

    def _column(self) -> str:
        assert self.plan.vector is not None
        name = self.names.symbols[self.plan.vector.symbol]
        return f"{name} - {name}b"

    def _run(self, m: Member, s: Statements) -> None:
        """Statements of a pointwise member."""
        assert isinstance(m.loops, Pointwise)
        value = s.value(m.loops.value, m)
        if m.loops.accumulate is not None:
            self._scatter(m, m.loops, value, s)
            return
        self.known[m.loops.out] = value
        if m.loops.out in self.scratch:
            s.body.append(f"{self._scratch_element(m.loops.out)} = {value};")
        if m.loops.out in self.kernel.stored:
            index = s.index(m.loops.index, m.loops.indirect, m)
            s.body.append(f"{self.names.buffer(m.loops.out)}[{index}] = {value};")

    def _scatter(self, m: Member, loops: Pointwise, value: str, s: Statements) -> None:
        element = f"{self.names.buffer(loops.out)}[{s.index(loops.index, loops.indirect, m)}]"
        dtype = loops.out.dtype
        old = s.value_of_memory(element, dtype)
        if loops.accumulate == "sum":
            wide = torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
            text = f"{cast_text(old, dtype, wide)} + {cast_text(value, dtype, wide)}"
            s.body.append(
                f"{element} = {cast_text(f'({text})', wide, dtype)};" if wide is not dtype else f"{element} = {text};"
            )
            return
        sign = ">" if loops.accumulate == "max" else "<"
        nan = f"{value} != {value} || " if dtype.is_floating_point else ""
        s.body.append(f"if ({nan}{value} {sign} {element}) {element} = {value};")
