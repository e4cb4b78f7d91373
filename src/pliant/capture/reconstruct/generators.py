"""How generators, iterators that a loop still needs, and traced callables are made again.

In:     the traced form (`capture.iterators.generators`, `capture.iterators.carried`) and the `Statements` it is for.
Out:    its expression; `RECIPES` by type.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from pliant.capture.bytecode.resume import generator_code, point_at, resume_freevars
from pliant.capture.iterators.carried import CarriedItems, CountedTurns, Numbered
from pliant.capture.iterators.generators import TracedCallable, TracedCallback, TracedGenerator, kept_locals
from pliant.capture.iterators.loops import turns_left
from pliant.capture.iterators.standing_iterators import put_at
from pliant.capture.iterators.suspended import Carried, Carry, Suspended, finished, place_of, revive
from pliant.capture.reconstruct.statements import CannotReconstruct, Recipe, Statements, expression
from pliant.capture.trace import NULL
from pliant.capture.value_kinds import ByKind


def _generator(b: Statements, obj: TracedGenerator) -> str:
    if obj.is_broken:  # the code behind the break says where it stands next
        return b.bind(obj, f"{b.hold(revive)}({b.hold(Suspended)}())", hint="generator")
    if obj.finished:
        return b.bind(obj, f"{b.hold(finished)}()", hint="generator")
    if obj.started:
        return b.bind(obj, f"{b.hold(revive)}({_suspended(b, obj)})", hint="generator")
    return _new_generator(b, obj)


def _suspended(b: Statements, obj: TracedGenerator) -> str:
    """Text of the state of a generator that stands at a `yield`."""
    frame = obj.frame
    stack = [*frame.stack, None]
    index = frame.program.index_of(frame.op.offset)
    point = point_at(frame.program, index, [v is not NULL for v in stack], frame.locals, kept_locals(frame))
    if point.handled or obj.running:
        raise CannotReconstruct("started-generator", obj)
    generator_code(point)
    cells = [frame.cells.get(n) or types.CellType() for n in resume_freevars(frame.code)]
    values = [*(v for v in stack if v is not NULL), *(frame.locals[n] for n in point.locals)]
    b.keep.append(cells)
    place = b.names(place_of(point, frame.globals, frame.name), "place")
    return f"{b.hold(Suspended)}({place}, ({b.items(cells)}{',' * (len(cells) == 1)}), ({b.items(values)},))"


def _new_generator(b: Statements, obj: TracedGenerator) -> str:
    """A generator that has not started: its function is called again with the bound parameters."""
    frame, code = obj.frame, obj.frame.code
    names, placed, own = _parameters(code), code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    values = frame.locals | {n: frame.cells[n].cell_contents for n in code.co_cellvars if n in names and n in frame.cells}
    closure = f"({b.items([frame.cells[n] for n in code.co_freevars])},)" if code.co_freevars else "None"
    make = f"{b.names(types.FunctionType, 'FunctionType')}({b.hold(code)}, {b.hold(frame.globals)}, {code.co_name!r}, None, {closure})"
    args = [b.value(values[n]) for n in names[:placed]]
    keywords = [f"{n}={b.value(values[n])}" for n in names[placed:own]]
    stars = ["*" * (1 + (i > 0 or not code.co_flags & 0x04)) + b.value(values[n]) for i, n in enumerate(names[own:])]
    return b.bind(obj, f"{make}({', '.join([*args, *keywords, *stars])})", hint="generator")


def _parameters(code: types.CodeType) -> tuple[str, ...]:
    extra = bool(code.co_flags & 0x04) + bool(code.co_flags & 0x08)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + extra]


def _carry(b: Statements, obj: Carry) -> str:
    value = obj.value
    text = _CARRIED.of(value)(b, value)
    name = b.names.fresh("loop")
    b.emit(f"{name} = [{b.hold(Carried)}({text}, {turns_left(obj)})]", name)
    return f"{name}.pop()"  # the entry keeps none: what the loop drops is gone


def _carried_items(b: Statements, obj: CarriedItems) -> str:
    """Of a loop that has just begun; others existed before."""
    source: Any = obj.source
    name = b.bind(obj, f"list.{source.method}({b.value(obj.container)})", hint="iterator")
    b.late.append(f"{b.hold(put_at)}({name}, {obj.index_of(obj.steps)})")
    return name


_CARRIED: ByKind[Callable[[Statements, Any], str]] = ByKind(Statements.value, {TracedGenerator: _suspended})


def name_of_lazy(obj: Any) -> str | None:
    """The name of an object of which code of the program runs once somebody asks it for items; None of others."""
    return _LAZY.of(obj)(obj)


_LAZY: ByKind[Callable[[Any], str | None]] = ByKind(
    lambda obj: None,
    {TracedGenerator: lambda generator: None if generator.finished else generator.frame.name},
    dict.fromkeys((map, filter), lambda obj: type(obj).__name__),
)


RECIPES: dict[type, Recipe] = {
    TracedGenerator: _generator,
    **dict.fromkeys((TracedCallable, TracedCallback), lambda b, obj: b.value(obj.function)),
    Carry: _carry,
    CarriedItems: _carried_items,
    CountedTurns: expression(
        lambda b, obj: (
            f"iter(range({b.value(obj.start)} + {obj.step * obj.steps}, {b.value(obj.stop)}, {obj.step}))"
        ),
        "iterator",
    ),
    Numbered: expression(lambda b, obj: f"enumerate({b.items((obj.items, obj.count))})", "iterator"),
}
