"""Built-ins that go through iterables: iter, next, any, all, sum, prod, max, min, sorted, reduce.

Holds:  what runs code of the program is a polyfill, which the interpreter follows.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from typing import Any

import torch

from pliant.capture.handlers.table import Rows
from pliant.capture.protocols import operators, polyfills
from pliant.capture.protocols.iteration import iterate, next_value, watched
from pliant.capture.protocols.tail_calls import TailCall, steps_of
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import is_list_or_tuple
from pliant.capture.value_kinds import NUMBERS, SYMBOLIC_TYPES, concrete, is_str, is_tuple, plain_class
from pliant.unpatched import BUILTINS

ROWS = Rows()
handles, takes, TABLE = ROWS.handles, ROWS.takes, ROWS.callables


# ---- iteration
@handles(BUILTINS.iter)
def _iter(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    if len(args) == 2:
        return t.native(BUILTINS.iter, t.reentrant(args[0]) if callable(args[0]) else args[0], args[1])
    return steps_of(iterate)(t, args[0])


@handles(BUILTINS.next)
def _next(t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    step = steps_of(next_value)
    return TailCall(polyfills.step_or, args) if len(args) == 2 else step(t, args[0])


def _looping(polyfill: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """A function whose polyfill loops over the items of its one argument by place."""
    return TailCall(polyfill, (watched(t, args[0], t.taken(args[0])),), kwargs)


TABLE[BUILTINS.any] = functools.partial(_looping, polyfills.any_true)
TABLE[BUILTINS.all] = functools.partial(_looping, polyfills.all_true)
TABLE[math.prod] = functools.partial(_looping, polyfills.multiplied)


@takes(itertools.tee)
def _tee(t: Tracer, iterable: Any, n: Any = 2, /) -> Any:
    """Of the items themselves: whoever takes them may change them."""
    return t.native(itertools.tee, t.iterable(iterable), concrete(n))



# What has no items is for the polyfill to complain about.
TABLE[functools.reduce] = lambda t, args, kwargs: TailCall(polyfills.reduced, args)


@takes(BUILTINS.sum)
def _sum(t: Tracer, given: Any, /, start: Any = 0) -> Any:
    items = t.taken(given)
    kinds = {*map(type, items), type(start)} if is_list_or_tuple(items) else set()
    if kinds and kinds <= NUMBERS or isinstance(start, (str, bytes, bytearray)):  # which it complains of
        return t.native(BUILTINS.sum, items, start)
    if kinds and kinds <= NUMBERS | SYMBOLIC_TYPES:
        return functools.reduce(functools.partial(operators.binary, t, "+"), items, start)
    return TailCall(polyfills.added, (watched(t, given, items), start))


def _extreme(function: Any, symbolic: Any, t: Tracer, args: Args, kwargs: Kwargs) -> Any:
    """max or min: of numbers that vary a number that varies."""
    fits = len(args) == 1 or "default" not in kwargs
    values, key = t.taken(args[0]) if len(args) == 1 else args, kwargs.get("key")
    if is_list_or_tuple(values):
        if not values or not fits or not kwargs and NUMBERS.issuperset(map(type, values)):
            return t.native(function, *((values,) if len(args) == 1 else args), **kwargs)  # which may complain
        if key is None and len(values) < 3:
            best, other = values[0], values[-1]
            if plain_class(best) is plain_class(other) and not _SYMBOLS.isdisjoint(map(type, values)):
                return t.native(symbolic, best, other)  # one of both
            return TailCall(polyfills.better_of, (_BETTER[function], best, other)) if len(values) > 1 else best
    if len(args) == 1:
        values = watched(t, args[0], values)
    otherwise = {name: value for name, value in kwargs.items() if name == "default"}
    return TailCall(polyfills.best_in_turn, (function, _BETTER[function], values, key, otherwise))


_SYMBOLS = frozenset((torch.SymInt, torch.SymFloat))
_BETTER = {BUILTINS.max: operator.gt, BUILTINS.min: operator.lt}
ROWS.each((BUILTINS.max,), _extreme, torch.sym_max)
ROWS.each((BUILTINS.min,), _extreme, torch.sym_min)


@takes(BUILTINS.sorted)
def _sorted(t: Tracer, items: Any, /, **kwargs: Any) -> Any:
    before, orders = t.process_bound, len(t.orders)
    values = [t.internalize(v) for v in t.sequence(items, is_made=True)]
    if kwargs.get("key") is None:  # all that order tells apart: that of a set is gone
        t.process_bound = before
        del t.orders[orders:]
    return in_order(t, values, kwargs)


def in_order(t: Tracer, values: list[Any], kwargs: Kwargs) -> list[Any]:
    """sorted(values, **kwargs)"""
    key = kwargs.get("key")
    keys = _deciding(values if key is None else [t.call(key, (value,), {}) for value in values])
    keys = [t.internalize(one) for one in keys]  # what is inside them decides too
    if any(operators.python_method(t, k, name) for k in keys for name in ("__lt__", "__gt__")):
        keys = [*map(functools.cmp_to_key(t.reentrant(polyfills.order)), keys)]
    else:
        t.refuse_opaque(*keys, compared="<")
    places = t.native(BUILTINS.sorted, range(len(keys)), key=keys.__getitem__, reverse=concrete(kwargs.get("reverse", False)))
    return [values[place] for place in places]


def _deciding(keys: list[Any]) -> list[Any]:
    """What is compared of the keys: of tuples that begin with names, all different, as items of a dict do, the names."""
    if not all(is_tuple(key) and key and is_str(key[0]) for key in keys):
        return keys
    names = [key[0] for key in keys]
    return names if len({*names}) == len(names) else keys
