"""Calls of functions that `functools.lru_cache` wraps: what the cache holds, or computed under guards.

In:     the wrapped function and traced arguments.
Out:    the traced result; a break where computing it changes something, which eager does once only.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import are_same_constants, consists_of, has_symbols
from pliant.capture.value_kinds import COMPARED_IN_C, is_symbolic
from pliant.cpython import NOT_KEPT, kept_result
from pliant.guards.kinds import Kind
from pliant.guards.sources import KeptSource, held


def call_cached(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A function with a cache. What one from outside holds already is what the call returns."""
    kept = _kept_result(t, function, args, kwargs) if t.world.is_foreign(function) else NOT_KEPT
    if kept is NOT_KEPT:
        return _compute_cached(t, function, args, kwargs)
    place = KeptSource(t.world.place_of(function), held((tuple(args), tuple(kwargs.items())), "arguments").held)
    if consists_of(kept, COMPARED_IN_C):  # computed anew it is under guards, which hold in other processes too
        found = _compute_cached(t, function, args, kwargs)
        return found if are_same_constants(found, kept) else t.world.bring(kept, place)
    t.world.guard(place, Kind.IDENTITY, kept)
    return t.world.bring(kept, held(kept, f"what {function.__qualname__} keeps"))


def _compute_cached(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Its result where the cache does not hold it: as eager calls may fill the cache, the function may have no effect."""
    cache = t.caches.get(id(function))
    if cache is None:
        made = functools.lru_cache(**function.cache_parameters())(t.reentrant(function.__wrapped__))
        cache = t.caches[id(function)] = (function, made)
    before = t.world.changes() if t.world.is_foreign(function) else None
    if has_symbols(args, kwargs):
        result = _call_cached_by_symbols(t, function, args, kwargs)
    else:
        result = t.native(cache[1], *map(t.hashable, args), **{k: t.hashable(v) for k, v in kwargs.items()})
    if before is not None and t.world.changes() != before:
        raise GraphBreak("side-effect-call", f"{function.__qualname__} is cached, and changes something when it is not")
    return result


def _kept_result(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """What its cache holds for arguments that are the same in eager."""
    given = [one for one in (*args, *kwargs.values()) if not t.world.is_foreign(one)]
    if not COMPARED_IN_C.issuperset(map(type, given)):
        return NOT_KEPT
    return kept_result(function, args, kwargs)


def _call_cached_by_symbols(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A cache is no reason to fix numbers that vary: equal expressions are one key."""

    def key_of(value: Any) -> Any:
        if type(value) in (tuple, torch.Size):
            return type(value), *map(key_of, value)
        return (type(value), t.shape_env.expr_of(value)) if is_symbolic(value) else t.hashable(value)

    key = (id(function), key_of((*args, *kwargs.items())))
    if key not in t.results:
        t.results[key] = t.call(function.__wrapped__, args, kwargs)
    return t.results[key]
