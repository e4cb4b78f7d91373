"""Write what a thread does in kernels with reductions: rows and columns.

In:     a `DevicePlan` of kind `rows` or `columns`.
Out:    lines of CUDA C: for each phase the statements of the outer loops, then one pass over the inner loops, at whose end
        the threads that share it combine what they reduced.
Holds:  values of an outer point are known to all threads that share it; one of them stores these, at the end. In
        `columns` what passes share is in arrays with an element a column of the thread.
"""

from __future__ import annotations

from dataclasses import replace

from pliant.codegen.c_text import MEMORY_TYPES, cast_text, register_type
from pliant.codegen.cuda.accumulators import DeviceAccumulator
from pliant.codegen.cuda.device_writer import DeviceWriter
from pliant.codegen.cuda.plan import DevicePlan, belongs_to_rows
from pliant.codegen.cuda.statements import DeviceStatements
from pliant.codegen.loops import flat_reduced
from pliant.codegen.reductions import Accumulator
from pliant.ir.loops import Axis, Buffer, Pointwise, Reduction
from pliant.ir.scalar import Load
from pliant.schedule.kernel import Member, loads_of
from pliant.symbolic.expr import ONE, Expr
from pliant.symbolic.traverse import linear_coefficient, substitute

WARP = 32
BYTES_AT_ONCE = 64  # of a row that a thread has on their way from memory; more would be code that takes long to build
MOST_AT_ONCE = 8  # turns of a loop over a row that are written out


class DeviceReducingWriter(DeviceWriter):
    """Adds passes over the inner loops."""

    def __init__(self, plan: DevicePlan) -> None:
        super().__init__(plan)
        self.columns = plan.kind == "columns"
        self.guarded = self.columns and plan.group > 1
        self.outer_tile = self._tile() if self.columns else None
        slot = f"k * {plan.width} + u" if plan.steps else "u"
        self.inner_tile = self._tile(slot)
        self.slot = slot if self.inner_tile else "k"
        known = plan.launched is None
        self.group, self.warps = (str(plan.group), str(plan.group // WARP)) if known else ("group", f"(group / {WARP})")
        self.cross: dict[Buffer, str] = {}
        self.scratch: dict[Buffer, str] = {}
        self.rows: dict[tuple[Buffer, Expr], str] = {}
        self.fresh: list[tuple[str, Load, Expr]] = []
        self.accumulators: dict[int, Accumulator] = {}
        self.phase = -1

    def write(self) -> None:
        plan = self.plan
        if self.columns:
            self.line(f"const int lane = threadIdx.x / {plan.items};")
            self._find_item(f"threadIdx.x % {plan.items}", early=not self.guarded)
        else:
            self.line(f"const int lane = {self._lane()};")
            if plan.launched is not None:
                self.line(f"const int group = blockDim.x{f' * {plan.cluster}' * (plan.cluster > 1)};")
            self._find_item(f"threadIdx.x / {plan.group}", early=True)
        self._decompose("item", plan.outer)
        for phase in range(max(m.phase for m in self.kernel.members) + 2):
            self._outer_members(phase)
            members = [m for m in self.kernel.members if m.inner and m.phase == phase]
            if members:
                self._pass(members, phase)
        self._store_outer()
        if plan.cluster > 1:
            self.line("p_cluster_sync();")  # shared memory of a block lives as long as it does

    def _lane(self) -> str:
        """A thread's number among those that share its outer point."""
        plan = self.plan
        if plan.items > 1:
            return f"threadIdx.x % {plan.group}"
        if plan.cluster == 1:
            return "threadIdx.x"
        return f"threadIdx.x + blockIdx.x % {plan.cluster} * {'blockDim.x' if plan.launched is not None else plan.threads}"

    # -- outer points --------------------------------------------------------------------------------------------------

    def _outer_members(self, phase: int) -> None:
        """Statements of members that run once per outer point, and of reductions that have just ended."""
        ended = [m for m in self.kernel.members if isinstance(m.loops, Reduction) and m.phase == phase - 1]
        members = [m for m in self.kernel.members if not m.inner and m.phase == phase]
        if not ended and not members:
            return
        s = self._statements(self.outer_tile)
        for m in ended:
            acc = self.accumulators[id(m)]
            at = "[u]" if self.outer_tile else ""
            self._name(m, s, cast_text(acc.final(at), acc.result_dtype, m.loops.out.dtype))
        for m in members:
            self._name(m, s, s.value(m.loops.value, m))
        self._live()
        self._emit(s)
        self._end_live()

    def _name(self, m: Member, s: DeviceStatements, value: str) -> None:
        """Name a value of an outer point so that later passes can use it."""
        name = f"r{len(self.cross)}"
        ctype = register_type(m.loops.out.dtype)
        if self.outer_tile is not None:
            self.line(f"{ctype} {name}[{self.outer_tile.width}];")
            name = f"{name}[u]"
            s.body.append(f"{name} = {value};")
            s.varying.add(name)
        elif self.guarded:
            self.line(f"{ctype} {name} = 0;")
            s.body.append(f"{name} = {value};")
        else:
            s.body.append(f"const {ctype} {name} = {value};")
        self.cross[m.loops.out] = name

    def _live(self) -> None:
        if self.guarded:
            self.begin("if (live)")

    def _end_live(self) -> None:
        if self.guarded:
            self.end()

    def _store_outer(self) -> None:
        """One thread stores the values of its outer point, when no other reads what they may replace."""
        stored = [m for m in self.kernel.members if m.loops.out in self.cross and m.loops.out in self.kernel.stored]
        if not stored:
            return
        self._wait()
        s = self._statements(self.outer_tile)
        for m in stored:
            name = self.cross[m.loops.out]
            if "[" in name:
                s.varying.add(name)
            indirect = m.loops.indirect if isinstance(m.loops, Pointwise) else ()
            s.store(m.loops.out, m.loops.index, indirect, m, name)
        conditions = ["lane == 0"] * (self.plan.group > 1) + ["live"] * self.guarded
        if conditions:
            self.begin(f"if ({' && '.join(conditions)})")
        self._emit(s)
        if conditions:
            self.end()

    def _wait(self) -> None:
        """Until the threads that share an outer point are here."""
        if self.plan.cluster > 1:
            self.line("p_cluster_sync();")
        elif self.columns and self.plan.group > 1 or self.plan.group > WARP:
            self.line("__syncthreads();")
        elif self.plan.group > 1:
            self.line(f"__syncwarp(p_lanes<{self.plan.group}>());")

    # -- passes --------------------------------------------------------------------------------------------------------

    def _pass(self, members: list[Member], phase: int) -> None:
        """One walk over the inner loops."""
        self.phase = phase
        reductions = [m for m in members if isinstance(m.loops, Reduction)]
        for m in reductions:
            self._start(m)
        self._declare_scratch(members)
        s = self._statements(self.inner_tile)
        if self.plan.steps:
            s.keep = self._keep
        for m in members:
            if isinstance(m.loops, Reduction):
                self._take(m, s)
            else:
                self._run(m, s)
                self._remember(m, s)
        self._live()
        self._load_rows()
        self._begin_inner(self._turns_at_once(s))
        self._emit(s)
        self._end_inner()
        self._end_live()
        for m in reductions:
            self._combine(self.accumulators[id(m)])

    def _begin_inner(self, at_once: int = 1) -> None:
        """`at_once`: turns that are written out where the loop is one."""
        plan = self.plan
        count = self._count(plan.inner)
        self.line("#pragma unroll" + ("" if plan.steps else f" {at_once}"))
        if plan.steps:
            self.begin(f"for (int k = 0; k < {plan.steps}; k++)")
            self.line(f"const {self.integer} q = lane + k * {self.group};")
            if plan.count(plan.inner).as_int() != plan.steps * plan.group:
                self.line(f"if (q >= {count}) break;")
        else:
            self.begin(f"for ({self.integer} q = lane; q < {count}; q += {self.group})")
        self._decompose("q", plan.inner)

    def _turns_at_once(self, s: DeviceStatements) -> int:
        """Turns of a loop over a row that are written out, so that enough of it is on its way from memory at a time. What all
        rows share is in a cache."""
        width = s.tile.width if s.tile else 1
        inner = [m for m in self.kernel.members if m.inner]
        far = {x.buffer for m in inner for x in loads_of(m.loops) if belongs_to_rows(self.kernel, m.at(x.index))}
        sizes = [b.dtype.itemsize for b, _ in s.arrays if b in far] or [b.dtype.itemsize for b, _ in s.arrays]
        loaded = sum(sizes) * width
        return max(1, min(MOST_AT_ONCE, BYTES_AT_ONCE // loaded) if loaded else MOST_AT_ONCE // width)

    def _surely(self, vector: Axis) -> tuple[str, str]:
        """Of a row whose turns are written out only the first and the last ones have groups that are not whole: the code
        for these is most of a text's machine code, so it stands in those turns alone."""
        plan, extent = self.plan, vector.extent.as_int()
        if not plan.steps or plan.launched is not None or extent is None or plan.inner != [vector]:
            return "", ""
        whole = max(0, (extent - plan.width) // plan.width + 1) // plan.group  # turns of which no thread's group ends late
        return "k > 0 ? 0 : ", f"k < {whole} ? {plan.width} : " if whole else ""

    def _end_inner(self) -> None:
        self.end()

    def _start(self, m: Member) -> None:
        assert isinstance(m.loops, Reduction)
        dtype = m.loops.value.dtype if m.loops.op.startswith("arg") else m.loops.accumulate_dtype
        acc = DeviceAccumulator(m.loops.op, dtype, f"acc{len(self.accumulators)}")
        self.accumulators[id(m)] = acc
        for v in acc.variables():
            if self.outer_tile is None:
                self.line(f"{v.ctype} {acc.name}{v.suffix} = {v.start};")
                continue
            width = self.outer_tile.width
            self.line(f"{v.ctype} {acc.name}{v.suffix}[{width}];")
            self.line("#pragma unroll")
            self.line(f"for (int u = 0; u < {width}; u++) {acc.name}{v.suffix}[u] = {v.start};")

    def _take(self, m: Member, s: DeviceStatements) -> None:
        """A reduction takes a value in."""
        acc = self.accumulators[id(m)]
        value = cast_text(s.value(m.loops.value, m), m.loops.value.dtype, acc.dtype)
        flat = f"({self.names.text(flat_reduced(m))})" if acc.is_arg else "0"
        s.body += acc.update(value, "[u]" if self.outer_tile else "", flat)

    # -- values kept between passes ------------------------------------------------------------------------------------

    def _kept(self, buffer: Buffer) -> str | None:
        assert self.open is not None
        name = self.cross.get(buffer)
        if name is None and buffer in self.scratch and self.writers[buffer].phase < self.phase:
            name = f"{self.scratch[buffer]}[{self.slot}]"
        if name is not None and "[" in name:
            self.open.varying.add(name)
        return name

    def _declare_scratch(self, members: list[Member]) -> None:
        if self.plan.steps:
            for m in self.plan.kept:
                if m in members:
                    out = m.loops.out
                    self.scratch[out] = f"w{len(self.scratch)}"
                    elements = self.plan.steps * self.plan.width
                    self.line(f"{register_type(out.dtype)} {self.scratch[out]}[{elements}];")

    def _remember(self, m: Member, s: DeviceStatements) -> None:
        if m.loops.out in self.scratch:
            s.body.append(f"{self.scratch[m.loops.out]}[{self.slot}] = {self.known[m.loops.out]};")

    def _keep(self, load: Load, e: Expr) -> str | None:
        """The array with a thread's part of a row, if a load goes along it: loaded once, ahead of its first use."""
        vector = self.plan.vector
        assert vector is not None
        along = linear_coefficient(e, vector.symbol) is ONE or not self.inner_tile
        if load.buffer in self.writers or not along or not belongs_to_rows(self.kernel, e):
            return None
        found = self.rows.get((load.buffer, e))
        if found is None:
            found = self.rows[(load.buffer, e)] = f"v{self.counter[0]}"
            self.counter[0] += 1
            self.fresh.append((found, load, e))
        return found

    def _load_rows(self) -> None:
        fresh, self.fresh = self.fresh, []
        if not fresh:
            return
        width = self.plan.width
        for name, load, _ in fresh:
            self.line(f"alignas(16) {MEMORY_TYPES[load.dtype]} {name}[{self.plan.steps * width}];")
        self._begin_inner()
        for name, load, e in fresh:
            source = self.names.buffer(load.buffer)
            tile = self.inner_tile
            if tile is None:
                self.line(f"{name}[k] = {source}[{self.names.text(e)}];")
                continue
            start = self.names.text(substitute(e, {tile.axis.symbol: tile.start}))
            self.line(f"{tile.load(e)}({name} + k * {width}, {source} + ({start}){tile.limit});")
        self._end_inner()

    # -- sharing -------------------------------------------------------------------------------------------------------

    def _combine(self, acc: Accumulator) -> None:
        """Every thread that shares an outer point gets what all of them reduced."""
        if self.plan.group == 1:
            return
        if self.columns:
            self._combine_columns(acc)
            return
        self._butterfly(acc, min(self.plan.group, WARP))
        if self.plan.group > WARP:
            self._combine_warps(acc)

    def _combine_warps(self, acc: Accumulator) -> None:
        """Through shared memory. Each block of a cluster has its warps' part of an array that is as long as all need."""
        plan = self.plan
        warps = plan.group // WARP
        for v in acc.variables():
            self.line(f"__shared__ {v.ctype} x{acc.name}{v.suffix}[{warps}];")
        for v in acc.variables():
            self.line(f"if (lane % 32 == 0) x{acc.name}{v.suffix}[lane / 32] = {acc.name}{v.suffix};")
        self.line("p_cluster_sync();" if plan.cluster > 1 else "__syncthreads();")
        if plan.cluster > 1:
            self._merge_blocks(acc)
        else:
            for v in acc.variables():
                shared = f"x{acc.name}{v.suffix}[lane % 32]"
                if warps < WARP or plan.launched is not None:
                    shared = f"lane % 32 < {self.warps} ? {shared} : {v.start}"
                self.line(f"{acc.name}{v.suffix} = {shared};")
        self._butterfly(acc, WARP)

    def _merge_blocks(self, acc: Accumulator) -> None:
        """A lane takes in what every 32nd warp of the cluster reduced."""
        for v in acc.variables():
            self.line(f"{acc.name}{v.suffix} = {v.start};")
        self.begin(f"for (int k = lane % 32; k < {self.warps}; k += 32)")
        for v in acc.variables():
            at = f"x{acc.name}{v.suffix} + k, k / ({self.warps} / {self.plan.cluster})"
            self.line(f"const {v.ctype} o{acc.name}{v.suffix} = p_peer({at});")
        for text in acc.merge(f"o{acc.name}"):
            self.line(text)
        self.end()

    def _butterfly(self, acc: Accumulator, lanes: int) -> None:
        self.line("#pragma unroll")
        self.begin(f"for (int o = {lanes // 2}; o > 0; o >>= 1)")
        for v in acc.variables():
            name = f"{acc.name}{v.suffix}"
            self.line(f"const {v.ctype} o{name} = p_shuffle<{lanes}>({name}, o);")
        for text in acc.merge(f"o{acc.name}"):
            self.line(text)
        self.end()

    def _combine_columns(self, acc: Accumulator) -> None:
        """Through shared memory: each thread reads what those above and below it reduced."""
        plan, width = self.plan, self.outer_tile.width if self.outer_tile else 1
        at = "[u]" if self.outer_tile else ""
        one = replace(acc, name=f"m{acc.name}")
        self.begin("")
        for v in acc.variables():
            self.line(f"__shared__ {v.ctype} x{v.suffix}[{plan.threads * width}];")
        place = f"({{}} * {width} + u) * {plan.items} + threadIdx.x % {plan.items}"
        self.line(f"for (int u = 0; u < {width}; u++) {{")
        for v in acc.variables():
            self.line(f"  x{v.suffix}[{place.format('lane')}] = {acc.name}{v.suffix}{at};")
        self.line("}")
        self.line("__syncthreads();")
        self.line("#pragma unroll")
        self.begin(f"for (int u = 0; u < {width}; u++)")
        for v in acc.variables():
            self.line(f"{acc.name}{v.suffix}{at} = x{v.suffix}[{place.format('0')}];")
        self.end()
        self.line("#pragma unroll 1")  # all turns written out take a third of the kernel's time to build
        self.begin(f"for (int y = 1; y < {plan.group}; y++)")
        self.line("#pragma unroll")
        self.begin(f"for (int u = 0; u < {width}; u++)")
        for v in acc.variables():
            self.line(f"{v.ctype} {one.name}{v.suffix} = {acc.name}{v.suffix}{at};")
            self.line(f"const {v.ctype} o{one.name}{v.suffix} = x{v.suffix}[{place.format('y')}];")
        for text in one.merge(f"o{one.name}"):
            self.line(text)
        for v in acc.variables():
            self.line(f"{acc.name}{v.suffix}{at} = {one.name}{v.suffix};")
        self.end()
        self.end()
        self.end()
