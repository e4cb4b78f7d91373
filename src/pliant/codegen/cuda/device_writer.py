"""Write what a thread does in kernels without reductions, and what all kernels need: text, values, loops.

In:     a `DevicePlan`.
Out:    lines of CUDA C in `lines`; names of buffers and sizes in `names`.
"""

from __future__ import annotations

import re

import torch

from pliant.codegen.c_text import MEMORY_TYPES, cast_text
from pliant.codegen.cuda.plan import DevicePlan
from pliant.codegen.cuda.statements import NARROW, DeviceStatements
from pliant.codegen.cuda.tile import Tile
from pliant.codegen.expressions import Body
from pliant.ir.loops import Axis, Buffer, Pointwise
from pliant.ir.scalar import Load
from pliant.schedule.kernel import Member
from pliant.symbolic.expr import ZERO, Symbol
from pliant.symbolic.traverse import substitute


class DeviceWriter(Body):
    """Text, loops and values of one kernel; a subclass writes reductions."""

    def __init__(self, plan: DevicePlan) -> None:
        super().__init__(plan.kernel)
        self.plan = plan
        self.integer = "int" if plan.narrow else "int64_t"
        self.open: DeviceStatements | None = None
        for k, axis in enumerate([*plan.outer, *plan.inner]):
            self.names.symbols[axis.symbol] = f"i{k}"
        self.start = Symbol("start")
        if plan.vector is not None:
            self.names.symbols[self.start] = self.names.symbols[plan.vector.symbol] + "b"

    def write(self) -> None:
        """The kernel's body: one group of neighbouring points a thread."""
        self._find_item("threadIdx.x", early=True)
        self._decompose("item", self.plan.outer)
        s = self._statements(self._tile())
        for m in self.kernel.members:
            self._run(m, s)
        self._emit(s)

    def _count(self, axes: list[Axis]) -> str:
        """Groups of elements in a nest of loops."""
        count = self.plan.count(axes)
        return self.names.text(count if count.as_int() is not None else self.names.number(count))

    # -- threads -----------------------------------------------------------------------------------------------------

    def _find_item(self, within: str, *, early: bool) -> None:
        """The outer point of this thread; `early`: those behind the last one end here."""
        items = self.plan.items
        first = f"({self.integer})blockIdx.x" + (f" * {items} + {within}" if items > 1 else "")
        first += f" / {self.plan.cluster}" * (self.plan.cluster > 1)
        # A number of the kernel also where it is known: kernels that differ in how many points they have are one text.
        count = self.names.text(self.names.number(self.plan.count(self.plan.outer)))
        if early:
            self.line(f"const {self.integer} item = {first};")
            if items > 1:
                self.line(f"if (item >= {count}) return;")
            return
        self.line(f"const bool live = {first} < {count};")
        self.line(f"const {self.integer} item = live ? {first} : 0;")

    def _decompose(self, flat: str, axes: list[Axis]) -> None:
        """Each axis's place from the number of a group of elements."""
        rest = flat
        for k in range(len(axes) - 1, -1, -1):
            axis = axes[k]
            name = self.names.symbols[axis.symbol]
            groups = self.plan.groups(axis)
            count = self.names.text(groups) if groups.as_int() != 0 else "1"
            item = rest if k == 0 else self._remainder(rest, count)
            if axis is self.plan.vector and self.plan.width > 1:
                self.line(f"const {self.integer} {name}g = {item};")
            else:
                self.line(f"const {self.integer} {name} = {item};")
            if k > 0:
                self.line(f"const {self.integer} q{name} = {self._quotient(rest, count)};")
                rest = f"q{name}"
        if self.plan.vector in axes and self.plan.width > 1:
            self._begin_group(self.plan.vector)

    def _quotient(self, place: str, count: str) -> str:
        """A place among loops over the extent of the inner ones. Where 64 bits may be needed they seldom are; a known number
        divides by a product and a shift, and takes no branch for them."""
        if self.plan.narrow:
            return f"{place} / ({count})"
        return f"(int64_t)((uint64_t){place} / {count})" if count.isdigit() else f"p_quotient({place}, {count})"

    def _remainder(self, place: str, count: str) -> str:
        return f"{place} % ({count})" if self.plan.narrow else f"{place} - {self._quotient(place, count)} * ({count})"

    def _begin_group(self, vector: Axis) -> None:
        """Where this thread's group of elements begins, and which of its elements there are."""
        name, width, extent = self.names.symbols[vector.symbol], self.plan.width, self.names.text(vector.extent)
        start = f"{name}g * {width}"
        if self.plan.anchor is not None:
            buffer, e = self.plan.anchor
            first = f"{self.names.buffer(buffer)} + ({self.names.text(substitute(e, {vector.symbol: ZERO}))})"
            place = f"(int)((uint64_t)({first}) / {buffer.dtype.itemsize} % {width})"
            known = vector.extent.as_int() is not None
            self.line(f"const int shift = {place if known else f'{extent} % {width} == 0 ? 0 : {place}'};")
            start += " - shift"
        self.line(f"const {self.integer} {name}b = {start};")
        begun, complete = self._surely(vector)
        if self.plan.anchor is not None:
            self.line(f"const int low = {begun}(int)p_max(-{name}b, 0);")
        if not self.plan.whole:
            self.line(f"const int cnt = {complete}(int)p_min({extent} - {name}b, {width});")

    def _surely(self, vector: Axis) -> tuple[str, str]:
        """Texts before the first of a group's elements that there is, and before their end, for turns of a loop in which
        these are known to the compiler."""
        return "", ""

    def _tile(self, slot: str = "u") -> Tile | None:
        if self.plan.width == 1 or self.plan.vector is None:
            return None
        limits = ("low",) * (self.plan.anchor is not None) + ("cnt",) * (not self.plan.whole)
        return Tile(self.plan.vector, self.start, self.plan.width, limits, slot)

    # -- statements ----------------------------------------------------------------------------------------------------

    def _statements(self, tile: Tile | None) -> DeviceStatements:
        self.known = {}
        self.open = DeviceStatements(self.names, tile, self.kernel.axes, self._resolve, self.counter)
        return self.open

    def _emit(self, s: DeviceStatements) -> None:
        """Write the statements of a group of points."""
        for text in s.before:
            self.line(text)
        if s.tile is None:
            for text in s.body:
                self.line(text)
            return
        if s.body:
            self._each(s.tile, s.body)
        for text in s.after:
            self.line(text)

    def _each(self, tile: Tile, body: list[str]) -> None:
        """Statements of each point. Groups that are whole, which most are, ask for no point whether it is there."""
        if not tile.limits or _harmless(body):
            self._all(tile, body)
            return
        self.begin(f"if ({tile.is_whole})")
        self._all(tile, body)
        self.end()
        self.begin("else")
        self._all(tile, body, tile.guard)
        self.end()

    def _all(self, tile: Tile, body: list[str], guard: str = "") -> None:
        name = self.names.symbols[tile.axis.symbol]
        self.line("#pragma unroll")
        self.begin(f"for (int u = 0; u < {tile.width}; u++){guard}")
        self.line(f"const {self.integer} {name} = {name}b + u;")
        for text in body:
            self.line(text)
        self.end()

    # -- values ----------------------------------------------------------------------------------------------------

    def _resolve(self, load: Load, member: Member) -> str | None:
        """The name of a value that the kernel computed, or None if it is read from memory."""
        writer = self.writer_before(load.buffer, member)
        if writer is None:
            return None
        known = self.known.get(load.buffer)
        if known is not None:
            return known
        kept = self._kept(load.buffer)
        if kept is not None:
            return kept
        if load.buffer in self.kernel.stored:
            return None
        assert self.open is not None
        value = self.known[load.buffer] = self.open.value_everywhere(writer.loops.value, writer)
        return value

    def _kept(self, buffer: Buffer) -> str | None:
        """A value that an earlier pass left in a register."""
        return None

    def _run(self, m: Member, s: DeviceStatements) -> None:
        """Statements of a pointwise member."""
        assert isinstance(m.loops, Pointwise)
        value = s.value(m.loops.value, m)
        if m.loops.accumulate is not None:
            self._scatter(m, m.loops, value, s)
            return
        self.known[m.loops.out] = value
        if m.loops.out in self.kernel.stored:
            s.store(m.loops.out, m.loops.index, m.loops.indirect, m, value)

    def _scatter(self, m: Member, loops: Pointwise, value: str, s: DeviceStatements) -> None:
        """Add to (or compare with) an element that other threads may write too."""
        dtype = loops.out.dtype
        at = f"{self.names.buffer(loops.out)} + ({s.index(loops.index, loops.indirect, m)})"
        s.body.append(scatter_text(loops.accumulate or "sum", dtype, at, value))


_EFFECTS = re.compile(r"\ba\d+(\[| \+)|\bacc[\d_]|\bp_(add\w*|swap|check_index)\b")
_INTEGER_DIVISION = re.compile(r"^(?!const (float|double) ).*[/%]")


def _harmless(body: list[str]) -> bool:
    """Whether statements may run for points that do not exist: they touch no memory and nothing of other points."""
    return not any(_EFFECTS.search(text) or _INTEGER_DIVISION.search(text) for text in body)


def scatter_text(how: str, dtype: torch.dtype, at: str, value: str) -> str:
    """A statement that combines `value` with what memory holds."""
    ctype = MEMORY_TYPES[dtype]
    if how == "sum" and dtype is not torch.bool:
        return f"p_add{f'_{NARROW[dtype]}' if dtype in NARROW else ''}({at}, ({ctype}){value});"
    old, new = (cast_text(x, dtype, torch.float32) if dtype in NARROW else x for x in ("old", value))
    if how == "sum":
        text = f"{old} | {new}"
    else:
        nan = f"{new} != {new} || " if dtype.is_floating_point else ""
        text = f"{nan}{new} {'>' if how == 'max' else '<'} {old} ? ({ctype}){value} : old"
    return f"p_swap({at}, [=]({ctype} old) {{ return ({ctype})({text}); }});"
