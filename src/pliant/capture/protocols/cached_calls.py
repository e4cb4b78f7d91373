"""Calls of functions that `functools.lru_cache` wraps: what the cache holds, or computed under guards.

In:     the wrapped function and traced arguments.
Out:    the traced result; a break where computing it changes something, which eager does once only.
Holds:  where a cache from outside does not hold the result, eager fills it. Nobody can tell whether what depends on
        the arguments alone is kept or computed again, as long as it is not written nor given away: such results are computed
        by the graph. Where numbers that vary are among the arguments, a guard calls the function and compares. For others
        the cache is filled as eager would fill it, and the trace starts again; where the trace has done something before,
        it breaks instead, and Python calls the function.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import torch

from pliant.capture.graph_breaks import BreakBefore, GraphBreak, StartAgain
from pliant.capture.outside.origins import Asked
from pliant.capture.recording.regions import may_be_another
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import (
    are_same_constants,
    consists_of,
    has_symbols,
    is_container,
    leaves,
    mapped,
    parts_of,
)
from pliant.capture.trace import BreakReason
from pliant.capture.value_kinds import (
    COMPARED_IN_C,
    CONSTANTS,
    exactly,
    is_hashed_by_identity,
    is_mutable_container,
    is_numpy_array,
    is_symbolic,
    is_tensor,
    is_told_by_value,
    varying,
)
from pliant.cpython import NOT_KEPT, kept_result
from pliant.graph.fake_tensor import is_fake, memory_of
from pliant.graph.unbacked import is_unbacked
from pliant.guards.facts import same
from pliant.guards.kept_calls import CONTAINERS
from pliant.guards.kinds import KeptFacts, Kind
from pliant.guards.sources import KeptSource, LengthSource, held
from pliant.records import dataclass
from pliant.source import SourceLocation

_MOST_STARTS = 64  # as keys that are new in each trace are never found
_STARTED_AGAIN: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()  # how often a function had traces start
_HAS_EFFECTS: weakref.WeakSet[Any] = weakref.WeakSet()  # functions that were seen to change something, or to draw


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """A result that a cache from outside does not hold. `reads`: whether more than its arguments tells it; `follows`:
    whether the trace had effects before that the function could notice; `state`: of the result when it was made; `step`:
    of the operation that called."""

    function: Any
    args: Args
    kwargs: Kwargs
    result: Any
    state: Any
    reads: bool
    follows: bool
    step: int
    where: SourceLocation | None


def call_cached(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """A function with a cache. What one from outside holds already is what the call returns."""
    if not t.world.is_foreign(function) or not t.frames:  # or it is what was compiled: what it computes
        return _compute_cached(t, function, args, kwargs)
    if not _are_known(t, args, kwargs):
        return _compute_unkept(t, function, args, kwargs)
    kept = kept_result(function, args, kwargs)
    place = KeptSource(t.world.place_of(function), held((tuple(args), tuple(kwargs.items())), "arguments").held)
    if kept is NOT_KEPT and function in _HAS_EFFECTS:
        t.world.guard(place, Kind.IDENTITY, NOT_KEPT)  # once it was called this need be no break
        raise _changes_something(function)
    if kept is NOT_KEPT:
        return _compute_unkept(t, function, args, kwargs)
    if consists_of(kept, COMPARED_IN_C):
        found = kept if function in _HAS_EFFECTS else _compute_again(t, function, args, kwargs)
        return found if found is not kept and are_same_constants(found, kept) else t.world.bring(kept, place)
    t.world.guard(place, Kind.IDENTITY, kept)
    return t.world.bring(kept, held(kept, f"what {function.__qualname__} keeps"))


def _changes_something(function: Any) -> GraphBreak:
    return GraphBreak("side-effect-call", f"{function.__qualname__} is cached, and changes something when it is not")


def _compute_again(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """What the cache holds, computed under guards, which hold in other processes too."""
    result, seen = _looked_at(t, functools.partial(_compute_cached, t, function, args, kwargs))
    if seen.draws:  # which eager does not do any more
        _HAS_EFFECTS.add(function)
        raise StartAgain
    return result


def _compute_unkept(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Its result where its cache, from outside, does not hold it."""
    if function.cache_parameters()["maxsize"] == 0:
        return _compute_cached(t, function, args, kwargs)
    before, frame = t.has_effects(), t.frames[-1]
    step, where = frame.steps_at_op, frame.location()
    result, seen = _looked_at(t, functools.partial(_compute_cached, t, function, args, kwargs))
    reads, follows = seen.reads, before and (_has_called(t) or seen.tensors or seen.changes)
    if not reads and any(result is known.result for known in t.computed):
        return result  # found in the cache within the trace
    one = Computed(function, args, kwargs, result, _state_of(result), reads, follows, step, where)
    compared = reads and has_symbols(args, kwargs) and not (seen.draws or follows)
    facts = _facts_of(t, one) if compared else None
    if facts is not None:
        t.world.guard(t.world.place_of(function), Kind.KEPT, facts)
        given, named = _given_now(t, one)
        function(*given, **named)
        one = replace(one, reads=False)
    elif seen.draws or not _may_be_computed_again(t, one):
        if seen.draws or seen.tensors or not _is_found_once_filled(t, one):
            _fill_first(t, one)
        return call_cached(t, function, args, kwargs)
    t.computed.append(one)
    return result


def _facts_of(t: Tracer, one: Computed) -> KeptFacts | None:
    """What a guard can compare in each call: nothing that depends on tensors; and the cache holds nothing else now."""
    given, result = (*one.args, *one.kwargs.values()), one.result
    if not all(_is_compared(t, leaf) for leaf in leaves(*given, result)):
        return None
    if not all(is_hashed_by_identity(leaf) for leaf in leaves(*given) if t.world.is_foreign(leaf)):
        return None  # finding them runs methods of the program
    if not all(_is_spelled(part) for value in (*given, result) for part in _with_parts(value) if is_container(part)):
        return None

    def of_call(value: Any) -> Any:
        return mapped(value, lambda leaf: t.shape_env.expr_of(leaf) if is_symbolic(leaf) else leaf)

    kept = kept_result(one.function, *_given_now(t, one))
    if kept is not NOT_KEPT and not same(kept, _now(t, result)):
        return None
    return KeptFacts(of_call(tuple(one.args)), of_call(dict(one.kwargs)), of_call(result))


_is_spelled = exactly(*CONTAINERS)


def _is_compared(t: Tracer, leaf: Any) -> bool:
    if is_symbolic(leaf):
        return varying(leaf) is int and not is_unbacked(leaf)
    return consists_of(leaf, CONSTANTS) or t.world.is_foreign(leaf) and not is_fake(leaf)


def _given_now(t: Tracer, one: Computed) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return _now(t, tuple(one.args)), _now(t, dict(one.kwargs))


def _now(t: Tracer, value: Any) -> Any:
    """With the values that numbers have in the call that is captured."""
    env = t.shape_env
    return mapped(value, lambda leaf: env.hint(env.expr_of(leaf)) if is_symbolic(leaf) else leaf)


@dataclass(frozen=True, slots=True)
class Seen:
    """Of a function that ran: whether it read what may be another later, drew random numbers, had to do with tensors, of
    which it may read what the trace has written or drawn before, or read an object as the trace has changed it."""

    reads: bool
    draws: bool
    tensors: bool
    changes: bool


def _looked_at(t: Tracer, compute: Callable[[], Any]) -> tuple[Any, Seen]:
    """What it computes, and what it was seen to do."""
    reads: list[Any] = []
    tensors: list[Any] = []

    def look(value: Any, source: Any) -> None:
        if may_be_another(value, source) or _is_length(source):
            reads.append(source)
        if is_tensor(value) or is_numpy_array(value):
            tensors.append(source)

    drew, t.mode.draws = t.mode.draws, False
    count, asked, last = len(t.draws), t.world.changed_reads, t.last_node()
    try:
        with t.world.reads_seen_by(look), t.world.asked_within() as log:
            result = compute()
        changed, drawn = t.world.changed_reads != asked, t.mode.draws or len(t.draws) != count
        noticed = changed or _has_changed(t, log)
        is_told = bool(reads) or changed or any(map(_is_of_contents, log))
        return result, Seen(is_told, drawn, bool(tensors) or t.last_node() is not last, noticed)
    finally:
        t.mode.draws |= drew


_is_length = exactly(LengthSource)
_OF_CONTENTS = frozenset((Kind.LENGTH, Kind.KEYS, Kind.HAS_KEY, Kind.NO_KEY))


def _is_of_contents(asked: Asked) -> bool:
    """Whether it is how many things a container holds, or which; what classes, modules and objects have are theirs."""
    source = asked.source
    if asked.what != "guard" or asked.result not in _OF_CONTENTS or source is None:
        return False
    return not (source.is_held or source.is_members or getattr(source, "name", None) == "__dict__")


def _has_called(t: Tracer) -> bool:
    """Whether the trace put off calls, of which nobody knows who notices them."""
    return bool(t.world.effects_in_order or t.inputs.told)


def _has_changed(t: Tracer, log: list[Asked]) -> bool:
    """Whether the trace has changed a container of which this was asked."""
    changed = {id(one) for record in t.world.changed_copies() for one in (record.real, record.copy)}
    return any(id(one.value) in changed for one in log if one.what in ("whole", "unlike"))


def _may_be_computed_again(t: Tracer, one: Computed) -> bool:
    """Whether results that are equal may stand for one another, as long as none is written nor given away."""
    if consists_of(one.result, COMPARED_IN_C):
        return not (one.reads and has_symbols(one.args, one.kwargs))

    def is_known(leaf: Any) -> bool:
        return type(leaf) in CONSTANTS or is_fake(leaf) or is_symbolic(leaf) or t.world.is_foreign(leaf)

    return not one.reads and all(map(is_known, leaves(one.result)))


def check_computed(t: Tracer, given: Sequence[Any], times_reached: Callable[[Any], int]) -> None:
    """At the end of a trace, which gives back the tensors `given`: fill caches of what depends on more than arguments. No
    result of the others may have been written or be given away, as whoever has it could tell that eager has another one."""
    for one in t.computed:
        if consists_of(one.result, COMPARED_IN_C):
            if one.reads:
                _fill_with(t, one)
        elif _state_of(one.result) != one.state or _is_given_away(one.result, given, times_reached):
            _fill_first(t, one)


def _is_given_away(result: Any, given: Sequence[Any], times_reached: Callable[[Any], int]) -> bool:
    memory = {id(memory_of(one)) for one in given if is_fake(one)}
    parts = list(_with_parts(result))
    if any(id(memory_of(part)) in memory for part in parts if is_fake(part)):
        return True
    return any(times_reached(part) for part in parts if is_mutable_container(part))


def _fill_with(t: Tracer, one: Computed) -> None:
    """Have the cache hold what the trace found."""
    if not _may_be_filled(t, one):
        return
    one.function(*one.args, **one.kwargs)
    kept = kept_result(one.function, one.args, one.kwargs)
    if kept is not NOT_KEPT and not are_same_constants(kept, one.result):
        raise StartAgain


def _fill_first(t: Tracer, one: Computed) -> NoReturn:
    """Start again with the cache filled, as eager would have filled it by now; or leave the call to eager."""
    again = _STARTED_AGAIN.get(one.function, 0) < _MOST_STARTS
    if one.follows or not again or not _may_be_filled(t, one):
        detail = f"{one.function.__qualname__} is cached: eager computes it once, and keeps what it gives"
        advice = "give the function what it reads as arguments, or leave its cache out" if one.reads else ""
        raise BreakBefore(BreakReason("side-effect-call", detail, one.where, advice), one.step)
    _STARTED_AGAIN[one.function] = _STARTED_AGAIN.get(one.function, 0) + 1
    raise StartAgain(functools.partial(one.function, *one.args, **one.kwargs))


def _is_found_once_filled(t: Tracer, one: Computed) -> bool:
    """Whether the cache now holds what the trace computed, which recorded nothing: no other trace is needed to find it."""
    if one.follows or not _may_be_filled(t, one):
        return False
    one.function(*one.args, **one.kwargs)
    return kept_result(one.function, one.args, one.kwargs) is not NOT_KEPT


def _may_be_filled(t: Tracer, one: Computed) -> bool:
    """Whether Python can call the function now, and its cache has room for what it gives."""
    given = (*one.args, *one.kwargs.values())
    real = all(_is_plain(a) and is_told_by_value(a) or t.world.is_foreign(a) and not is_fake(a) for a in given)
    size = one.function.cache_parameters()["maxsize"]
    has_room = size is None or one.function.cache_info().currsize < size
    return real and has_room


def _state_of(result: Any) -> Any:
    """What differs once a result was written."""
    return [(id(part), part._version if is_fake(part) else 0) for part in _with_parts(result)]


def _with_parts(value: Any) -> Iterator[Any]:
    yield value
    if is_container(value):
        for part in parts_of(value):
            yield from _with_parts(part)


def _compute_cached(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Its result where the cache does not hold it: as eager calls may fill the cache, the function may have no effect."""
    cache = t.caches.get(id(function))
    if cache is None:
        made = functools.lru_cache(**function.cache_parameters())(t.reentrant(function.__wrapped__))
        cache = t.caches[id(function)] = (function, made)
    before = t.world.changes() if t.world.is_foreign(function) else None
    if has_symbols(args, kwargs) and t.world.is_foreign(function):  # of one made here, calls and their effects are counted
        result = _call_cached_by_symbols(t, function, args, kwargs)
    else:
        result = t.native(cache[1], *map(t.hashable, args), **{k: t.hashable(v) for k, v in kwargs.items()})
    if before is not None and t.world.changes() != before:
        if function in _HAS_EFFECTS or not _are_known(t, args, kwargs):
            raise _changes_something(function)
        _HAS_EFFECTS.add(function)
        raise StartAgain
    return result


def _are_known(t: Tracer, args: Args, kwargs: Kwargs) -> bool:
    """Whether the arguments are the same in eager."""
    given = [one for one in (*args, *kwargs.values()) if not t.world.is_foreign(one)]
    return all(map(_is_plain, given))


def _is_plain(argument: Any) -> bool:
    """A constant, or a tuple or sizes of such."""
    return consists_of(argument, COMPARED_IN_C) or _is_size(argument) and all(map(_is_plain, argument))


_is_size = exactly(torch.Size)


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
