"""What C code gets for each argument of a call: a conversion for each place and name.

In:     traced arguments.
Out:    `Arguments.of`: the arguments as C code gets them.
Holds:  iterables of the program are driven through the interpreter; numbers that C code needs are specialized.
"""

from __future__ import annotations

import collections
import functools
import itertools
import types
from collections.abc import Callable
from typing import Any

from pliant.capture.graph_breaks import Raised, WrongKind
from pliant.capture.iterators.generators import TracedCallable
from pliant.capture.protocols import iteration, operators, subscripts
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.value_kinds import by_kind, concrete, is_iterable
from pliant.unpatched import BUILTINS

Convert = Callable[["Tracer", Any], Any]


def as_it_is(t: Tracer, value: Any) -> Any:
    return value


def number(t: Tracer, value: Any) -> Any:
    return concrete(subscripts.as_index(t, value))


items, listed = iteration.iterable, iteration.listed


def fixed(t: Tracer, value: Any) -> Any:
    return concrete(value)


def called(t: Tracer, function: Any) -> Any:
    """A function that C code calls; none where there may be none."""
    return function if function is None else t.reentrant(function)


def asked(t: Tracer, function: Any) -> Any:
    """The same of one whose truth is asked."""
    return function if function is None else t.reentrant(function, truth=True)


def grouping(t: Tracer, function: Any) -> Any:
    """The same of one whose results C code compares."""
    return function if function is None else t.grouping(function)


class EachIterable(TracedCallable):
    """`iter` for C code that takes an item of the program's, and then the items of that."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return iteration.advanced_by_c(self.tracer, super().__call__(*args, **kwargs))


def iterables(t: Tracer, value: Any) -> Any:
    """Iterables from an iterable, each taken when its turn comes: there may be no last one."""
    return map(EachIterable(t, BUILTINS.iter, False), t.iterable(value))


def factory(t: Tracer, value: Any) -> Any:
    """Of a `defaultdict`, which complains of it before it takes the items."""
    t.native(collections.defaultdict, value)
    return value


def in_turn(t: Tracer, value: Any) -> Any:
    """An iterable; what is none only its turn tells."""
    return t.iterable(value) if is_iterable(value) else value


def _pairs_of(t: Tracer, value: Any, by_keys: bool) -> Any:
    if operators.python_method(t, value, "keys") is not None:
        return iteration.mapping(t, value, by_keys)
    return itertools.starmap(functools.partial(_pair, t), enumerate(t.iterable(value)))  # C code takes one after the other


pairs_or_mapping = by_kind(
    _pairs_of,
    dict.fromkeys((type(None), types.MappingProxyType), lambda t, value, by_keys: value),
    {dict: iteration.mapping},
    place=1,
)


def _pair(t: Tracer, index: int, pair: Any) -> Args:
    try:
        found = tuple(t.sequence(t.as_sequence(pair)))
    except WrongKind:
        error = TypeError(f"cannot convert dictionary update sequence element #{index} to a sequence")
        raise Raised(error) from None
    return (t.hashable(found[0]), *found[1:]) if found else found


class Arguments:
    """`first`: for the first arguments; `rest`: for all others; `named`: for those with a name."""

    def __init__(self, *first: Convert, rest: Convert = as_it_is, **named: Convert) -> None:
        self.first, self.rest, self.named = first, rest, named

    def of(self, t: Tracer, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        rows = zip(itertools.chain(self.first, itertools.repeat(self.rest)), args)
        named = {name: self.named.get(name, self.rest)(t, a) for name, a in kwargs.items()}
        return tuple([convert(t, a) for convert, a in rows]), named
