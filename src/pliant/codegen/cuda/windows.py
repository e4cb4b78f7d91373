"""Write what a thread does in kernels of windows, of which it takes several at a time: what these share is read once.

In:     a `DevicePlan` of kind `windows` (neighbouring results) or `window sums` (sums of all places of a window or its rows).
Out:    lines of CUDA C: statements of all points of a thread, in the order in which they need what is read, so that it is
        in registers for a short time.
Holds:  a point that two threads compute is stored by one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Set
from dataclasses import replace

import torch

from pliant.codegen.c_text import cast_text, register_type
from pliant.codegen.cuda.device_writer import DeviceWriter
from pliant.codegen.cuda.plan import SHARED_BYTES, DevicePlan
from pliant.codegen.cuda.reducing import WARP, DeviceReducingWriter
from pliant.codegen.cuda.rerolled import Rerolled, rerolled
from pliant.codegen.cuda.statements import NARROW, DeviceStatements
from pliant.codegen.cuda.tile import Tile, common_condition
from pliant.codegen.reductions import Accumulator
from pliant.ir.loops import Axis, Buffer, Reduction
from pliant.ir.scalar import Apply, Const, Load, Scalar
from pliant.records import dataclass
from pliant.schedule.kernel import Member
from pliant.symbolic.expr import Expr, Symbol, lit
from pliant.symbolic.traverse import substitute

_Scope = tuple[dict[str, str], dict[tuple[Buffer, str], str], dict[tuple[Scalar, int], str]]
_CONDITIONAL = re.compile(r"if \((.*)\) p_load_even(<\d+>\(.*)\);")


@dataclass(slots=True)
class _Part:
    """Loads and what is computed of them. `begins`: how many turns the loop has that begins behind it; `ends`: one ends."""

    before: list[str]
    body: list[str]
    begins: str = ""
    ends: bool = False


class WindowStatements(DeviceStatements):
    """Statements in the order in which they were asked for: `parts` are those before the last wide load, each the loads and
    what is computed of them. Values of neighbouring elements are in arrays, known to all parts.

    guard: what must hold for a store.
    """

    def __init__(self, *given: object, **named: object) -> None:
        super().__init__(*given, **named)  # type: ignore[arg-type]
        self.parts: list[_Part] = []
        self.guard = ""

    def begin_turns(self, turn: Axis, dtype: torch.dtype, begin: list[str]) -> tuple[list[str], _Scope]:
        """A loop begins here. Gives variables, which have these values before it, and what was known then."""
        names, width = [f"s{self._next()}" for _ in begin], f"[{self.tile.width}]" if self.tile else ""
        variables = [f"{name}[u]" if self.tile else name for name in names]
        declared = [f"{register_type(dtype)} {name}{width};" for name in names]
        (self.before if self.tile else self.body).extend(declared)
        self.body += [f"{variable} = {value};" for variable, value in zip(variables, begin, strict=True)]
        self.varying.update(variables)
        self._end_part(begins=self.names.text(turn.extent))
        return variables, (dict(self.values), dict(self.arrays), dict(self.memo))

    def end_turns(self, variables: list[str], values: list[str], before: _Scope) -> None:
        """It ends: the variables have these values from now on. What was computed in the loop is forgotten. All that a turn
        reads is asked for first, since nothing of the next turn is before this one ends."""
        begun = max(k for k, part in enumerate(self.parts) if part.begins) + 1
        within, self.parts = self.parts[begun:], self.parts[:begun]
        self.before = [line for part in within for line in part.before] + self.before
        self.body = [line for part in within for line in part.body] + self.body
        self.body += [f"{variable} = {value};" for variable, value in zip(variables, values, strict=True)]
        self._end_part(ends=True)
        self.values, self.arrays, self.memo = before

    def _end_part(self, begins: str = "", ends: bool = False) -> None:
        self.parts.append(_Part(self.before, self.body, begins, ends))
        self.before, self.body = [], []

    def define(self, text: str, dtype: torch.dtype, varying: bool) -> str:
        if self.tile is None or not varying:
            return super().define(text, dtype, varying)
        found = self.values.get(text)
        if found is None:
            name = f"t{self._next()}"
            found = self.values[text] = f"{name}[u]"
            self.before.append(f"{register_type(dtype)} {name}[{self.tile.width}];")
            self.body.append(f"{found} = {text};")
            self.varying.add(found)
            self.texts[found] = text
        return found

    def _wide(self, x: Load, e: Expr) -> str:
        known = len(self.before)
        found = super()._wide(x, e)
        if len(self.before) > known:
            self._note_aligned(self.before, e)
        if self.body and len(self.before) > known:
            loads = self.before[known:]
            self.parts.append(_Part(self.before[:known], self.body))
            self.before, self.body = loads, []
        return found

    def _note_aligned(self, texts: list[str], e: Expr) -> None:
        """Have the last access say that it is aligned, where that follows from its buffer's being so."""
        assert self.tile is not None
        if not self.tile.limits and self.tile.is_even(e):
            conditional = _CONDITIONAL.fullmatch(texts[-1])
            if conditional is None:
                texts[-1] = f"{texts[-1].removesuffix(');').replace('p_load_even', 'p_load')}, p_whole());"
            else:
                condition, load = conditional.groups()
                texts[-1] = f"p_load_if{load}, {condition.replace('&&', '&').replace('||', '|')});"

    def _where(self, x: Apply, member: Member) -> str:
        """What is loaded where all points of a group choose it, and zero elsewhere, as an array is that is not loaded."""
        condition, chosen, other = x.args
        load = chosen.args[0] if isinstance(chosen, Apply) and chosen.op == "cast" else chosen
        if self.tile is not None and isinstance(load, Load) and isinstance(other, Const) and other.value == 0:
            common = common_condition(condition, member, self.tile, self.names)
            if common is not None and load.dtype in (*NARROW, torch.float32) and self.resolve(load, member) is None:
                self.guards.append(common)
                place = None if load.indirect else self._place(load, member)
                self.guards.pop()
                if place is not None:
                    element = f"{place[0]}[{place[1]}]"
                    narrow = load.dtype in NARROW and chosen is not load
                    text = f"p_at_{NARROW[load.dtype]}({place[0]}, {place[1]})" if narrow else element
                    return self.define(text, x.dtype, True)
        return super()._where(x, member)

    def store(
        self, buffer: Buffer, e: Expr, indirect: tuple[tuple[Symbol, Scalar], ...], member: Member, value: str
    ) -> None:
        texts, known = self.after, len(self.after)
        super().store(buffer, e, indirect, member, value)
        if len(texts) > known:
            self._note_aligned(texts, member.at(e))
        else:
            texts, known = self.body, len(self.body) - 1
        if self.guard:
            texts[known] = f"if ({self.guard}) {texts[known]}"


@dataclass(slots=True)
class _Point:
    """A thread's point: the kernel's members there, and what is known of their values."""

    members: list[Member]
    known: dict[Buffer, str]


class _Copying(DeviceWriter):
    """Goes from one of a thread's points to the next."""

    def _points(self) -> list[_Point]:
        assert self.plan.copies is not None
        return [self._point(place) for place in self.plan.copies.places]

    def _point(self, place: dict[Symbol, Expr]) -> _Point:
        return _Point([_moved(m, place) for m in self.kernel.members], {})

    def _enter(self, point: _Point) -> None:
        """Have values be those of a point from now on."""
        self.known = point.known
        self.writers = {m.loops.out: m for m in point.members}
        self.order = {id(m): k for k, m in enumerate(point.members)}

    def _new_statements(self, tile: Tile | None) -> WindowStatements:
        copies = self.plan.copies
        assert copies is not None
        axes = [*self.kernel.axes, *copies.turns, *(a for a in (copies.groups, copies.start) if a is not None)]
        self.open = found = WindowStatements(self.names, tile, axes, self._resolve, self.counter)
        return found

    def _emit(self, s: DeviceStatements) -> None:
        assert isinstance(s, WindowStatements)
        after, s.after = s.after, []
        last = s.before, s.body
        for part in s.parts:
            s.before, s.body = part.before, part.body
            super()._emit(s)
            if part.begins:
                self._begin_turns("turn", part.begins)
            elif part.ends:
                self.end()
        (s.before, s.body), s.after = last, after
        super()._emit(s)

    def _begin_aligned(self) -> int:
        """The fast way begins: where all buffers are aligned. Where its condition goes."""
        self.depth += 1
        return len(self.lines)

    def _end_aligned(self, first: int) -> None:
        self.depth -= 1
        pointers = [f"(uint64_t){name}" for name in self.names.buffers.values()]
        self.lines.insert(first, f"{'  ' * self.depth}if (({' | '.join(pointers)}) % 16 == 0) {{")
        self.line("}")

    def _begin_one_by_one(self) -> _Point:
        """Else a thread takes its points, and their neighbouring elements, in turns: few programs ever do, so that the text
        had best be short. Gives the point of a turn; the innermost loop is that over the points."""
        vector, copies = self.plan.vector, self.plan.copies
        assert vector is not None and copies is not None
        name = self.names.symbols[vector.symbol]
        self.begin("else")
        self._begin_turns("v", self.plan.width)
        self.line(f"const {self.integer} {name} = {name}b + v;")
        for k, axis in enumerate(copies.turns):
            self.names.symbols[axis.symbol] = f"q{k}"
            self._begin_turns(f"q{k}", self.names.text(axis.extent))
        return self._point(copies.turn)

    def _begin_turns(self, name: str, times: int | str) -> None:
        self.line("#pragma unroll 1")
        self.begin(f"for (int {name} = 0; {name} < {times}; {name}++)")

    def _end_one_by_one(self) -> None:
        assert self.plan.copies is not None
        for _ in range(2 + len(self.plan.copies.turns)):
            self.end()


class DeviceWindowWriter(_Copying):
    """Several neighbouring results a thread."""

    def write(self) -> None:
        self._find_item("threadIdx.x", early=True)
        self._decompose("item", self.plan.outer)
        skipped, tile = self._begin_points(), self._tile()
        points = self._points()
        guards = [f"{n} >= skip" if skipped and n < len(points) - 1 else "" for n in range(len(points))]
        if tile is None:
            self._write_points(None, points, guards)
            return
        first = self._begin_aligned()
        self._write_points(tile, points, guards)
        self._end_aligned(first)
        self._write_points(None, [self._begin_one_by_one()], ["q0 >= skip" if skipped else ""])
        self._end_one_by_one()

    def _write_points(self, tile: Tile | None, points: list[_Point], guards: list[str]) -> None:
        """`guards`: what must hold for a point to be stored."""
        s = self._new_statements(tile)
        for k in range(len(self.kernel.members)):
            value, known = points[0].members[k].loops.value, set[Scalar]()
            for one in rerolled(value):
                if _is_apart(one, [point.members[k] for point in points]):
                    self._write_turns(one, k, points, known, s)
                    known.add(one.total)
            self._ask(value, k, points, known, s)
            for point, s.guard in zip(points, guards, strict=True):
                self._enter(point)
                self._run(point.members[k], s)
        self._emit(s)

    def _ask(self, x: Scalar, k: int, points: list[_Point], known: Set[Scalar], s: WindowStatements) -> list[str]:
        """The k-th member's value at each point, each part of it at all of them in turn. `known`: parts that need not be asked."""
        found: list[str] = []
        for part in in_turn(x, known):
            found = []
            for point in points:
                self._enter(point)
                found.append(s.value(part, point.members[k]))
        return found

    def _write_turns(
        self, one: Rerolled, k: int, points: list[_Point], known: Set[Scalar], s: WindowStatements
    ) -> None:
        """A sum as a loop, in which neighbouring points share what they read."""
        members = [point.members[k] for point in points]
        begin = self._ask(one.begin, k, points, known, s)
        variables, before = s.begin_turns(one.turn, one.total.dtype, begin)
        self.names.symbols[one.turn.symbol] = "turn"
        s.axes[one.turn.symbol] = one.turn
        for member, variable in zip(members, variables):
            s.memo[one.carried, id(member)] = variable
        s.end_turns(variables, self._ask(one.value, k, points, known, s), before)
        for member, variable in zip(members, variables):
            s.memo[one.total, id(member)] = variable

    def _begin_points(self) -> bool:
        """Where this thread's points begin; whether some may be another's too."""
        copies = self.plan.copies
        assert copies is not None
        if copies.start is None or copies.groups is None:
            return False
        group = self.names.symbols[copies.groups.symbol]
        start = self.names.symbols[copies.start.symbol] = f"{group}b"
        last = copies.start.extent - 1
        self.line(f"const {self.integer} {start} = p_min({group} * {copies.times}, {self.names.text(last)});")
        self.line(f"const int skip = (int)({group} * {copies.times} - {start});")
        return True


class DeviceWindowSumWriter(_Copying, DeviceReducingWriter):
    """Sums of all places of a window, or of one of its rows, a thread."""

    def __init__(self, plan: DevicePlan) -> None:
        super().__init__(plan)
        self.columns, self.guarded = True, plan.group > 1
        self.outer_tile, self.inner_tile = self._tile(), None

    def write(self) -> None:
        plan = self.plan
        self.line(f"const int lane = threadIdx.x / {plan.items};")
        self._find_item(f"threadIdx.x % {plan.items}", early=not self.guarded)
        self._decompose("item", plan.outer)
        points = self._points()
        sums = [(point, m) for point in points for m in point.members if isinstance(m.loops, Reduction)]
        for _, m in sums:
            self._start(m)
        if self.outer_tile is None:
            self._sum(sums)
        else:
            first = self._begin_aligned()
            self._sum(sums)
            self._end_aligned(first)
            self._sum_one_by_one(self._begin_one_by_one(), points)
            self._end_one_by_one()
        if plan.group > 1:
            self._add_up([self.accumulators[id(m)] for _, m in sums])
        self._store_sums(points)

    def _sum(self, sums: list[tuple[_Point, Member]]) -> None:
        """The loop over this thread's part of the images."""
        s = self._new_statements(self.outer_tile)
        for point, m in sums:
            self._enter(point)
            for x in in_turn(m.loops.value):
                s.value(x, m)
            self._take(m, s)
        self._live()
        self._begin_inner()
        self._emit(s)
        self._end_inner()
        self._end_live()

    def _sum_one_by_one(self, turn: _Point, points: list[_Point]) -> None:
        """The same for the element `v` of neighbouring ones and a place. Arrays stay in registers where no number chooses among
        them."""
        tile, self.outer_tile, accumulators = self.outer_tile, None, self.accumulators
        copies = self.plan.copies
        assert tile is not None and copies is not None
        members = [(k, m) for k, m in enumerate(turn.members) if isinstance(m.loops, Reduction)]
        self.accumulators = {}
        for k, m in members:
            acc = replace(accumulators[id(points[0].members[k])], name=f"one{k}")
            self.accumulators[id(m)] = acc
            self.line(f"{acc.variables()[0].ctype} {acc.name} = 0;")
        self._sum([(turn, m) for _, m in members])
        self.line("#pragma unroll")
        self.begin(f"for (int u = 0; u < {tile.width}; u++)")
        for point, place in zip(points, copies.places):
            chosen = " && ".join(["u == v", *(f"q{j} == {self.names.text(e)}" for j, e in enumerate(place.values()))])
            for k, _ in members:
                name = accumulators[id(point.members[k])].name
                self.line(f"{name}[u] = {chosen} ? one{k} : {name}[u];")
        self.end()
        self.outer_tile, self.accumulators = tile, accumulators

    def _add_up(self, sums: list[Accumulator]) -> None:
        """One thread for each of the block's items gets what all rows of threads summed: those of a warp by shuffles, warps
        through shared memory, as many sums at a time as it has room for."""
        items, width = self.plan.items, self.outer_tile.width if self.outer_tile else 1
        at = "[u]" if self.outer_tile else ""
        if items < WARP:
            for acc in sums:
                self.line("#pragma unroll")
                self.begin(f"for (int u = 0; u < {width}; u++)")
                self.line(f"for (int o = {WARP // 2}; o >= {items}; o >>= 1) {acc.name}{at} += p_shuffle<32>({acc.name}{at}, o);")
                self.end()
        warps = self.plan.threads // WARP
        if warps == 1:
            return
        ctype = sums[0].variables()[0].ctype
        size = 8 if ctype == "double" else 4
        at_once = max(1, min(len(sums), SHARED_BYTES // (warps * items * width * size)))
        self.line(f"__shared__ {ctype} parts[{at_once}][{warps}][{width}][{items}];")
        self.line(f"const int warp = threadIdx.x / {WARP}, column = threadIdx.x % {items};")
        for first in range(0, len(sums), at_once):
            some = list(enumerate(sums[first : first + at_once]))
            self._round(some, width, at, again=first > 0)

    def _round(self, sums: list[tuple[int, Accumulator]], width: int, at: str, again: bool) -> None:
        items, warps = self.plan.items, self.plan.threads // WARP
        if again:
            self.line("__syncthreads();")
        self.begin(f"if (threadIdx.x % {WARP} < {items})")
        self.line("#pragma unroll")
        self.begin(f"for (int u = 0; u < {width}; u++)")
        for k, acc in sums:
            self.line(f"parts[{k}][warp][u][column] = {acc.name}{at};")
        self.end()
        self.end()
        self.line("__syncthreads();")
        self.begin("if (lane == 0)")
        self.line("#pragma unroll 1")
        self.begin(f"for (int y = 1; y < {warps}; y++)")
        self.line("#pragma unroll")
        self.begin(f"for (int u = 0; u < {width}; u++)")
        for k, acc in sums:
            self.line(f"{acc.name}{at} += parts[{k}][y][u][column];")
        self.end()
        self.end()
        self.end()

    def _store_sums(self, points: list[_Point]) -> None:
        s = self._new_statements(self.outer_tile)
        for point in points:
            self._enter(point)
            for m in point.members:
                if isinstance(m.loops, Reduction):
                    acc = self.accumulators[id(m)]
                    sum_text = acc.final("[u]" if self.outer_tile else "")
                    s.varying.add(sum_text)
                    value = cast_text(sum_text, acc.result_dtype, m.loops.out.dtype)
                    value = value if value == sum_text else s.define(value, m.loops.out.dtype, True)
                    self.known[m.loops.out] = value
                    if m.loops.out in self.kernel.stored:
                        s.store(m.loops.out, m.loops.index, (), m, value)
                else:
                    self._run(m, s)
        conditions = ["lane == 0", "live"] if self.plan.group > 1 else []
        if conditions:
            self.begin(f"if ({' && '.join(conditions)})")
        self._emit(s)
        if conditions:
            self.end()


def _moved(m: Member, place: dict[Symbol, Expr]) -> Member:
    return replace(m, place={s: substitute(e, place) for s, e in m.place.items()}, known={})


def _is_apart(one: Rerolled, members: list[Member]) -> bool:
    """Whether turns read little that others do at these points, which is read again then. Beside an image's rows, where nothing
    is read, lie the ends of other rows, so that a few places are the same always."""
    places = {(x.buffer, m.at(x.index)) for x in one.loads for m in members}
    turns = one.turn.extent.as_int() or 0
    read = {(b, substitute(e, {one.turn.symbol: lit(k)})) for b, e in places for k in range(turns)}
    return 2 * len(read) > turns * len(places)


def in_turn(value: Scalar, known: Set[Scalar] = frozenset()) -> Iterator[Scalar]:
    """The parts of a value, but what is computed only where it is chosen; sums before what is added to them. Of what is known
    no parts."""
    seen: set[Scalar] = set()
    stack: list[tuple[Scalar, bool]] = [(value, False)]
    while stack:
        x, ready = stack.pop()
        if ready:
            yield x
        elif x not in seen:
            seen.add(x)
            stack.append((x, True))
            stack += [(a, False) for a in _first_needed(x)] if x not in known else []


def _first_needed(x: Scalar) -> tuple[Scalar, ...]:
    """What a value is computed of, last things first. What is loaded to be converted, or chosen, is asked for with that."""
    if not isinstance(x, Apply) or x.op == "where" or isinstance(x.args[0], Load) and x.op == "cast":
        return ()
    return x.args if x.op == "fma" else x.args[::-1]
