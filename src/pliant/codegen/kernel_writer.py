"""Write the loops and statements of kernels that reduce nothing, and what all kernels need: text, values, loops.

In:     a `LoopPlan`.
Out:    lines of C in `lines`; names of buffers and sizes in `names`.
Holds:  a value that the kernel computed is read from its register, its row buffer or its array, never from memory that
        nobody else needs; loads of what a later member overwrites come before the store.
Reads on: `scan_writer.py`, `reducing_writer.py`, `c.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from pliant.codegen.c_text import cast_text
from pliant.codegen.expressions import Body, Statements
from pliant.codegen.loops import LoopPlan, asked_ahead, bytes_read, reads_far_apart
from pliant.codegen.pairs import loads_by_place
from pliant.codegen.reductions import Accumulator
from pliant.codegen.vector_statements import NoVectorForm, VectorStatements
from pliant.codegen.whole_vectors import Around, Points, around_rest, around_whole
from pliant.ir.loops import Axis, Buffer, Pointwise, Reduction
from pliant.ir.ops import OPS
from pliant.ir.scalar import Apply, Load, Scalar, walk
from pliant.schedule.kernel import Member, loads_of
from pliant.symbolic.expr import ONE, Expr

SHORTEST = 4  # points of a loop that is worth writing with vectors: most lanes may be masked, the others take no longer
ADDITIONS = 4  # elements that are added at places of their own, of which few are the same
LOOKUPS = 8  # elements that are moved one behind the other: a loop's turn takes as long as moving one of them
DEAR = 12  # additions that an operator costs for which lanes are read and written one by one

Fill = Callable[[Statements], None]  # write the body of a loop


class KernelWriter(Body):
    """Text, loops and values of one kernel; subclasses write the loops of each kind of plan."""

    def __init__(self, plan: LoopPlan) -> None:
        super().__init__(plan.kernel)
        self.plan = plan
        self.target = plan.kernel.target
        self.cross: dict[Buffer, str] = {}
        self.cross_arrays: dict[Buffer, str] = {}
        self.scratch: dict[Buffer, str] = {}
        self.allocated: list[str] = []
        self.staged: dict[tuple[Buffer, Expr], tuple[str, str]] = {}
        self.accumulators: dict[int, Accumulator] = {}
        self.finished = 0  # values of the outer loops that have names
        self.open: Statements | None = None
        self.divided: list[Member] = []  # they live as long as the names that are given to their values
        self.far = bytes_read(plan.kernel) > self.target.cache_bytes
        self.loads_ahead = self.stores_ahead = asked_ahead(plan)
        self.pairs = loads_by_place(plan)
        self.columns = bool(plan.kernel.reduced) and plan.vector in plan.kernel.outer
        for k, axis in enumerate(dict.fromkeys([a for a, _ in plan.parallel] + plan.inner)):
            self.names.symbols[axis.symbol] = f"i{k}"

    # -- text ------------------------------------------------------------------------------------------------------

    def loop(self, axis: Axis, start: str = "0", stop: str | None = None) -> None:
        name = self.names.symbols[axis.symbol]
        self.begin(f"for (int64_t {name} = {start}; {name} < {stop or self.names.text(axis.extent)}; {name}++)")

    def _lines(self, texts: Sequence[str]) -> None:
        for text in texts:
            self.line(text)

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

    def _columns_at_once(self) -> None:
        """The columns of all of a thread's blocks, in place of a loop over the blocks."""
        axis, block = self.plan.parallel[0]
        name = self.names.symbols[axis.symbol]
        self.begin("if (begin < end)")
        if block is None:
            self.line(f"const int64_t {name}b = 0, {name}e = {self.names.text(axis.extent)};")
        else:
            self.line(f"const int64_t {name}b = begin * {block};")
            self.line(f"const int64_t {name}e = p_min(end * {block}, {self.names.text(axis.extent)});")

    def _block_loop(self, axis: Axis) -> None:
        name = self.names.symbols[axis.symbol]
        self.loop(axis, f"{name}b", f"{name}e")

    # -- scatters, and innermost loops -----------------------------------------------------------------------------------

    def _ordered(self) -> None:
        opened = 0
        vector = self.plan.vector
        if vector is not None:
            self._columns_at_once()
            opened += 1
        elif self.plan.parallel:
            self._decompose()
            opened += 1
        for axis in self.plan.inner if vector is None else self.plan.inner[:-1]:
            self._lines([f"#pragma GCC unroll {ADDITIONS}"] * (vector is None and axis is self.plan.inner[-1]))
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

        def fill(statements: Statements) -> None:
            for m in members:
                self._run(m, statements)

        if vector is not None and not _is_of_bytes(members) and self._vector_loop(fill, fill, vector, bounds):
            return
        statements = self._statements(vector)
        fill(statements)
        self._emit(statements, vector, bounds, self._simd(members, vector))

    # -- loops on vectors --------------------------------------------------------------------------------------------

    def _vector_loop(
        self, fill: Fill, fill_rest: Fill, vector: Axis, bounds: tuple[str, str] | None, unroll: int = 1
    ) -> bool:
        """The innermost loop on vectors: whole ones, `unroll` at a time, then what is left under a mask. False, and
        nothing written, if something has no vector form, or the loop has fewer points than `SHORTEST`."""
        if not self._takes_vectors(vector):
            return False
        bounds = bounds or ("0", self.names.text(vector.extent))
        names, counter = self.names.copy(), self.counter[0]
        try:
            main = self._vector_statements(vector, None, None)
            fill(main)
            rest = None
            if around_rest(self._points_between(vector, bounds), unroll) is not None:
                rest = self._vector_statements(vector, "m", main)
                fill_rest(rest)
        except NoVectorForm:
            self.names, self.counter[0] = names, counter
            return False
        self._emit_vectors(main, rest, vector, bounds, unroll)
        return True

    def _takes_vectors(self, vector: Axis) -> bool:
        extent = vector.extent.as_int()
        short = extent is not None and extent < SHORTEST
        return not (short or self.plan.kind == "ordered")

    def _vector_statements(self, vector: Axis, mask: str | None, shared: VectorStatements | None) -> VectorStatements:
        self.known = {}
        self.open = VectorStatements(
            self.names, vector.symbol, self.kernel.axes, self._resolve, self.counter, mask, shared, self._is_dear(), self.far,
            self._computes(), self.loads_ahead, self.stores_ahead,
        )  # fmt: skip
        self.open.pairs = self.pairs
        return self.open

    def _is_dear(self) -> bool:
        """Whether a point costs so much that vectors pay even if their lanes are read and written one by one."""
        values = (m.loops.value for m in self.kernel.members)
        return any(OPS[one.op].cost >= DEAR for value in values for one in walk(value) if isinstance(one, Apply))

    def _computes(self) -> bool:
        """Whether something becomes of what is loaded, for which looked-up elements are worth to be brought into lanes."""

        def computes(x: Scalar) -> bool:
            return isinstance(x, Apply) and (x.op not in ("cast", "where") or any(map(computes, x.args)))

        return any(isinstance(m.loops, Reduction) or computes(m.loops.value) for m in self.kernel.members)

    def _emit_vectors(
        self, main: VectorStatements, rest: VectorStatements | None, vector: Axis, bounds: tuple[str, str], unroll: int
    ) -> None:
        name = self.names.symbols[vector.symbol]
        start, stop = bounds
        for text in (*main.before, *(rest.before if rest is not None else ())):
            self.line(text)
        self.line("{")
        self.depth += 1
        self.line(f"int64_t j{name} = {start};")
        for _ in self._whole_vectors(vector, bounds, unroll):
            self._in_turn(name, main.body, unroll)
        for _ in self._rest_of_vectors(vector, bounds, unroll):
            assert rest is not None
            self._rest(name, stop, rest.body)
        self.end()

    def _whole_vectors(self, vector: Axis, bounds: tuple[str, str], unroll: int) -> Iterator[None]:
        """Once where it is needed, inside the loop that takes `unroll` whole vectors at a time."""
        name, step = self.names.symbols[vector.symbol], f"{unroll} * P_L"
        yield from self._where(
            around_whole(self._points_between(vector, bounds), unroll),
            f"for (; j{name} + {step} <= {bounds[1]}; j{name} += {step})",
        )

    def _rest_of_vectors(self, vector: Axis, bounds: tuple[str, str], unroll: int) -> Iterator[None]:
        """The same for what these leave, a vector at a time."""
        name = self.names.symbols[vector.symbol]
        yield from self._where(
            around_rest(self._points_between(vector, bounds), unroll),
            f"for (; j{name} < {bounds[1]}; j{name} += P_L)",
        )

    def _where(self, around: Around | None, loop: str) -> Iterator[None]:
        if around is None:
            return
        self.lines += around[0]
        self.begin(loop)
        yield
        self.end()
        self.lines += around[1]

    def _points_between(self, vector: Axis, bounds: tuple[str, str]) -> Points:
        """What is known of how many points of the vectorized loop lie between these bounds."""
        extent, name = vector.extent.as_int(), self.names.symbols[vector.symbol]
        if extent is None:
            return Points()
        if bounds[0].isdigit() and bounds[1].isdigit():
            points = int(bounds[1]) - int(bounds[0])
            return Points(points, points)
        if bounds != (f"{name}b", f"{name}e"):
            return Points(most=extent)
        block = next(block for axis, block in self.plan.parallel if axis is vector) or extent
        return Points(math.gcd(block, extent), extent if self._takes_blocks_at_once() else min(block, extent))

    def _takes_blocks_at_once(self) -> bool:
        return self.plan.at_once or self.plan.kind in ("ordered", "split")

    def _in_turn(self, name: str, body: list[str], count: int) -> None:
        """`body` for each of `count` vectors from `j<name>` on; `u` is the vector's number, if there are several."""
        if count == 1:
            self._lines([f"const int64_t {name} = j{name};", *body])
            return
        self.line(f"#pragma GCC unroll {count}")
        self.begin(f"for (int u = 0; u < {count}; u++)")
        self._lines([f"const int64_t {name} = j{name} + u * P_L;", *body])
        self.end()

    def _rest(self, name: str, stop: str, body: list[str]) -> None:
        """`body` for the one vector at `j<name>`, of which lanes may lie outside the loop."""
        self._lines([f"const int64_t {name} = j{name};", f"const p_vi m = p_upto({stop} - {name});", *body])

    def _simd(self, members: list[Member], vector: Axis | None) -> str:
        if vector is not None and reads_far_apart(members, vector):
            return ""
        if not self._computes() and any(load.indirect for m in members for load in loads_of(m.loops)):
            return f"#pragma GCC unroll {LOOKUPS}"
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
        self._lines([pragma] * bool(pragma))
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
        if self.staged and load.buffer not in self.writers:
            staged = self.staged.get((load.buffer, member.at(load.index)))
            if staged is not None and self.open is not None:
                return self.open.read(*staged, load.dtype)
        writer = self.writer_before(load.buffer, member)
        if writer is None:
            return None
        known = self.known.get(load.buffer) or self.cross.get(load.buffer)
        if known is not None:
            self._mark(known)
            return known
        assert self.open is not None
        if load.buffer in self.cross_arrays:
            return self.open.read(self.cross_arrays[load.buffer], self._column(), load.buffer.dtype)
        if load.buffer in self.scratch:
            return self.open.read(self.scratch[load.buffer], self._scratch_index(), load.buffer.dtype)
        if load.buffer in self.kernel.stored and not self._is_stored_later(writer):
            return None
        value = self.open.value(writer.loops.value, writer)
        if not self.open.guarded:
            self.known[load.buffer] = value
        return value

    def _is_stored_later(self, writer: Member) -> bool:
        """Whether the value is in memory only after the reductions: parts that threads share do not store it."""
        return self.plan.kind == "split" and not writer.inner and writer.phase == 0

    def _mark(self, name: str) -> None:
        """Array elements change along the vectorized loop."""
        if "[" in name and self.open is not None:
            self.open.varying.add(name)

    def _scratch_index(self) -> str:
        """Where this point's element lies in arrays that keep values between passes."""
        flat: Expr = ONE - ONE
        for axis in self.plan.inner:
            flat = flat * axis.extent + axis.symbol
        text = self.names.text(flat)
        return f"({text}) * {self.plan.width} + {self._column()}" if self.columns else text

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
            s.write(self.scratch[m.loops.out], self._scratch_index(), value, m.loops.out.dtype)
        if m.loops.out in self.kernel.stored:
            index = s.index(m.loops.index, m.loops.indirect, m)
            s.write(self.names.buffer(m.loops.out), index, value, m.loops.out.dtype, m.store_index)

    def _scatter(self, m: Member, loops: Pointwise, value: str, s: Statements) -> None:
        element = f"{self.names.buffer(loops.out)}[{s.index(loops.index, loops.indirect, m)}]"
        dtype = loops.out.dtype
        old = s.value_of_memory(element, dtype)
        if loops.accumulate == "sum":
            wide = torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype
            text = f"{cast_text(old, dtype, wide)} + {cast_text(value, dtype, wide)}"
            cast = cast_text(f"({text})", wide, dtype) if wide is not dtype else text
            s.body.append(f"{element} = {cast};")
            return
        sign = ">" if loops.accumulate == "max" else "<"
        nan = f"{value} != {value} || " if dtype.is_floating_point else ""
        s.body.append(f"if ({nan}{value} {sign} {element}) {element} = {value};")


def _is_of_bytes(members: list[Member]) -> bool:
    """Whether all that is computed are bytes: the compiler's loops have as many lanes as registers have bytes, vectors a quarter."""
    return all(one.dtype.itemsize == 1 for m in members for one in walk(m.loops.value))
