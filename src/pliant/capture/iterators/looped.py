"""Iterators of `itertools` that a loop takes as they are made, across graph breaks of the loop.

In:     calls of their classes, and what C code makes of them.
Out:    `made_for`: that; or, for a loop that was seen to break, a generator that does the same (`polyfills/iterators.py`), which
        code behind the break goes on with.
Holds:  nothing but the loop sees the generator: a `for` statement takes it as it is made, or an `enumerate` that such a statement
        takes. Calls that C code would complain of are left to it.
"""

from __future__ import annotations

import collections
import functools
import inspect
import itertools
from collections.abc import Callable, Sequence
from typing import Any

from pliant import arity
from pliant.bytecode.cfg import looks_at_locals
from pliant.bytecode.decode import Program, per_program
from pliant.capture.iterators.carried import begins_next, place_of
from pliant.capture.signatures import Args, Frame, Kwargs, Tracer
from pliant.capture.trace import NULL
from pliant.capture.value_kinds import exactly
from pliant.polyfills import iterators

ClassHandler = Callable[[Tracer, Any, Args, Kwargs], Any]


def _always(args: Args, kwargs: Kwargs) -> bool:
    return True


def _has_bounds(args: Args, kwargs: Kwargs) -> bool:
    """Whether those of a slice are counts, as far as there are any."""
    return all(bound is None or _is_integer(bound) and bound >= 0 for bound in args[1:]) and args[3:] != (0,)


def _has_count(name: str, place: int, args: Args, kwargs: Kwargs) -> bool:
    """Whether a count of that name, if there is one, is one."""
    return all(_is_integer(one) for one in (*args[place : place + 1], *(kwargs[name] for name in {name} & kwargs.keys())))


_is_integer = exactly(int)
# By class: the generator function, and whether its parameters are given what they can take.
_CLASSES: dict[Any, tuple[Callable[..., Any], Callable[[Args, Kwargs], bool]]] = {
    **{
        getattr(itertools, name): (getattr(iterators, name), _always)
        for name in "chain zip_longest accumulate starmap takewhile dropwhile filterfalse compress pairwise cycle count".split()
    },
    itertools.islice: (iterators.islice, _has_bounds),
    itertools.repeat: (iterators.repeat, functools.partial(_has_count, "times", 1)),
    itertools.product: (iterators.product, lambda args, kwargs: _has_count("repeat", len(args), args, kwargs)),
}
CARRIED_FOR = _CLASSES.keys()
_GENERATORS = {**_CLASSES, itertools.chain.from_iterable: (iterators.from_iterable, _always)}


def made_for(t: Tracer, called: Any, args: Args, kwargs: Kwargs, make: Callable[[], Any]) -> Any:
    """What a call makes, for a loop that may break. `make`: how C code does."""
    if not _is_for_a_loop(t.frames):
        return make()
    place = place_of(t.frames[-1])
    generator, fits = _GENERATORS[called]
    shape = arity.of(generator)
    if place in t.inputs.policy.broken_loops and fits(args, kwargs) and shape is not None and shape.takes(len(args), kwargs):
        return t.call(generator, args, kwargs)
    made = make()
    t.looped[id(made)] = made, place
    return made


def _is_for_a_loop(frames: Sequence[Frame]) -> bool:
    """Whether nothing but a loop sees what the innermost frame makes now: it takes that, or its items with their numbers, at once,
    from a function that returns it, or from a variable that is read once."""
    for frame in reversed(frames):
        op = frame.program.ops[frame.ip]
        if op.name == "STORE_FAST":
            return op.arg in _read_by_loops(frame.program)
        if op.name != "RETURN_VALUE":
            return _takes_at_once(frame)
        if not frame.linked or frame.code.co_flags & inspect.CO_GENERATOR or frame.is_polyfill:
            return False
    return False


def _takes_at_once(frame: Frame) -> bool:
    if not frame.op.name.startswith("CALL"):
        return False
    ahead = frame.program.ops[frame.ip : frame.ip + 2]
    if [op.name for op in ahead] != ["CALL", "GET_ITER"]:
        return begins_next(frame)
    given: Any = ahead[0].arg
    called = [value for value in frame.stack[-2:] if value is not NULL]
    return (given.count, given.names) == (1, ()) and called[-1:] == [enumerate] and begins_next(frame, 1)


@per_program
def _read_by_loops(program: Program) -> frozenset[str]:
    """The variables each of which one operation reads, for a loop."""
    if looks_at_locals(program):
        return frozenset()
    names = [op.name for op in program.ops]
    read = collections.Counter(str(op.arg) for op in program.ops if op.name in _READING)
    loops = zip(program.ops, names[1:], names[2:])
    taken = [str(op.arg) for op, *then in loops if op.name == "LOAD_FAST" and then == ["GET_ITER", "FOR_ITER"]]
    return frozenset(name for name in taken if read[name] == 1)


_READING = frozenset(("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"))


def looped(make: ClassHandler) -> ClassHandler:
    """The row of such a class, whose iterators C code makes so."""

    def construct(t: Tracer, cls: Any, args: Args, kwargs: Kwargs) -> Any:
        return made_for(t, cls, args, kwargs, lambda: make(t, cls, args, kwargs))

    return construct
