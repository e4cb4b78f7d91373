"""Statements of a thread: what `expressions.py` prints, with neighbouring elements read and written in wide pieces.

In:     scalars of a kernel's members; the number of neighbouring points that a thread takes.
Out:    `before` (what these points share, and wide loads), `body` (one point, number `u` of them), `after` (wide stores).
Holds:  with one point at a time there is no `u`, and every access is a plain one.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import torch

from pliant.codegen.c_text import MEMORY_TYPES
from pliant.codegen.cuda.tile import Tile, common_condition, end_of_choice
from pliant.codegen.expressions import Names, Resolve, Statements
from pliant.ir.loops import Axis, Buffer
from pliant.ir.scalar import Apply, Load, Scalar
from pliant.schedule.kernel import Member
from pliant.symbolic.expr import ONE, Expr, Symbol
from pliant.symbolic.traverse import linear_coefficient, substitute

NARROW = {torch.bfloat16: "bf16", torch.float16: "f16"}
_NARROWED = re.compile(r"p_to_b?f16\((\w+(?:\[u\])?)\)")
Keep = Callable[[Load, Expr], "str | None"]  # the array that holds a load's elements for the whole row


class DeviceStatements(Statements):
    """Statements of one thread; `tile` is None where it takes one point at a time."""

    def __init__(
        self,
        names: Names,
        tile: Tile | None,
        axes: list[Axis],
        resolve: Resolve,
        counter: list[int],
        keep: Keep = lambda load, e: None,
    ) -> None:
        super().__init__(names, tile.axis.symbol if tile else None, axes, resolve, counter)
        self.tile, self.keep = tile, keep
        self.after: list[str] = []
        self.arrays: dict[tuple[Buffer, str], str] = {}
        self.texts: dict[str, str] = {}
        self.guards: list[str | None] = []  # of the choices around what is being printed; None: points may differ
        self.ends: list[str] = []  # for how many points they hold, if for the first ones only; "": for all or for none

    def before_the_loop(self, ctype: str, name: str, text: str) -> str:
        return f"const {ctype} {name} = {text};"

    def opaque(self, text: str, dtype: torch.dtype) -> str:
        return text  # compilers for GPUs convert twice, as the text says

    def block(self, statements: str, value: str) -> str:
        return f"[&] {{ {statements} return {value}; }}()"  # standard C++ has no blocks with a value

    def value_everywhere(self, x: Scalar, member: Member) -> str:
        """A value that has a name from now on, whatever choice is being printed: no condition around it may be its own."""
        outer, self.guards, self.ends = (self.guards, self.ends), [], []
        try:
            return self.value(x, member)
        finally:
            self.guards, self.ends = outer

    def _value(self, x: Scalar, member: Member) -> str:
        if isinstance(x, Apply) and self.tile is not None:
            text = self._widened(x, member) if x.op == "cast" else self._divided(x, member) if x.op == "div" else None
            if text is not None:
                return text
        return super()._value(x, member)

    def _widened(self, x: Apply, member: Member) -> str | None:
        """A narrow float of a wide load, taken out of its word as a float."""
        (source,) = x.args
        if not isinstance(source, Load) or x.dtype is not torch.float32 or source.dtype not in NARROW:
            return None
        place = self._place(source, member) if self.resolve(source, member) is None else None
        return self.define(f"p_at_{NARROW[source.dtype]}({place[0]}, {place[1]})", x.dtype, True) if place else None

    def _divided(self, x: Apply, member: Member) -> str | None:
        """A quotient of which all points have the same divisor: what depends on that alone is computed once."""
        if x.dtype is not torch.float32:
            return None
        above, below = (self.value(a, member) for a in x.args)
        if below in self.varying or above not in self.varying:
            return None
        scale = self.define(f"p_scale({below})", x.dtype, False)
        inverse = self.define(f"1.0f / ({below} * {scale})", x.dtype, False)
        return self.define(f"p_ratio({above}, {below}, {scale}, {inverse})", x.dtype, True)

    def _load(self, x: Load, member: Member) -> str:
        known = self.resolve(x, member)
        if known is not None:
            return known
        place = self._place(x, member)
        if place is None:
            return super()._load(x, member)
        element = f"{place[0]}[{place[1]}]"
        return self.define(f"({element} != 0)" if x.dtype is torch.bool else element, x.dtype, True)

    def _place(self, x: Load, member: Member) -> tuple[str, str] | None:
        """The array that holds what is loaded, and where in it; None: it is loaded by itself."""
        e = member.at(x.index)
        kept = self.keep(x, e) if not x.indirect else None
        if kept is not None:
            return kept, self.tile.slot if self.tile else "k"
        if self.tile is None or linear_coefficient(e, self.tile.axis.symbol) is not ONE:
            return None
        if x.indirect:
            self.index(x.index, x.indirect, member)  # looks up first
        if any(self.indirect_names.get(s) in self.varying for s in e.free):
            return None
        return self._wide(x, e), "u"

    def _wide(self, x: Load, e: Expr) -> str:
        """The array that the elements of all points are loaded to, if the conditions around it hold."""
        assert self.tile is not None
        start = self.names.text(substitute(e, {self.tile.axis.symbol: self.tile.start}), self.indirect_names)
        condition = " && ".join(dict.fromkeys(g for g in self.guards if g))
        limit = self.tile.limit
        for end in dict.fromkeys(e for e in self.ends if e):  # there are no other limits then
            limit = f", p_min({end}{limit})" if limit else f", {end}"
        key = (x.buffer, f"{condition} {start}{limit}")
        found = self.arrays.get(key)
        if found is None:
            found = self.arrays[key] = f"v{self._next()}"
            source = f"{self.names.buffer(x.buffer)} + ({start})"
            self.before += [
                f"alignas(16) {MEMORY_TYPES[x.dtype]} {found}[{self.tile.width}]{' = {}' if condition else ''};",
                f"{f'if ({condition}) ' * bool(condition)}{self.tile.load(e)}({found}, {source}{limit});",
            ]
        return found

    # -- choice ----------------------------------------------------------------------------------------------------

    def _chosen(self, x: Scalar, member: Member, condition: Scalar, holds: bool) -> str:
        common = common_condition(condition, member, self.tile, self.names) if self.tile else None
        end = self._end(condition, member) if holds and common is None else None
        self.guards.append("" if end else common and (common if holds else f"!{common}"))
        self.ends.append(end or "")
        text = self._side(x, member)
        self.guards.pop()
        self.ends.pop()
        return text

    def _end(self, condition: Scalar, member: Member) -> str | None:
        """For how many points of the group, the first ones, the condition holds; None where it does for others."""
        end = end_of_choice(condition, member, self.tile) if self.tile else None
        return f"(int)p_min({self.names.text(end)}, {self.tile.width})" if end is not None and self.tile else None

    def _nested_load(self, x: Load, member: Member) -> str:
        """Where all points of the group choose alike, the load is a wide one behind the choice."""
        e = member.at(x.index)
        along = self.tile is not None and linear_coefficient(e, self.tile.axis.symbol) is ONE
        if not along or x.indirect or None in self.guards or self.resolve(x, member) is not None:
            return super()._nested_load(x, member)
        element = f"{self._wide(x, e)}[u]"
        return f"({element} != 0)" if x.dtype is torch.bool else element

    def _next(self) -> int:
        self.counter[0] += 1
        return self.counter[0] - 1

    def store(
        self, buffer: Buffer, e: Expr, indirect: tuple[tuple[Symbol, Scalar], ...], member: Member, value: str
    ) -> None:
        """Write a value to memory; `e` is the store index of the member itself."""
        index = self.index(e, indirect, member)
        place = member.at(e)
        name = self.names.buffer(buffer)
        wide = self.tile is not None and linear_coefficient(place, self.tile.axis.symbol) is ONE
        if self.tile is None or not wide or any(self.indirect_names.get(s) in self.varying for s in place.free):
            self.body.append(f"{name}[{index}] = {value};")
            return
        start = self.names.text(substitute(place, {self.tile.axis.symbol: self.tile.start}), self.indirect_names)
        array, ctype, function = f"s{self._next()}", MEMORY_TYPES[buffer.dtype], "p_store"
        narrowed = _NARROWED.fullmatch(self.texts.get(value, ""))
        if narrowed is not None and buffer.dtype in NARROW:  # two floats become one word
            value, ctype, function = narrowed[1], "float", f"p_store_{NARROW[buffer.dtype]}"
        self.before.append(f"alignas(16) {ctype} {array}[{self.tile.width}];")
        self.body.append(f"{array}[u] = {value};")
        self.after.append(f"{function}<{self.tile.width}>({name} + ({start}), {array}{self.tile.limit});")

    def define(self, text: str, dtype: torch.dtype, varying: bool) -> str:
        name = super().define(text, dtype, varying)
        self.texts[name] = text
        return name

    def index(self, e: Expr, indirect: tuple[tuple[Symbol, Scalar], ...], member: Member) -> str:
        """Looked-up symbols are 64 bits wide, so that what is computed from them is."""
        for s, looked_up in indirect:
            text = self.value(looked_up, member)
            if looked_up.dtype is not torch.int64 or not text.isidentifier():
                text = self.define(f"(int64_t){text}", torch.int64, text in self.varying)
            self.indirect_names[s] = text
        return self.names.text(member.at(e), self.indirect_names)
