"""Large tensors of the caller's that are written in a few places: they are written there, and nothing else is copied.

In:     a `LoopProgram`, as functional graphs are lowered: a call or loop makes a whole new tensor of one that it changes in
        a few places, what follows reads the new tensor, and the last loop stores it to the input.
Out:    the program that writes these places of the input when the new tensor would be made, and reads the input from then on.
Holds:  what reads the input, or a tensor that was made of it, finds what it did: where something was written meanwhile, it
        reads elsewhere. Behind a write nothing may fail that was not sure to succeed. Caches of keys and values are the
        usual case: a token is written, and megabytes are read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from pliant.ir.failing import may_fail, value_may_fail
from pliant.ir.loops import Axis, Buffer, Computation, Extern, LoopProgram, Pointwise, View
from pliant.ir.scalar import (
    Apply,
    Const,
    IndexValue,
    Load,
    Scalar,
    substitute,
)
from pliant.lowering.fallback import twin_that_writes
from pliant.records import dataclass
from pliant.schedule.dependencies import access, views_in, writes_input
from pliant.schedule.indexed_writes import indices_of, looking_up, may_raise, places_written, what_it_checks
from pliant.schedule.kernel import all_axes, loads_of
from pliant.schedule.regions import Known, Layout, Region, Span, apart, is_within
from pliant.schedule.sizes import Sizes
from pliant.symbolic.expr import ONE, ZERO, Expr, Symbol, lit
from pliant.symbolic.traverse import substitute as substitute_index

LEAST = 1 << 16  # bytes of an input; the kernel that reads a smaller one copies it, too


def written_in_place(program: LoopProgram, known: Known) -> LoopProgram:
    """The program, large inputs written in place. `known`: whether a condition on sizes certainly holds."""
    sizes, looked_up, before = Sizes(program), set[object](), program
    for last in program.computations:
        if isinstance(last, Pointwise) and last.out.role == "input" and sizes.bytes(last.out) >= LEAST:
            program = _Update(program, last, known).written(looked_up) or program
    return program if program is before else _without_unread(program)


def _without_unread(program: LoopProgram) -> LoopProgram:
    """The program but loops that make what nothing reads."""
    read = {o.buffer for o in program.outputs if isinstance(o, View)}
    kept: list[Computation] = []
    for one in reversed(program.computations):
        if isinstance(one, Extern) or one.out in read or one.out.role != "temporary" or may_fail(one):
            kept.append(one)
            read |= access(one).reads
    return dataclasses.replace(program, computations=kept[::-1]) if len(kept) < len(program.computations) else program


@dataclass(frozen=True, slots=True)
class _Kept:
    """Elements of a version that another one has, too: those of `region` that lie in none of the regions `without`."""

    version: Buffer
    region: Region
    without: tuple[Region, ...] = ()

    def misses(self, write: _Write) -> bool:
        return apart(write.region, self.region) or any(is_within(write.region, one) for one in self.without)


@dataclass(frozen=True, slots=True, eq=False)
class _Write:
    """What is written of the input, at the place (computation, number of the write). `loop`: which loop does; None: the
    call that the computation is."""

    at: tuple[int, int]
    region: Region
    loop: Pointwise | None = None


@dataclass(frozen=True, slots=True, eq=False)
class _Version:
    """A tensor that has what the input has when all of `past` is written, `writes` last. `offset`: where in the input its
    first element lies."""

    kept: tuple[_Kept, ...] = ()
    writes: tuple[_Write, ...] = ()
    past: frozenset[_Write] = frozenset()
    offset: Expr = ZERO


class _Update:
    """An input, the loop that stores its new value, and what is between."""

    def __init__(self, program: LoopProgram, last: Pointwise, known: Known) -> None:
        self.program, self.last, self.known = program, last, known
        self.home = last.out
        self.layout = Layout(self.home, known)
        self.versions: dict[Buffer, _Version] = {self.home: _Version()}
        self.by: dict[int, _Version] = {}  # by the computation that makes them

    def written(self, looked_up: set[object]) -> LoopProgram | None:
        """The program that writes the input in place; None if that cannot be, or nothing is gained. `looked_up`: indices that
        are made sure of before anything is written; more are added."""
        if not self.layout.is_plain or not self._find_versions():
            return None
        writes = [write for version in self.by.values() for write in version.writes]
        shown = {o.buffer for o in self.program.outputs if isinstance(o, View)} - {self.home}
        if not writes or not shown.isdisjoint(self.versions):
            return None
        if not self._finds_what_it_did(writes):
            return None
        others = [k for k, one in enumerate(self.program.computations) if writes_input(one)]
        checked = checked_before(self.program, self.by, min([w.at[0] for w in writes] + others), looked_up)
        if checked is None:
            return None
        looked_up |= checked.looked_up
        return self._rewritten(checked)

    # ---- what is made of the input

    def _find_versions(self) -> bool:
        """Whether the last loop stores what is made of the input by writing places of it."""
        for at, one in enumerate(self.program.computations):
            if one is not self.last and self.home in access(one).writes:
                return False
            found = self._of_call(at, one) if isinstance(one, Extern) else self._of_loop(at, one)
            if found is not None:
                self.by[at] = found
                (out,) = access(one).writes
                self.versions.setdefault(out, found)
            elif one is self.last:
                return False
        self._forget_others()
        return True

    def _of_call(self, at: int, call: Extern) -> _Version | None:
        """What an operator makes that writes places."""
        if twin_that_writes(call.target) is None or call.defines or not isinstance(call.args[0], View):
            return None
        start, (out,) = call.args[0], call.outs
        region = self.layout.of_view(start)
        if start.buffer not in self.versions or self.versions[start.buffer].offset is not ZERO or region is None or out is None:
            return None
        steps = [(a, b) for n, a, b in zip(start.shape, start.strides, out.strides) if n is not ONE]
        if start.dtype is not out.dtype or start.shape != out.shape or any(a is not b for a, b in steps):
            return None
        write = _Write((at, 0), region)
        past = self.versions[start.buffer].past | {write}
        return _Version((_Kept(start.buffer, region),), (write,), past, start.offset)

    def _of_loop(self, at: int, loop: Computation) -> _Version | None:
        """What a loop makes that goes through a tensor as large as the input."""
        home, out = self.home, access(loop).writes
        if not isinstance(loop, Pointwise) or loop.accumulate is not None or loop.indirect or loop.part:
            return None
        like = all(b.dtype is home.dtype and b.shape == home.shape and b.strides == home.strides for b in out)
        if not like or not self.layout.goes_through(loop.index, loop.axes):
            return None
        try:
            kept, parts = self._parts(loop, loop.value, {})
        except _Unknown:
            return None
        writes = tuple(_Write((at, k + 1), region, part) for k, (region, part) in enumerate(parts))
        return _Version(tuple(kept), writes, frozenset(writes).union(*(self.versions[one.version].past for one in kept)))

    def _parts(
        self, loop: Pointwise, value: Scalar, box: Mapping[Symbol, Span]
    ) -> tuple[list[_Kept], list[tuple[Region, Pointwise]]]:
        """What a loop keeps where it goes through `box`, and what it writes, by loops of their own, in order."""
        region = self.layout.of_box(loop.index, loop.axes, box)
        if isinstance(value, Apply) and value.op == "where":
            chosen = narrowed(value.args[0], loop.axes, box, self.known)
            there = None if chosen is None else self.layout.of_box(loop.index, loop.axes, chosen)
            if chosen is not None and there is not None:
                kept, parts = self._parts(loop, value.args[1], chosen)
                others, before = self._parts(loop, value.args[2], without(box, chosen, loop.axes))
                before = [(one, part) for one, part in before if not is_within(one, there)]
                if kept and not all(apart(there, one) for one, _ in before):
                    raise _Unknown
                others = [_Kept(one.version, one.region, (*one.without, there)) for one in others]
                return kept + others, before + parts
        place = places(loop.axes, box)
        own = substitute_index(loop.index, place)
        if isinstance(value, Load) and value.buffer in self.versions and not value.indirect:
            if own - substitute_index(value.index, place) is self.versions[value.buffer].offset:
                return [_Kept(value.buffer, region)], []
        if not box or value_may_fail(value):
            raise _Unknown
        axes = tuple(Axis(a.symbol, box[a.symbol].count) if a.symbol in box else a for a in loop.axes)
        axes = tuple(a for a in axes if a.extent is not ONE)
        part = Pointwise(self.home, axes, own, substitute(value, place), origin=loop.origin, part=True)
        return [], [(region, part)]

    def _forget_others(self) -> None:
        """Versions that the last one is not made of."""
        last = next(version for at, version in self.by.items() if self.program.computations[at] is self.last)
        needed, waiting = {id(last)}, [last]
        while waiting:
            for kept in waiting.pop().kept:
                version = self.versions[kept.version]
                if id(version) not in needed:
                    needed.add(id(version))
                    waiting.append(version)
        self.versions = {b: v for b, v in self.versions.items() if b is self.home or id(v) in needed}
        self.by = {at: v for at, v in self.by.items() if id(v) in needed}

    # ---- what is read

    def _finds_what_it_did(self, writes: list[_Write]) -> bool:
        """Whether all that reads the input, or what is made of it, finds in the input what it did."""
        for at, one in enumerate(self.program.computations):
            for time, kept in self._reads(at, one):
                past = self.versions[kept.version].past
                if not all(w.at >= time or w in past or kept.misses(w) for w in writes):
                    return False
        return True

    def _reads(self, at: int, one: Computation) -> Iterator[tuple[tuple[int, int], _Kept]]:
        """What is read of versions, and before which writes."""
        version = self.by.get(at)
        if version is not None:
            yield from (((at, 0), kept) for kept in version.kept)
            for write in version.writes:
                yield from self._reads_of_part(write)
        if isinstance(one, Extern):
            for view in views_in([one.args if version is None else one.args[1:], one.kwargs]):
                yield from self._read((at, 1), view)
        elif version is None:
            for x in loads_of(one):
                yield from self._read((at, 0), x, all_axes(one))

    def _reads_of_part(self, write: _Write) -> Iterator[tuple[tuple[int, int], _Kept]]:
        """A point may read the element that it writes. Another one may be written before it is read."""
        if write.loop is None:
            return
        for x in loads_of(write.loop):
            at, number = write.at
            time = write.at if x.index is write.loop.index else (at, number + 1)
            yield from self._read(time, x, write.loop.axes)

    def _read(
        self, time: tuple[int, int], x: Load | View, axes: Sequence[Axis] = ()
    ) -> Iterator[tuple[tuple[int, int], _Kept]]:
        version = self.versions.get(x.buffer)
        if version is not None:
            found = None
            if version.offset is ZERO:
                found = self.layout.of_view(x) if isinstance(x, View) else self.layout.of_index(x.index, axes)
            yield time, _Kept(x.buffer, self.layout.whole if found is None else found)

    # ---- the program

    def _rewritten(self, checked: _Checked) -> LoopProgram:
        moved = {b: (self.home, version.offset) for b, version in self.versions.items() if b is not self.home}
        computations: list[Computation] = []
        for at, one in enumerate(self.program.computations):
            if at == checked.at:
                computations += [self.program.computations[k] for k in sorted(checked.moved)]
                computations += [_reading(check, moved) for check in checked.checks]
            version = self.by.get(at)
            if version is None:
                computations += [] if at in checked.moved else [_reading(one, moved)]
            elif isinstance(one, Extern):
                args, kwargs = _moved_views(one.args, moved), _moved_views(one.kwargs, moved)
                twin = Extern(twin_that_writes(one.target), args, kwargs, (), mutates=(self.home,), origin=one.origin)
                computations.append(places_written(twin, self._copies_of_inputs(at)) or twin)
            else:
                computations += [_reading(write.loop, moved) for write in version.writes if write.loop is not None]
        return dataclasses.replace(self.program, computations=computations)


    def _copies_of_inputs(self, at: int) -> dict[Buffer, Scalar]:
        """Tensors of one element that are copies of inputs which nothing writes before a computation: what they hold."""
        before = self.program.computations[:at]
        written = {b for one in before for b in access(one).writes}
        copies = [one for one in before if isinstance(one, Pointwise) and not one.axes and isinstance(one.value, Load)]
        return {c.out: c.value for c in copies if isinstance(c.value, Load) and not c.indirect and c.value.buffer not in written}


class _Unknown(Exception):
    """A loop does not keep what it does not write, or writes all there is."""


# ---- conditions on loops


def narrowed(
    condition: Scalar, axes: tuple[Axis, ...], box: Mapping[Symbol, Span], known: Known
) -> dict[Symbol, Span] | None:
    """The part of a box where the condition holds, if it is a box; one that may be empty is none."""
    if not isinstance(condition, Apply):
        return None
    if condition.op in ("bit_and", "and"):
        first = narrowed(condition.args[0], axes, box, known)
        return None if first is None else narrowed(condition.args[1], axes, first, known)
    left, right = (condition.args + condition.args)[:2]
    axis = next((a for a in axes if isinstance(left, IndexValue) and left.expr is a.symbol), None)
    bound = right.expr if isinstance(right, IndexValue) else lit(right.value) if isinstance(right, Const) else None
    if axis is None or bound is None or not bound.free.isdisjoint(a.symbol for a in axes):
        return None
    span = box.get(axis.symbol, Span(ZERO, axis.extent))
    found = _cut(condition.op, span, bound, known)
    return None if found is None else {**box, axis.symbol: found}


def _cut(op: str, span: Span, bound: Expr, known: Known) -> Span | None:
    end = span.first + span.count
    ranges = {
        "eq": (bound, bound + 1),
        "ge": (bound, end),
        "gt": (bound + 1, end),
        "lt": (span.first, bound),
        "le": (span.first, bound + 1),
    }
    if op not in ranges:
        return None
    first, last = ranges[op]
    inside = known(span.first.le(first)) and known(first.lt(last)) and known(last.le(end))
    return Span(first, last - first) if inside else None


def without(box: Mapping[Symbol, Span], part: Mapping[Symbol, Span], axes: tuple[Axis, ...]) -> Mapping[Symbol, Span]:
    """A box that has all of a box but a part of it: what lies before or behind it, or else the whole one."""
    whole = {a.symbol: box.get(a.symbol, Span(ZERO, a.extent)) for a in axes}
    cut = [(symbol, one, whole[symbol]) for symbol, one in part.items() if one != whole[symbol]]
    if len(cut) == 1:
        ((symbol, one, all_of_it),) = cut
        end, whole_end = one.first + one.count, all_of_it.first + all_of_it.count
        if one.first is all_of_it.first:
            return {**box, symbol: Span(end, whole_end - end)}
        if end is whole_end:
            return {**box, symbol: Span(all_of_it.first, one.first - all_of_it.first)}
    return box


def places(axes: tuple[Axis, ...], box: Mapping[Symbol, Span]) -> dict[Symbol, Expr]:
    """What loops over all of the axes call a place, in terms of those over the box."""
    spans = [(a.symbol, box[a.symbol]) for a in axes if a.symbol in box]
    return {symbol: span.first if span.count is ONE else span.first + symbol for symbol, span in spans}


# ---- what may fail


@dataclass(frozen=True, slots=True, eq=False)
class _Checked:
    """A place of the program: what is made sure of there, after what was to be made at the places `moved`."""

    at: int
    moved: frozenset[int]
    checks: tuple[Computation, ...]
    looked_up: frozenset[object]


def checked_before(
    program: LoopProgram, versions: Mapping[int, object], first: int, looked_up: Set[object]
) -> _Checked | None:
    """What to do before `first`, where something of the caller's is written first, so that nothing fails behind it: what an
    operator would find out later is looked up before. None if that cannot be. Indices that one operator found in range another
    one of the same kind will."""
    passed, looked = {*looked_up}, set[object]()
    moved: set[int] = set()
    checks: list[Computation] = []
    for at, one in enumerate(program.computations):
        check = what_it_checks(one)
        if at >= first and check not in passed and may_raise(one) and not (isinstance(one, Pointwise) and at in versions):
            looking = None if check is None else looking_up(one)
            made = None if looking is None else _made_of_inputs(program, one, first, at)
            if looking is None or made is None:
                return None
            moved.update(made)
            checks.append(looking)
            looked.add(check)
        if check is not None:
            passed.add(check)
    return _Checked(first, frozenset(moved), tuple(checks), frozenset(looked))


def _made_of_inputs(program: LoopProgram, call: Computation, first: int, at: int) -> list[int] | None:
    """Where the indices of a call are made, if not before `first`, and of inputs alone that are not written until then."""
    assert isinstance(call, Extern)
    needed = {view.buffer for view in indices_of(call)[1] if view is not None}
    steps = program.computations
    made = [k for k in range(first, at) if not needed.isdisjoint(access(steps[k]).writes)]
    read = frozenset(b for b in needed if b.role == "input").union(*(access(steps[k]).reads for k in made))
    written = {b for k in range(at) for b in access(steps[k]).writes}
    is_plain = all(isinstance(steps[k], Pointwise) and not may_fail(steps[k]) for k in made)
    return made if is_plain and all(b.role in ("input", "constant") and b not in written for b in read) else None


# ---- what reads a tensor that lies elsewhere


def _reading(one: Computation, moved: Mapping[Buffer, tuple[Buffer, Expr]]) -> Computation:
    if access(one).reads.isdisjoint(moved):
        return one
    if isinstance(one, Extern):
        return dataclasses.replace(one, args=_moved_views(one.args, moved), kwargs=_moved_views(one.kwargs, moved))
    changed: dict[str, Any] = {"value": substitute(one.value, {}, moved)}
    if isinstance(one, Pointwise):
        changed["indirect"] = tuple((symbol, substitute(value, {}, moved)) for symbol, value in one.indirect)
    return dataclasses.replace(one, **changed)


def _moved_views(value: Any, moved: Mapping[Buffer, tuple[Buffer, Expr]]) -> Any:
    """Nested arguments with the views in them."""
    if isinstance(value, View):
        buffer, further = moved.get(value.buffer, (value.buffer, ZERO))
        return dataclasses.replace(value, buffer=buffer, offset=value.offset + further)
    if isinstance(value, (list, tuple)):
        return type(value)(_moved_views(one, moved) for one in value)
    if isinstance(value, dict):
        return {name: _moved_views(one, moved) for name, one in value.items()}
    return value
