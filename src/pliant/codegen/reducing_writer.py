"""Write kernels with reductions whose outer loops run in parallel: rows and columns.

In:     a `LoopPlan` of kind `rows` or `columns`.
Out:    lines of C: for each phase the statements of the outer loops, then one pass over the inner loops.
Holds:  in `rows` what passes share is in locals, in `columns` in arrays with an element a column of the block.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from pliant.codegen.c_text import cast_text, literal, operator_text, register_type
from pliant.codegen.expressions import Statements
from pliant.codegen.loops import flat_reduced
from pliant.codegen.reductions import Accumulator
from pliant.codegen.vector_passes import VectorPasses, cost_of
from pliant.codegen.vector_reductions import MOST_VECTORS, vectors_in_turn
from pliant.ir.loops import Axis, Buffer, Pointwise, Reduction
from pliant.ir.scalar import Apply, Const, Load, Scalar, walk
from pliant.schedule.fuse import total
from pliant.schedule.kernel import Member, loads_of

SHORT_ROW = 256  # terms of a row's sum that lanes add up in float
SEARCHED = 16  # elements of which is asked at once whether one is better than the best so far
SUM_BLOCK = 2048  # terms summed before they are added to the total
RECOMPUTE = 10  # values cheaper than this are computed again in each pass
SCRATCH = 16384  # elements of a row kept between passes on the stack


class ReducingWriter(VectorPasses):
    """Adds passes over the inner loops."""

    def _reducing(self) -> None:
        self._choose_scratch()
        self.plan.at_once = self.columns and not self.scratch and len(self.plan.parallel) == 1 and self._is_narrow()
        self._columns_at_once() if self.plan.at_once else self._decompose()
        phases = max(m.phase for m in self.kernel.members) + 2
        for phase in range(phases):
            self._outer_members(phase)
            members = [m for m in self.kernel.members if m.inner and m.phase == phase]
            if members:
                self._pass(members)
                self.far, self.loads_ahead = False, frozenset()  # the row is in the cache from now on
        self.end()
        for name in self.allocated:
            self.line(f"__builtin_free({name});")

    def _is_narrow(self) -> bool:
        """Whether accumulators of all columns stay in the cache."""
        assert self.plan.vector is not None
        extent = self.plan.vector.extent.as_int()
        return extent is not None and extent <= self.target.widest_columns

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
            costs[out] = cost_of(m) + sum(costs.get(x.buffer, 0) for x in loads_of(m.loops))
            if costs[out] < RECOMPUTE or not self._is_used_later(m):
                continue
            ctype, name = register_type(out.dtype), f"w{len(self.scratch)}"
            if size is not None and size * width <= SCRATCH:
                self.line(f"{ctype} {name}[{size * width}];")
            elif not self.columns:
                self.line(f"{ctype}* const {name} = __builtin_malloc(sizeof({ctype}) * ({self.names.text(points)}));")
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
        if vector is not None and not ended and self._columns_of_outer(members, vector):
            return
        s = self._statements(vector)
        for m in ended:
            acc = self.accumulators[id(m)]
            at = f"[{self._column()}]" if self.columns else ""
            exact = acc.wide and m.loops.out.dtype is torch.float64  # the total as it is
            self._finish(m, s, acc.name + at if exact else cast_text(acc.final(at), acc.result_dtype, m.loops.out.dtype))
        for m in members:
            self._scale_totals(m, s, {x.loops.out: self.accumulators[id(x)] for x in ended})
            self._finish(m, s, s.value(m.loops.value, m))
        self._emit_outer(s, vector)

    def _columns_of_outer(self, members: list[Member], vector: Axis) -> bool:
        """Values of columns that wait for no reduction, on vectors: written as choices between numbers (the larger one, the
        one that is no NaN), such loops become branches."""
        start, lines = self.finished, len(self.lines)
        arrays = {m.loops.out: f"r{start + k}" for k, m in enumerate(members)}
        for out, name in arrays.items():
            self.line(f"{register_type(out.dtype)} {name}[{self.plan.width}];")

        def fill(s: Statements) -> None:
            for m in members:
                assert isinstance(m.loops, Pointwise)
                out, value = m.loops.out, s.value(m.loops.value, m)
                self.known[out] = value
                s.write(arrays[out], self._column(), value, out.dtype)
                if out in self.kernel.stored:
                    index = s.index(m.loops.index, m.loops.indirect, m)
                    s.write(self.names.buffer(out), index, value, out.dtype, m.store_index)

        if not self._vector_loop(fill, fill, vector, self._columns_of(vector)):
            del self.lines[lines:]
            return False
        self.finished += len(members)
        self.cross_arrays |= arrays
        return True

    def _scale_totals(self, m: Member, s: Statements, ended: dict[Buffer, Accumulator]) -> None:
        """A total that is divided or multiplied (a mean, a variance) is rounded to float once, after that."""
        at = f"[{self._column()}]" if self.columns else ""
        for x in walk(m.loops.value):
            if not isinstance(x, Apply) or x.op not in ("div", "mul") or not isinstance(x.args[0], Load):
                continue
            acc = ended.get(x.args[0].buffer)
            if acc is not None and acc.wide and x.dtype is torch.float32 and m.loops.out.dtype is torch.float32:
                text = _scaled(acc.name + at, x.op, x.args[1], s.value(x.args[1], m))
                s.memo[x, id(m)] = s.define(f"(float)({text})", torch.float32, True)

    def _emit_outer(self, s: Statements, vector: Axis | None) -> None:
        if vector is None:
            self._emit(s, None, None, "")
            return
        name = self.names.symbols[vector.symbol]
        self._emit(s, vector, (f"{name}b", f"{name}e"), "#pragma omp simd")

    def _finish(self, m: Member, s: Statements, value: str) -> None:
        """Name a value of the outer loops so that later passes can use it, and store it if somebody else needs it."""
        out = m.loops.out
        name = f"r{self.finished}"
        self.finished += 1
        if self.columns:
            self._before_loops(f"{register_type(out.dtype)} {name}[{self.plan.width}];")
            s.body.append(f"{name}[{self._column()}] = {value};")
            self.cross_arrays[out] = name
        else:
            s.body.append(f"const {register_type(out.dtype)} {name} = {value};")
            self.cross[out] = name
        if out in self.kernel.stored:
            indirect = m.loops.indirect if isinstance(m.loops, Pointwise) else ()
            s.body.append(f"{self.names.buffer(out)}[{s.index(m.loops.index, indirect, m)}] = {self.cross.get(out, value)};")

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
        acc = Accumulator(m.loops.op, dtype, f"acc{len(self.accumulators)}")
        if acc.narrow and (self.columns or self._is_long()):
            acc = replace(acc, wide=True)
        self.accumulators[id(m)] = acc
        for v in acc.variables():
            if self.columns:
                self.line(f"{v.ctype} {acc.name}{v.suffix}[{self.plan.width}];")
                self.line(f"for (int64_t j = 0; j < {self.plan.width}; j++) {acc.name}{v.suffix}[j] = {v.start};")
            else:
                self.line(f"{v.ctype} {acc.name}{v.suffix} = {v.start};")

    def _is_long(self) -> bool:
        """Whether the lanes' sums are worth adding up in double: where a row is short, that takes longer than the row."""
        count = total(self.plan.inner).as_int()
        return count is None or count > SHORT_ROW

    def _has_partial_sums(self) -> bool:
        """Whether each run of the vectorized loop is summed alone and then added to the total."""
        assert self.plan.vector is not None
        extent = self.plan.vector.extent.as_int()
        return len(self.plan.inner) > 1 or extent is None or extent > SUM_BLOCK

    def _column_pass(self, members: list[Member], first: tuple[str, str] | None) -> None:
        assert self.plan.vector is not None
        if self._columns_on_vectors(members, self.plan.vector, first):
            return
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
        self._emit(s, self.plan.vector, (f"{name}b", f"{name}e"), self._simd(members, self.plan.vector))
        for _ in self.plan.inner:
            self.end()

    def _reduced_value(self, m: Member, s: Statements, acc: Accumulator) -> str:
        value = s.value(m.loops.value, m)
        return cast_text(value, m.loops.value.dtype, acc.dtype) if m.loops.value.dtype is not acc.dtype else value

    def _flat(self, m: Member) -> str:
        acc = self.accumulators[id(m)]
        return self.names.text(flat_reduced(m)) if acc.is_arg else "0"

    def _row_pass(self, members: list[Member], reductions: list[Member], first: tuple[str, str] | None) -> None:
        if self._held_on_vectors(members, first):
            return
        vector = self.plan.vector
        assert vector is not None
        opened = 0
        for axis in self.plan.inner[:-1]:
            self.loop(axis, *(first if first and opened == 0 else ()))
            opened += 1
        bounds = first if first and opened == 0 else ("0", self.names.text(vector.extent))
        vectorized = all(self.accumulators[id(m)].vectorizes for m in reductions)
        extent = vector.extent.as_int()
        # as many terms for each of the vectors that take them in turn, of which costly terms have fewer
        block = SUM_BLOCK // MOST_VECTORS * vectors_in_turn(sum(map(cost_of, members)), len(reductions), None)
        blocked = any(self.accumulators[id(m)].rounds for m in reductions) and (extent is None or extent > block)
        if blocked:
            self.begin(f"for (int64_t b = {bounds[0]}; b < {bounds[1]}; b += {block})")
            self.line(f"const int64_t be = p_min(b + {block}, {bounds[1]});")
            bounds = ("b", "be")
            opened += 1
        partial = blocked or self._has_partial_sums()
        self._row_loop(members, bounds, vectorized, partial and vectorized)
        for _ in range(opened):
            self.end()

    def _row_loop(self, members: list[Member], bounds: tuple[str, str], vectorized: bool, partial: bool) -> None:
        """The vectorized loop; with `partial`, sums of their own are added to the totals after it. What has no vector form
        is added up in double, one by one."""
        if self._row_on_vectors(members, bounds):
            return
        positions = [m for m in members if isinstance(m.loops, Reduction) and self.accumulators[id(m)].is_arg]
        others = [m for m in members if m not in positions]
        if positions and others and all(isinstance(m.loops, Reduction) for m in others):
            # the others wait for no comparison in a loop of their own, which goes through the row before it leaves the cache
            self._row_loop(others, bounds, True, self._has_partial_sums())
            self._row_loop(positions, bounds, False, False)
            return
        s = self._statements(self.plan.vector)
        taken: list[tuple[Accumulator, str, str]] = []
        for m in members:
            if isinstance(m.loops, Reduction):
                acc = self.accumulators[id(m)]
                taken.append((acc, self._reduced_value(m, s, acc), f"({self._flat(m)})"))
            else:
                self._run(m, s)
        clauses: dict[str, list[str]] = {}
        after: list[str] = []
        updates: list[list[str]] = [[] for _ in range(self._parts_of_sums(members) if vectorized else 1)]
        for acc, value, flat in taken:
            alone = vectorized and not acc.wide and (partial or acc.narrow)
            for u, update in enumerate(updates):
                name = f"s{acc.name}" * alone or acc.name
                name += f"_{u}" if u else ""
                for v in replace(acc, wide=acc.wide or acc.narrow).variables() if vectorized else ():
                    clauses.setdefault(v.clause, []).append(name + v.suffix)
                    if alone or u:
                        self.line(f"{v.ctype} {name}{v.suffix} = {v.start};")
                update += acc.update(value, "", flat, name)
                after += acc.merge(name) if alone or u else []
        if positions and not others:
            self._emit_in_blocks(s, taken, updates[0], bounds)
            return
        texts = "".join(f" reduction({op}:{', '.join(names)})" for op, names in clauses.items())
        self._emit_in_parts(s, updates, bounds, f"#pragma omp simd{texts}" if vectorized else "")
        self._lines(after)

    def _emit_in_blocks(
        self, s: Statements, taken: list[tuple[Accumulator, str, str]], update: list[str], bounds: tuple[str, str]
    ) -> None:
        """The innermost loop over blocks, most of which hold nothing that is taken: the compiler's vectors find that out."""
        vector, body = self.plan.vector, s.body
        assert vector is not None
        name, (start, stop) = self.names.symbols[vector.symbol], bounds
        self._lines([*s.before, "{", f"int64_t {name}c = {start};"])
        self.begin(f"for (; {name}c + {SEARCHED} <= {stop}; {name}c += {SEARCHED})")
        around = f"for (int64_t {name} = {name}c; {name} < {name}c + {SEARCHED}; {name}++) {{"
        behind = [f"const int64_t {name} = {name}c;", *(f"{acc.name}b = {acc.name}k <= {flat};" for acc, _, flat in taken)]
        self._lines([*(f"_Bool {acc.name}b;" for acc, _, _ in taken), "{", *behind, "}"])
        tests = " | ".join(acc.may_take(value, f"{acc.name}b") for acc, value, _ in taken)
        self._lines(["int64_t any = 0;", "#pragma omp simd reduction(|:any)", around, *body, f"any |= -(int64_t)({tests});", "}"])
        self._lines([f"if (any) {around}", *body, *update, "}"])
        self.end()
        s.before, s.body = [], [*body, *update]
        self._emit(s, vector, (f"{name}c", stop), "")
        self.line("}")

    def _parts_of_sums(self, members: list[Member]) -> int:
        """In how many parts the compiler's vectors go through a row, each with sums of its own: an addition of floats need
        not wait for the last one then."""
        assert self.plan.vector is not None
        folds = [self.accumulators[id(m)] for m in members if isinstance(m.loops, Reduction)]
        if not any(acc.rounds for acc in folds):
            return 1
        return vectors_in_turn(sum(map(cost_of, members)), len(folds), self.plan.vector.extent.as_int())

    def _emit_in_parts(self, s: Statements, updates: list[list[str]], bounds: tuple[str, str], pragma: str) -> None:
        """The innermost loop over the points of as many parts of a row as there are `updates`, then over what these leave."""
        vector, count, body = self.plan.vector, len(updates), s.body
        assert vector is not None
        s.body = [*body, *updates[0]]
        if count == 1:
            self._emit(s, vector, bounds, pragma)
            return
        name, (start, stop) = self.names.symbols[vector.symbol], bounds
        self._lines([*s.before, "{"])
        self.depth += 1
        self._lines([f"const int64_t {name}n = ({stop} - {start}) / {count};", pragma])
        self.begin(f"for (int64_t {name}k = 0; {name}k < {name}n; {name}k++)")
        for u, update in enumerate(updates):
            self._lines(["{", f"  const int64_t {name} = {start} + {name}k + {u} * {name}n;"])
            self._lines([*(f"  {text}" for text in (*body, *update)), "}"])
        self.end()
        if self._points_between(vector, bounds).multiple % count:
            s.before = []
            self._emit(s, vector, (f"{start} + {count} * {name}n", stop), "")
        self.end()


def _scaled(total: str, op: str, by: Scalar, text: str) -> str:
    """A total in double times or divided by a value. Its reciprocal in double is as good where the result is rounded to
    float, and the faster."""
    if op == "div" and isinstance(by, Const) and by.value:
        return f"{total} * {literal(1 / float(by.value), torch.float64)}"
    return operator_text(op, torch.float64, torch.float64, [total, text])
