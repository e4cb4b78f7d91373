"""Write the loops of kernels that reduce nothing: rows that are only put together, tiles that are transposed, pairs.

In:     a `LoopPlan` of kind `points`.
Out:    lines of C.
Holds:  what is only moved is copied part by part, each in a loop of its own. Loops over pairs are on vectors or not at all.
Reads on: `kernel_writer.py` has what all kernels need.
"""

from __future__ import annotations

import dataclasses
import functools

from pliant.codegen.c_text import MEMORY_TYPES
from pliant.codegen.expressions import Statements
from pliant.codegen.kernel_writer import KernelWriter
from pliant.codegen.loops import Halves, step_along
from pliant.codegen.vector_statements import NoVectorForm, VectorStatements
from pliant.codegen.vectors import TRANSPOSED_BITS
from pliant.ir.loops import Axis
from pliant.ir.scalar import Load, Scalar, replace
from pliant.lowering.seams import chosen, is_only_moved, ranges_of, row_choice
from pliant.schedule.kernel import Member, loads_of
from pliant.symbolic.expr import ONE, Expr
from pliant.symbolic.traverse import linear_coefficient

ROWS_APART = 8  # kinds of rows with loops of their own


class PointsWriter(KernelWriter):
    """Adds loops over independent points."""

    def _points(self) -> None:
        if self.plan.vector is None:
            self._section(self.kernel.members, None, None)
            return
        if self._is_direct():
            self._parts_of_row(self.plan.vector, ("begin", "end"))
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
        self._parts_of_row(self.plan.vector, bounds)
        for _ in range(opened):
            self.end()

    def _parts_of_row(self, vector: Axis, bounds: tuple[str, str] | None) -> None:
        """The innermost loop, or one for each part of a row that is only put together."""
        first, *others = self.kernel.members
        if self.plan.halves is not None:
            self._pairs(self.plan.halves, vector, bounds)
        elif others or self.staged or not is_only_moved(first.loops.value):
            self._section(self.kernel.members, vector, bounds)
        else:
            self._moved(first, vector, bounds, ROWS_APART)

    def _moved(self, m: Member, vector: Axis, bounds: tuple[str, str] | None, parts: int) -> None:
        """Rows that are one or the other, `parts` at most, each with loops of its own."""
        varies = {s for s, e in m.place.items() if vector.symbol in e.free}
        choice = row_choice(m.loops.value, varies) if parts > 1 else None
        if choice is None:
            self._ranges_of_row(m, vector, bounds)
            return
        statements = self._statements(None)
        condition = statements.value(choice.args[0], m)
        self._lines(statements.body)
        for head, side in ((f"if ({condition})", choice.args[1]), ("else", choice.args[2])):
            self.begin(head)
            self._moved(self._part(m, replace(m.loops.value, {choice: side})), vector, bounds, parts - 1)
            self.end()

    def _ranges_of_row(self, m: Member, vector: Axis, bounds: tuple[str, str] | None) -> None:
        extent, value = vector.extent.as_int(), m.loops.value
        own = next((s for s, e in m.place.items() if e is vector.symbol), None)
        ranges = [] if own is None or extent is None else ranges_of(value, own, extent)
        if own is None or len(ranges) < 2:
            self._section([m], vector, bounds)
            return
        for begin, end in ranges:
            limits = (str(begin), str(end))
            if bounds is not None:
                limits = (f"p_max({bounds[0]}, {begin})", f"p_min({bounds[1]}, {end})")
            self._section([self._part(m, chosen(value, own, begin))], vector, limits)

    def _part(self, m: Member, value: Scalar) -> Member:
        """The member where its value is known to be this one."""
        part = Member(dataclasses.replace(m.loops, value=value), m.place, True, 0)
        self.order[id(part)] = 0
        self.divided.append(part)
        return part

    def _stage_transposed(self, tiled: Axis, vector: Axis) -> None:
        """Copy tiles of what runs along `tiled` into small arrays that run along `vector`."""
        statements = self._statements(vector)
        blocks = dict(self.plan.parallel)
        width, points = blocks[vector], (blocks[vector] or 0) * (blocks[tiled] or 0)
        for m in self.kernel.members:
            for load in loads_of(m.loops):
                e = m.at(load.index)
                if load.buffer in self.writers or (load.buffer, e) in self.staged or step_along(e, tiled) != 1:
                    continue
                if step_along(e, vector) in (0, 1) or not statements.in_range(load, m):
                    continue
                name = f"s{len(self.staged)}"
                v, t = self.names.symbols[vector.symbol], self.names.symbols[tiled.symbol]
                index = f"({t} - {t}b) * {width} + {v} - {v}b"
                self.line(f"{MEMORY_TYPES[load.dtype]} {name}[{points}];")
                self._copy_tile(name, load, e, tiled, vector)
                self.staged[(load.buffer, e)] = (name, index)

    def _copy_tile(self, name: str, load: Load, e: Expr, tiled: Axis, vector: Axis) -> None:
        """`name[t * width + v]` = what is loaded at (v, t) of this block."""
        v, t, width = self.names.symbols[vector.symbol], self.names.symbols[tiled.symbol], dict(self.plan.parallel)[vector]
        source, step = f"{self.names.buffer(load.buffer)}[{self.names.text(e)}]", linear_coefficient(e, vector.symbol)
        bits = load.dtype.itemsize * 8
        if step is None or linear_coefficient(e, tiled.symbol) is not ONE or bits not in TRANSPOSED_BITS:
            self.line(f"for (int64_t {v} = {v}b; {v} < {v}e; {v}++) for (int64_t {t} = {t}b; {t} < {t}e; {t}++)")
            self.line(f"  {name}[({t} - {t}b) * {width} + {v} - {v}b] = {source};")
            return
        self.line(f"{{ const int64_t {v} = {v}b, {t} = {t}b;")
        to, size = f"(void*){name}, {width}", f"{v}e - {v}b, {t}e - {t}b"
        self.line(f"  p_transpose{bits}({to}, (const void*)&{source}, {self.names.text(step)}, {size}); }}")

    def _pairs(self, halves: Halves, vector: Axis, bounds: tuple[str, str] | None) -> None:
        """The innermost loop over pairs, which is on vectors or not at all: of neighbours that are a sum and a difference of
        products, gcc 12 makes fused operations, whatever it is told."""
        fill = functools.partial(self._run_pairs, halves)
        if not self._vector_loop(fill, fill, vector, bounds):
            raise NoVectorForm("pairs")

    def _run_pairs(self, halves: Halves, s: Statements) -> None:
        """Statements of all members at both points of a pair, before what they store."""
        assert isinstance(s, VectorStatements)
        values: list[list[str]] = []
        for half in halves:
            self.writers, self.known = {m.loops.out: m for m in half}, {}
            values.append([])
            for m in half:
                self.known[m.loops.out] = found = s.value(m.loops.value, m)
                values[-1].append(found)
        for one, other, *pair in zip(*halves, *values, strict=True):
            if one.loops.out in self.kernel.stored:
                array, indices = self.names.buffer(one.loops.out), (one.store_index, other.store_index)
                s.write_pair(array, indices, pair, one.loops.out.dtype)
