"""Built-ins that go through iterables: iter, next, any, all, sum, prod, max, min, sorted, reduce.

Holds:  keys and functions of the program run in the interpreter.
"""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import torch

from pliant.capture import operators, selections, spelled_out
from pliant.capture.graph_breaks import Exhausted, GraphBreak, Raised
from pliant.capture.handlers.table import Args, Kwargs, Rows
from pliant.capture.iteration import is_driven, iterate, next_value
from pliant.capture.tail_calls import TailCall, steps_of
from pliant.capture.value_kinds import PLAIN_TYPES, concrete

if TYPE_CHECKING:
    from pliant.capture.tracer import Tracer

ROWS = Rows()
handles, takes, TABLE = ROWS.handles, ROWS.takes, ROWS.callables


# ---- iteration
@handles(iter)
def _iter(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2:
        return t.native(iter, t.reentrant(args[0]), args[1])
    return steps_of(iterate)(t, args[0])


@handles(next)
def _next(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    step = steps_of(next_value)
    if len(args) == 1:
        return step(t, args[0])
    if is_driven(t, args[0]) or operators.python_method(t, args[0], "__next__") is not None:
        return TailCall(spelled_out.step_or, args)
    try:
        return step(t, args[0])
    except Exhausted:
        return args[1]


def _quantifier(stop_at: bool, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    iterator = t.iterate(args[0])
    while True:
        try:
            value = t.next(iterator)
        except Exhausted:
            return not stop_at
        if bool(concrete(operators.truth(t, value))) == stop_at:
            return stop_at


TABLE |= {any: functools.partial(_quantifier, True), all: functools.partial(_quantifier, False)}


_NUMBERS = frozenset((bool, int, float))


@takes(sum)
def _sum(t: Tracer, items: Any, /, start: Any = 0) -> Any:
    total, values = start, t.sequence(items)
    if _NUMBERS.issuperset(map(type, (total, *values))):
        return t.native(sum, values, total)
    return functools.reduce(functools.partial(operators.binary, t, "+"), values, total)


@takes(math.prod)
def _product(t: Tracer, items: Any, /, *, start: Any = 1) -> Any:
    return functools.reduce(functools.partial(operators.binary, t, "*"), t.sequence(items), start)


def _extreme(symbol: str, symbolic: Any, name: str, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if not args or len(args) > 1 and "default" in kwargs or not kwargs.keys() <= {"key", "default"}:
        raise GraphBreak("bad-call", f"{name}() of no values, or with what it does not know")
    values = t.sequence(args[0]) if len(args) == 1 else args
    if not values:
        if "default" in kwargs:
            return kwargs["default"]
        raise Raised(ValueError(f"{name}() arg is an empty sequence"))
    key = kwargs.get("key")
    best = values[0]
    mark = best if key is None else t.call(key, (best,), {})
    for value in values[1:]:
        rank = value if key is None else t.call(key, (value,), {})
        kinds = {PLAIN_TYPES.get(type(one), type(one)) for one in (best, value)}  # one of both is the result
        symbols = {type(value), type(best)} & {torch.SymInt, torch.SymFloat}
        if key is None and symbols and len(kinds) == 1:
            best = mark = t.native(symbolic, best, value)
            continue
        answer = operators.compare(t, symbol, rank, mark)
        if key is None and (taken := selections.one_of(t, answer, value, best)) is not None:
            best = mark = taken
        elif key is not None and (taken := selections.one_of(t, answer, (value, rank), (best, mark))) is not None:
            best, mark = taken
        elif concrete(operators.truth(t, answer)):
            best, mark = value, rank
    return best


TABLE[max] = functools.partial(_extreme, ">", torch.sym_max, "max")
TABLE[min] = functools.partial(_extreme, "<", torch.sym_min, "min")


@takes(sorted)
def _sorted(t: Tracer, items: Any, /, **kwargs: Any) -> Any:
    before, orders = t.process_bound, len(t.orders)
    values = [t.internalize(v) for v in t.sequence(items)]
    if kwargs.get("key") is None:  # all that order tells apart: that of a set is gone
        t.process_bound = before
        del t.orders[orders:]
    return in_order(t, values, kwargs)


def in_order(t: Tracer, values: list[Any], kwargs: Kwargs) -> list[Any]:
    """sorted(values, **kwargs)"""
    key = kwargs.get("key")
    keys = values if key is None else [t.call(key, (value,), {}) for value in values]
    if any(operators.python_method(t, k, name) for k in keys for name in ("__lt__", "__gt__")):
        keys = [_Ordered(t, k) for k in keys]
    else:
        t.refuse_opaque(*keys)
    places = t.native(sorted, range(len(keys)), key=keys.__getitem__, reverse=concrete(kwargs.get("reverse", False)))
    return [values[place] for place in places]


class _Ordered:
    """A key whose class compares by methods of the program."""

    def __init__(self, t: Tracer, key: Any) -> None:
        self.t = t
        self.key = key

    def __lt__(self, other: _Ordered) -> bool:
        self.t.steps += 1
        try:
            return bool(concrete(operators.truth(self.t, operators.compare(self.t, "<", self.key, other.key))))
        except Raised as raised:
            raise raised.error from raised.error.__cause__


@takes(functools.reduce)
def _reduce(t: Tracer, function: Any, items: Any, *initial: Any) -> Any:
    values = [*initial, *t.sequence(items)]
    if not values:
        raise Raised(TypeError("reduce() of empty iterable with no initial value"))
    return functools.reduce(lambda total, value: t.call(function, (total, value), {}), values)
