"""Write passes over the inner loops of a kernel on vectors, with vectors of partial results.

In:     the members of one pass.
Out:    lines of C, or False, and nothing written, where something has no vector form.
Holds:  rows: vectors along the row, folded into the scalar accumulators after it. Columns: for each group of vectors of
        neighbouring columns a walk down the rows, added to the accumulators' arrays every `COLUMN_TERMS` rows (long ones: `WIDE_TERMS`),
        so that no lane sums many terms by itself.
Reads on: `vector_reductions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from pliant.codegen.expressions import Names, Statements
from pliant.codegen.loops import flat_position
from pliant.codegen.scan_writer import ScanWriter
from pliant.codegen.vector_reductions import (
    VectorAccumulator,
    VectorExtreme,
    in_turn,
    vector_accumulator,
    vectors_in_turn,
)
from pliant.codegen.vector_statements import NoVectorForm, VectorStatements
from pliant.codegen.whole_vectors import around_rest
from pliant.ir.loops import Axis, Reduction
from pliant.ir.ops import OPS
from pliant.ir.scalar import Apply, Load, index_value, walk
from pliant.schedule.fuse import total
from pliant.schedule.kernel import Member

COLUMN_TERMS = 32  # rows that a lane sums before they are added to its column's total
WIDE_TERMS = 8  # the same where rows are long: so many of them are read side by side
LONG_ROW = 256
LOOKUP = 10  # additions that an element costs which is looked up
HELD_TERMS = 4096  # terms of several rows that lanes sum before they are added to the total

Loop = tuple[Axis, tuple[str, str]]  # with its bounds


def cost_of(m: Member) -> int:
    """What a point of a computation costs, in additions."""
    nodes = list(walk(m.loops.value))
    looked_up = sum(isinstance(s, Load) and bool(s.indirect) for s in nodes)
    return LOOKUP * looked_up + sum(OPS[s.op].cost for s in nodes if isinstance(s, Apply))


class VectorPasses(ScanWriter):
    """Adds passes on vectors."""

    def _row_on_vectors(self, members: list[Member], bounds: tuple[str, str], held: Sequence[Loop] = ()) -> bool:
        """The loop along a row with vectors of partial results, added to the totals after it: after all rows of the loops
        `held` around it, the first of which is the outermost."""
        assert self.plan.vector is not None
        reductions = _reductions(members)
        points = None if held else self.plan.vector.extent.as_int()
        count = vectors_in_turn(sum(map(cost_of, members)), len(reductions), points) if reductions else 1
        found = self._vector_accumulators(members, count)
        if found is None:
            return False
        fill = self._filling(members, found)
        lines, self.lines = self.lines, []
        for axis, around in held:
            self.loop(axis, *around)
        done = self._vector_loop(
            lambda s: fill(s, in_turn(count)), lambda s: fill(s, "[0]"), self.plan.vector, bounds, count
        )
        for _ in held:
            self.end()
        written, self.lines = self.lines, lines
        if done:
            self._lines([text for acc in found.values() for text in acc.start()])
            self.lines += written
            self._lines([text for acc in found.values() for text in acc.finish()])
        return done

    def _held_on_vectors(self, members: list[Member], first: tuple[str, str] | None) -> bool:
        """Short rows: lanes go on with what they have from row to row, `HELD_TERMS` together. `first`: bounds of the
        outermost of the inner loops."""
        *around, vector = self.plan.inner
        held, rows = self._held()
        folds = _reductions(members)
        if not held or not folds or any(self.accumulators[id(m)].is_arg for m in folds):  # positions grow in a row only
            return False
        lines, self.lines, depth = self.lines, [], self.depth
        loops: list[Loop] = [
            (a, first if first and a is around[0] else ("0", self.names.text(a.extent))) for a in around
        ]
        outside, inside = loops[: -len(held)], loops[-len(held) :]
        for axis, bounds in outside:
            self.loop(axis, *bounds)
        axis, (start, stop) = inside[0]
        in_blocks = rows != axis.extent.as_int()
        if in_blocks:
            self.begin(f"for (int64_t b = {start}; b < {stop}; b += {rows})")
            self.line(f"const int64_t be = p_min(b + {rows}, {stop});")
            inside[0] = axis, ("b", "be")
        done = self._row_on_vectors(members, ("0", self.names.text(vector.extent)), inside)
        for _ in range(len(outside) + in_blocks):
            self.end()
        written, self.lines, self.depth = self.lines, lines, depth
        if done:
            self.lines += written
        return done

    def _held(self) -> tuple[list[Axis], int]:
        """The loops around the innermost one through which lanes' sums run, and how many points of the first of them are
        taken together."""
        *around, vector = self.plan.inner
        held: list[Axis] = []
        terms, rows = vector.extent.as_int(), 0
        for axis in reversed(around):
            extent = axis.extent.as_int()
            if not terms or not extent or 2 * terms > HELD_TERMS:
                break
            held.insert(0, axis)
            rows = min(extent, HELD_TERMS // terms)
            terms *= extent
        return held, rows

    def _cost(self) -> int:
        """Work at one point, in additions."""
        cost = 1
        for m in self.kernel.members:
            cost += 1 + sum(
                OPS[s.op].cost if isinstance(s, Apply) else isinstance(s, Load) for s in walk(m.loops.value)
            )
        return cost

    def _is_little(self) -> bool:
        """Whether all of its work is known to be less than a thread is worth."""
        points = total(self.kernel.axes).as_int()
        return points is not None and points * self._cost() < self.target.grain

    def _vector_accumulators(
        self, members: list[Member], count: int
    ) -> dict[int, VectorAccumulator | VectorExtreme] | None:
        """The vectors of each reduction, by its identity; None if one has none."""
        found: dict[int, VectorAccumulator | VectorExtreme] = {}
        for m in _reductions(members):
            acc = vector_accumulator(self.accumulators[id(m)], count)
            if acc is None:
                return None
            found[id(m)] = acc
        return found

    def _filling(
        self, members: list[Member], found: Mapping[int, VectorAccumulator | VectorExtreme]
    ) -> Callable[[Statements, str], None]:
        """What writes the body of the innermost loop; `at`: which of the vectors takes the values."""

        def fill(s: Statements, at: str) -> None:
            for m in members:
                acc = found.get(id(m))
                if acc is None:
                    self._run(m, s)
                else:
                    s.body += acc.update(s, self._vector_value(m, s), at, self._positions(m, s))

        return fill

    def _positions(self, m: Member, s: Statements) -> str:
        """Where the lanes lie among what is reduced, as a vector, for reductions that ask for it."""
        assert isinstance(s, VectorStatements) and isinstance(m.loops, Reduction)
        if not self.accumulators[id(m)].is_arg:
            return ""
        return s.lanes(s.value(index_value(flat_position(m.loops), torch.int64), m), torch.int64)

    def _vector_value(self, m: Member, s: Statements) -> str:
        """What a reduction takes in, as a vector."""
        assert isinstance(s, VectorStatements)
        dtype = m.loops.value.dtype
        value = s.lanes(s.value(m.loops.value, m), dtype)
        wanted = self.accumulators[id(m)].dtype
        return (
            value if self.accumulators[id(m)].op in ("any", "all") or dtype is wanted else s.cast(value, dtype, wanted)
        )

    # -- columns -----------------------------------------------------------------------------------------------------

    def _columns_on_vectors(self, members: list[Member], vector: Axis, first: tuple[str, str] | None) -> bool:
        if not self._takes_vectors(vector):
            return False
        if not _reductions(members):
            return self._columns_of_points(members, vector, first)
        count = min(4, max(1, self.plan.width // 16))
        found = self._vector_accumulators(members, count)
        if found is None:
            return False
        sums = {key: acc for key, acc in found.items() if isinstance(acc, VectorAccumulator)}
        if len(sums) < len(found):
            return False
        names, counter = self.names.copy(), self.counter[0]
        try:
            fill = self._filling(members, found)
            main = self._vector_statements(vector, None, None)
            fill(main, in_turn(count))
            rest = None
            if around_rest(self._points_between(vector, self._columns_of(vector)), count) is not None:
                rest = self._vector_statements(vector, "m", None)
                fill(rest, "[0]")
        except NoVectorForm:
            self._forget(names, counter)
            return False
        self._down_columns(list(sums.values()), main, rest, vector, first)
        return True

    def _column_terms(self) -> int:
        return WIDE_TERMS if self.plan.width > LONG_ROW else COLUMN_TERMS

    def _forget(self, names: Names, counter: int) -> None:
        self.names, self.counter[0] = names, counter

    def _columns_of(self, vector: Axis) -> tuple[str, str]:
        """The bounds of a block's columns."""
        name = self.names.symbols[vector.symbol]
        return f"{name}b", f"{name}e"

    def _columns_of_points(self, members: list[Member], vector: Axis, first: tuple[str, str] | None) -> bool:
        """A pass that reduces nothing: row by row."""
        lines, self.lines = self.lines, []
        depth = self.depth
        for k, axis in enumerate(self.plan.inner):
            self.loop(axis, *(first if first and k == 0 else ()))
        name = self.names.symbols[vector.symbol]
        fill = self._filling(members, {})
        done = self._vector_loop(lambda s: fill(s, ""), lambda s: fill(s, ""), vector, (f"{name}b", f"{name}e"))
        for _ in self.plan.inner:
            self.end()
        written, self.lines, self.depth = self.lines, lines, depth
        if done:
            self.lines += written
        return done

    def _down_columns(
        self,
        found: list[VectorAccumulator],
        main: VectorStatements,
        rest: VectorStatements | None,
        vector: Axis,
        first: tuple[str, str] | None,
    ) -> None:
        """Loops: rows in blocks, groups of columns, rows of a block, the group's vectors."""
        *outer, last = self.plan.inner
        for k, axis in enumerate(outer):
            self.loop(axis, *(first if first and k == 0 else ()))
        start, stop = first if first and not outer else ("0", self.names.text(last.extent))
        row, name = self.names.symbols[last.symbol], self.names.symbols[vector.symbol]
        terms = self._column_terms()
        self.begin(f"for (int64_t b = {start}; b < {stop}; b += {terms})")
        self.line(f"const int64_t be = p_min(b + {terms}, {stop});")
        self.line(f"int64_t j{name} = {name}b;")
        count, columns = found[0].count, self._columns_of(vector)
        for _ in self._whole_vectors(vector, columns, count):
            self._lines([text for acc in found for text in acc.start()])
            self.begin(f"for (int64_t {row} = b; {row} < be; {row}++)")
            self._lines(main.before)
            self._in_turn(name, main.body, count)
            self.end()
            at, is_little = f"j{name} - {name}b", self._is_little()
            self._lines([text for acc in found for text in acc.flush(at, f"{count} * P_L", count, is_little)])
        for _ in self._rest_of_vectors(vector, columns, count):
            assert rest is not None
            self._lines([text for acc in found for text in acc.start(1)])
            self.begin(f"for (int64_t {row} = b; {row} < be; {row}++)")
            self._lines(rest.before)
            self._rest(name, f"{name}e", rest.body)
            self.end()
            at, number = f"j{name} - {name}b", f"p_min({name}e - j{name}, P_L)"
            self._lines([text for acc in found for text in acc.flush(at, number, 1, True)])
        for _ in range(1 + len(outer)):
            self.end()


def _reductions(members: list[Member]) -> list[Member]:
    return [m for m in members if isinstance(m.loops, Reduction)]
