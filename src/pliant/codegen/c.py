"""Write a kernel as C functions.

In:     a `Kernel` of the schedule.
Out:    `KernelText`: the functions' text with a placeholder for the name, the buffers and sizes it takes in order.
Holds:  equal kernels (equal up to the names of buffers, sizes and loops) give equal text, so each is compiled once.
        `@(void** p, const int64_t* n, int32_t* p_error)` runs the kernel; `@_part` runs a range of its parallel loop.
Reads on: `loops.py` chooses the loops, `expressions.py` prints statements, `native.py` assembles the translation unit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from pliant.codegen.expressions import MEMORY_TYPES, Names, Statements, cast_text, register_type
from pliant.codegen.loops import TILE, LoopPlan, flat_reduced, plan_loops, step_along
from pliant.codegen.reductions import Accumulator, Variable
from pliant.ir.loops import Axis, Buffer, Pointwise, Reduction
from pliant.ir.ops import OPS
from pliant.ir.scalar import Apply, Load, walk
from pliant.schedule.fuse import total
from pliant.schedule.kernel import Kernel, Member, loads_of
from pliant.symbolic.expr import ONE, Expr, Symbol

MAX_PARTS = 64  # threads that share one split reduction
SUM_BLOCK = 2048  # terms summed before they are added to the total
STREAMS = 4  # parts of a row that are reduced side by side, so that additions need not wait for one another
STREAM_COST = 16  # work at one point up to which that pays
PART_ARGUMENTS = "void** p, const int64_t* n, int64_t begin, int64_t end, int64_t slot, int32_t* p_error"
GRAIN = 1 << 17  # work, in additions, that is worth a thread
RECOMPUTE = 10  # values cheaper than this are computed again in each pass
SCRATCH = 16384  # elements of a row kept between passes


@dataclass(frozen=True, slots=True)
class KernelText:
    """C text with `@` for the kernel's name; `comment` names the operators in it; `buffers` and `sizes` are its arguments in order."""

    text: str
    comment: str
    buffers: tuple[Buffer, ...]
    sizes: tuple[Symbol, ...]
    written: frozenset[Buffer]
    work: Expr


def write_kernel(kernel: Kernel) -> KernelText:
    """The C text of a kernel."""
    return _Writer(plan_loops(kernel)).write()


class _Writer:
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

    # -- the whole -------------------------------------------------------------------------------------------------

    def write(self) -> KernelText:
        match self.plan.kind:
            case "points":
                self._points()
            case "ordered":
                self._ordered()
            case "split":
                self._split_part()
            case _:
                self._reducing()
        body = self.lines
        self.lines, self.depth = [], 1
        driver = self._split_driver() if self.plan.kind == "split" else self._driver()
        head = self._head()
        text = "\n".join(
            [
                f"static void @_part({PART_ARGUMENTS}) {{",
                *head, *body, "}",
                "static void @(void** p, const int64_t* n, int32_t* p_error) {",
                *driver, "}", "",
            ]
        )  # fmt: skip
        buffers, sizes = tuple(self.names.buffers), tuple(self.names.sizes)
        return KernelText(text, self._comment(), buffers, sizes, self._written(), total(self.kernel.axes))

    def _comment(self) -> str:
        """Lines that name what the kernel computes; not part of the text, so that layers share kernels."""
        origins = dict.fromkeys(m.loops.origin for m in self.kernel.members if m.loops.origin)
        return "".join(f"// src {origin}".replace("\n", " ") + "\n" for origin in origins)

    def _written(self) -> frozenset[Buffer]:
        return frozenset(b for b in self.names.buffers if b in self.kernel.stored)

    def _head(self) -> list[str]:
        found = []
        for k, (b, name) in enumerate(self.names.buffers.items()):
            const = "" if b in self.kernel.stored else "const "
            found.append(f"  {const}{MEMORY_TYPES[b.dtype]}* const {name} = p[{k}];")
        return found + self._sizes()

    def _sizes(self) -> list[str]:
        return [
            f"  const int64_t n{k} = n[{k}];"
            if s.kind is int
            else f"  double n{k}; __builtin_memcpy(&n{k}, n + {k}, 8);"
            for k, s in enumerate(self.names.sizes)
        ]

    def _cost(self) -> int:
        """Work at one point, in additions."""
        cost = 1
        for m in self.kernel.members:
            cost += 1 + sum(
                OPS[s.op].cost if isinstance(s, Apply) else isinstance(s, Load) for s in walk(m.loops.value)
            )
        return cost

    def _driver(self) -> list[str]:
        counts = [self._count(axis, block) for axis, block in self.plan.parallel]
        direct = self._is_direct()
        if direct and self.plan.vector is not None:
            counts = [self.names.text(self.plan.vector.extent)]
        inside: Expr = total([a for a in self.kernel.axes if all(a is not x for x, _ in self.plan.parallel)])
        factor = 1
        for axis, block in self.plan.parallel:
            extent = axis.extent.as_int()
            factor *= 1 if block is None or direct else min(block, extent if extent is not None else block)
        per_item = self.names.text(inside * (factor * self._cost()))
        work = " * ".join(f"({c})" for c in counts) or "1"
        self.line(f"const int64_t range = {work};")
        self.line(f"p_run(@_part, p, n, range, 1 + {GRAIN} / (1 + {per_item}), {MAX_PARTS}, p_error);")
        return [*self._sizes(), *self.lines]

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

    def _simd(self, members: list[Member], clauses: str = "") -> str:
        ordered = self.plan.kind == "ordered" and self.plan.vector is None
        arg = any(isinstance(m.loops, Reduction) and m.loops.op.startswith("arg") for m in members) and not self.columns
        return "" if ordered or arg else f"#pragma omp simd{clauses}"

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
        if load.buffer in self.kernel.stored:
            return None
        assert self.open is not None
        self.known[load.buffer] = self.open.value(writer.loops.value, writer)
        return self.known[load.buffer]

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

    # -- kernels with reductions -----------------------------------------------------------------------------------

    def _reducing(self) -> None:
        self._choose_scratch()
        self._decompose()
        phases = max(m.phase for m in self.kernel.members) + 2
        for phase in range(phases):
            self._outer_members(phase)
            members = [m for m in self.kernel.members if m.inner and m.phase == phase]
            if members:
                self._pass(members)
        self.end()
        for name in self.allocated:
            self.line(f"free({name});")

    def _choose_scratch(self) -> None:
        """Rows worth keeping between passes; what is cheap is computed again instead."""
        points = total(self.plan.inner)
        size = points.as_int()
        width = self.plan.width if self.columns else 1
        costs: dict[Buffer, int] = {}
        for m in self.kernel.members:
            out = m.loops.out
            if out in self.kernel.stored or not m.inner or isinstance(m.loops, Reduction):
                continue
            own = sum(OPS[s.op].cost for s in walk(m.loops.value) if isinstance(s, Apply))
            costs[out] = own + sum(costs.get(x.buffer, 0) for x in loads_of(m.loops))
            if costs[out] < RECOMPUTE or not self._is_used_later(m):
                continue
            ctype, name = register_type(out.dtype), f"w{len(self.scratch)}"
            if size is not None and size * width <= SCRATCH:
                self.line(f"{ctype} {name}[{size * width}];")
            elif not self.columns:
                self.line(f"{ctype}* const {name} = malloc(sizeof({ctype}) * ({self.names.text(points)}));")
                self.allocated.append(name)
            else:
                continue
            self.scratch[out] = name
            costs[out] = 0

    def _is_used_later(self, m: Member) -> bool:
        """Whether a later pass reads what this member computes."""
        readers = (o for o in self.kernel.members if o.inner and o.phase > m.phase)
        return any(m.loops.out is x.buffer for o in readers for x in loads_of(o.loops))

    def _outer_members(self, phase: int) -> None:
        """Statements of members that run once per outer point, and of reductions that have just ended."""
        ended = [m for m in self.kernel.members if isinstance(m.loops, Reduction) and m.phase == phase - 1]
        members = [m for m in self.kernel.members if not m.inner and m.phase == phase]
        if not ended and not members:
            return
        vector = self.plan.vector if self.columns else None
        s = self._statements(vector)
        for m in ended:
            acc = self.accumulators[id(m)]
            at = f"[{self._column()}]" if self.columns else ""
            self._finish(m, s, cast_text(acc.final(at), acc.result_dtype, m.loops.out.dtype))
        for m in members:
            self._finish(m, s, s.value(m.loops.value, m))
        self._emit_outer(s, vector)

    def _emit_outer(self, s: Statements, vector: Axis | None) -> None:
        if vector is None:
            self._emit(s, None, None, "")
            return
        name = self.names.symbols[vector.symbol]
        self._emit(s, vector, (f"{name}b", f"{name}e"), "#pragma omp simd")

    def _finish(self, m: Member, s: Statements, value: str) -> None:
        """Name a value of the outer loops so that later passes can use it, and store it if somebody else needs it."""
        out = m.loops.out
        name = f"r{len(self.cross)}"
        if self.columns:
            self._before_loops(f"{register_type(out.dtype)} {name}[{self.plan.width}];")
            s.body.append(f"{name}[{self._column()}] = {value};")
            self.cross[out] = f"{name}[{self._column()}]"
        else:
            s.body.append(f"const {register_type(out.dtype)} {name} = {value};")
            self.cross[out] = name
        self._mark(self.cross[out])
        if out in self.kernel.stored:
            indirect = m.loops.indirect if isinstance(m.loops, Pointwise) else ()
            s.body.append(f"{self.names.buffer(out)}[{s.index(m.loops.index, indirect, m)}] = {self.cross[out]};")

    def _before_loops(self, text: str) -> None:
        """Declare at this place, before the section's loop opens."""
        self.line(text)

    def _pass(self, members: list[Member], first: tuple[str, str] | None = None) -> None:
        """One walk over the inner loops; `first`: bounds of the outermost of them."""
        reductions = [m for m in members if isinstance(m.loops, Reduction)]
        for m in reductions:
            self._start(m)
        if self.columns:
            self._column_pass(members, first)
        else:
            self._row_pass(members, reductions, first)

    def _start(self, m: Member) -> None:
        assert isinstance(m.loops, Reduction)
        dtype = m.loops.value.dtype if m.loops.op.startswith("arg") else m.loops.accumulate_dtype
        wide = dtype is torch.float32 and m.loops.op in ("sum", "prod") and self._is_long()
        acc = Accumulator(m.loops.op, dtype, f"acc{len(self.accumulators)}", wide)
        self.accumulators[id(m)] = acc
        for v in acc.variables():
            if self.columns:
                self.line(f"{v.ctype} {acc.name}{v.suffix}[{self.plan.width}];")
                self.line(f"for (int64_t j = 0; j < {self.plan.width}; j++) {acc.name}{v.suffix}[j] = {v.start};")
            else:
                self.line(f"{v.ctype} {acc.name}{v.suffix} = {v.start};")

    def _is_long(self) -> bool:
        """Whether so many terms are summed that the total needs more digits than the terms."""
        count = total(self.plan.inner).as_int()
        return (count is None or count > SUM_BLOCK) and (self.columns or self._has_partial_sums())

    def _has_partial_sums(self) -> bool:
        """Whether each run of the vectorized loop is summed alone and then added to the total."""
        assert self.plan.vector is not None
        extent = self.plan.vector.extent.as_int()
        return len(self.plan.inner) > 1 or extent is None or extent > SUM_BLOCK

    def _column_pass(self, members: list[Member], first: tuple[str, str] | None) -> None:
        assert self.plan.vector is not None
        for k, axis in enumerate(self.plan.inner):
            self.loop(axis, *(first if first and k == 0 else ()))
        s = self._statements(self.plan.vector)
        at = f"[{self._column()}]"
        for m in members:
            if isinstance(m.loops, Reduction):
                acc = self.accumulators[id(m)]
                value = self._reduced_value(m, s, acc)
                s.body += acc.update(value, at, f"({self._flat(m)})")
            else:
                self._run(m, s)
        name = self.names.symbols[self.plan.vector.symbol]
        self._emit(s, self.plan.vector, (f"{name}b", f"{name}e"), "#pragma omp simd")
        for _ in self.plan.inner:
            self.end()

    def _reduced_value(self, m: Member, s: Statements, acc: Accumulator) -> str:
        value = s.value(m.loops.value, m)
        return cast_text(value, m.loops.value.dtype, acc.dtype) if m.loops.value.dtype is not acc.dtype else value

    def _flat(self, m: Member) -> str:
        acc = self.accumulators[id(m)]
        return self.names.text(flat_reduced(m)) if acc.is_arg else "0"

    def _row_pass(self, members: list[Member], reductions: list[Member], first: tuple[str, str] | None) -> None:
        vector = self.plan.vector
        assert vector is not None
        opened = 0
        for axis in self.plan.inner[:-1]:
            self.loop(axis, *(first if first and opened == 0 else ()))
            opened += 1
        bounds = first if first and opened == 0 else ("0", self.names.text(vector.extent))
        vectorized = all(self.accumulators[id(m)].vectorizes for m in reductions)
        extent = vector.extent.as_int()
        blocked = any(self.accumulators[id(m)].rounds for m in reductions) and (extent is None or extent > SUM_BLOCK)
        if blocked:
            self.begin(f"for (int64_t b = {bounds[0]}; b < {bounds[1]}; b += {SUM_BLOCK})")
            self.line(f"const int64_t be = p_min(b + {SUM_BLOCK}, {bounds[1]});")
            bounds = ("b", "be")
            opened += 1
        partial = blocked or self._has_partial_sums()
        if vectorized and self._is_light(members):
            self._streams(members, bounds)
        else:
            self._row_loop(members, bounds, vectorized, partial and vectorized)
        for _ in range(opened):
            self.end()

    def _row_loop(self, members: list[Member], bounds: tuple[str, str], vectorized: bool, partial: bool) -> None:
        """The vectorized loop; with `partial`, sums of their own are added to the totals after it."""
        s = self._statements(self.plan.vector)
        clauses: dict[str, list[str]] = {}
        after: list[str] = []
        for m in members:
            if not isinstance(m.loops, Reduction):
                self._run(m, s)
                continue
            acc = self.accumulators[id(m)]
            prefix = f"s{acc.name}" if partial else acc.name
            for v in replace(acc, wide=False).variables() if vectorized else ():
                clauses.setdefault(v.clause, []).append(prefix + v.suffix)
                if partial:
                    self.line(f"{v.ctype} {prefix}{v.suffix} = {v.start};")
            s.body += acc.update(self._reduced_value(m, s, acc), "", f"({self._flat(m)})", prefix)
            if partial:
                after += acc.merge(prefix, "", "")
        texts = "".join(f" reduction({op}:{', '.join(names)})" for op, names in clauses.items())
        self._emit(s, self.plan.vector, bounds, f"#pragma omp simd{texts}" if vectorized else "")
        for text in after:
            self.line(text)

    def _is_light(self, members: list[Member]) -> bool:
        """Whether waiting for the last addition would dominate a pass: little work a point, long rows, nothing stored."""
        assert self.plan.vector is not None
        extent = self.plan.vector.extent.as_int()
        kept = any(m.loops.out in self.kernel.stored or m.loops.out in self.scratch for m in members if m.inner)
        stores = kept and any(not isinstance(m.loops, Reduction) for m in members)
        cost = sum(OPS[s.op].cost for m in members for s in walk(m.loops.value) if isinstance(s, Apply))
        return not stores and cost <= STREAM_COST and (extent is None or extent >= 32 * STREAMS)

    def _streams(self, members: list[Member], bounds: tuple[str, str]) -> None:
        """The vectorized loop over several parts of the range at once, each with partial results of its own."""
        vector = self.plan.vector
        assert vector is not None
        name = self.names.symbols[vector.symbol]
        start, stop = bounds
        self.begin("")
        self.line(f"const int64_t q = ({stop} - {start}) / {STREAMS};")
        clauses: dict[str, list[str]] = {}
        before: list[str] = []
        bodies: list[list[str]] = []
        for k in range(STREAMS):
            self.names.symbols[vector.symbol] = f"({name} + {k}*q)" if k else name
            s = self._partial_body(members, f"s{k}", clauses)
            before += s.before
            bodies.append(s.body)
        self.names.symbols[vector.symbol] = name
        for text in before:
            self.line(text)
        self._simd_loop(vector, (start, f"{start} + q"), clauses, bodies)
        rest: dict[str, list[str]] = {}
        s = self._partial_body(members, "s0", rest, declare=False)
        for text in s.before:
            self.line(text)
        self._simd_loop(vector, (f"{start} + {STREAMS}*q", stop), rest, [s.body])
        for k in range(STREAMS):
            for m in members:
                if isinstance(m.loops, Reduction):
                    acc = self.accumulators[id(m)]
                    for text in acc.merge(f"s{k}{acc.name}", "", ""):
                        self.line(text)
        self.end()

    def _partial_body(
        self, members: list[Member], prefix: str, clauses: dict[str, list[str]], *, declare: bool = True
    ) -> Statements:
        """Statements of a pass that reduce into partial results of this prefix."""
        s = self._statements(self.plan.vector)
        for m in members:
            if not isinstance(m.loops, Reduction):
                self._run(m, s)
                continue
            acc = self.accumulators[id(m)]
            for v in replace(acc, wide=False).variables():
                clauses.setdefault(v.clause, []).append(f"{prefix}{acc.name}{v.suffix}")
                if declare:
                    self.line(f"{v.ctype} {prefix}{acc.name}{v.suffix} = {v.start};")
            s.body += acc.update(self._reduced_value(m, s, acc), "", "0", f"{prefix}{acc.name}")
        return s

    def _simd_loop(
        self, vector: Axis, bounds: tuple[str, str], clauses: dict[str, list[str]], bodies: list[list[str]]
    ) -> None:
        texts = "".join(f" reduction({op}:{', '.join(names)})" for op, names in clauses.items())
        self.line(f"#pragma omp simd{texts}")
        self.loop(vector, *bounds)
        for body in bodies:
            self.begin("")
            for text in body:
                self.line(text)
            self.end()
        self.end()

    # -- reductions shared by threads ------------------------------------------------------------------------------

    def _split_part(self) -> None:
        """One thread's share: partial results of every outer point, in arrays that the driver passes after the buffers."""
        loops = [a for a, _ in self.plan.parallel if not self.columns or a is not self.plan.vector]
        for axis in loops:
            self.loop(axis)
        vector, at = self.plan.vector, ""
        assert vector is not None
        if self.columns:
            name = self.names.symbols[vector.symbol]
            self.line(f"const int64_t {name}b = 0, {name}e = {self.names.text(vector.extent)};")
            at = f"[{self._column()}]"
        self._pass([m for m in self.kernel.members if m.inner], ("begin", "end"))
        if self.columns:
            self._block_loop(vector)
        for k, (acc, v) in enumerate(self._parts()):
            self.line(
                f"(({v.ctype}*)p[PARTS + {k}])[slot * {self._points_outside()} + {self._outer_flat()}]"
                f" = {acc.name}{v.suffix}{at};"
            )
        for _ in range(len(loops) + self.columns):
            self.end()
        self.columns = False  # what follows the parts runs point by point
        outside = [b for b in self.kernel.stored if b not in self.names.buffers]
        for b in sorted(outside, key=lambda b: self.order[id(self.writers[b])]):
            self.names.buffer(b)
        self._more_outer_loads()
        self.lines = [text.replace("p[PARTS + ", f"p[{len(self.names.buffers)} + ") for text in self.lines]

    def _more_outer_loads(self) -> None:
        """Name the buffers that only the epilogue reads, so that the partial results come after all buffers."""
        for m in self.kernel.members:
            if not m.inner:
                for load in loads_of(m.loops):
                    if load.buffer not in self.writers:
                        self.names.buffer(load.buffer)

    def _parts(self) -> list[tuple[Accumulator, Variable]]:
        return [(acc, v) for acc in self.accumulators.values() for v in acc.variables()]

    def _points_outside(self) -> int:
        found = total([a for a, _ in self.plan.parallel]).as_int()
        assert found is not None
        return found

    def _outer_flat(self) -> str:
        flat: Expr = ONE - ONE
        for axis, _ in self.plan.parallel:
            flat = flat * axis.extent + axis.symbol
        return self.names.text(flat)

    def _split_driver(self) -> list[str]:
        """Run the parts, then combine partial results in the order of the parts, then the epilogue."""
        first = self.plan.inner[0]
        points = self._points_outside()
        inside = total([a for a in self.kernel.axes if a is not first])
        buffers = len(self.names.buffers)
        parts = self._parts()
        for k, (_, v) in enumerate(parts):
            self.line(f"{v.ctype} part{k}[{MAX_PARTS * points}];")
        given = [f"p[{k}]" for k in range(buffers)] + [f"part{k}" for k in range(len(parts))]
        self.line(f"void* q[] = {{{', '.join(given)}}};")
        per_item = self.names.text(inside * self._cost())
        self.line(
            f"const int64_t parts = p_run(@_part, q, n, {self.names.text(first.extent)}, "
            f"1 + {GRAIN} / (1 + {per_item}), {MAX_PARTS}, p_error);"
        )
        for axis, _ in self.plan.parallel:
            self.loop(axis)
        for acc in self.accumulators.values():
            for v in acc.variables():
                self.line(f"{v.ctype} {acc.name}{v.suffix} = {v.start};")
        self.begin("for (int64_t k = 0; k < parts; k++)")
        at = f"[k * {points} + {self._outer_flat()}]"
        k = 0
        for acc in self.accumulators.values():
            suffixes = [v.suffix for v in acc.variables()]
            for j, v in enumerate(acc.variables()):
                self.line(f"const {v.ctype} o{acc.name}{suffixes[j]} = part{k}{at};")
                k += 1
            for text in acc.merge(f"o{acc.name}", "", ""):
                self.line(text)
        self.end()
        for phase in range(1, max(m.phase for m in self.kernel.members) + 2):
            self._outer_members(phase)
        for _ in self.plan.parallel:
            self.end()
        return [*self._head(), *self.lines]
