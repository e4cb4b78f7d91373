"""Numbers that vary, given to what takes them only as they are: keys of dicts, NumPy's functions, those of `math` without
expressions.

In:     a dict and a key that the program looks up or stores there; a function and its arguments.
Out:    the key without numbers that vary; a break where they have been many.
Holds:  what a dict has at a key, or what such a function gives, is known of these very numbers alone, so each is a graph. After
        a few the dict is asked, or the function called, between two graphs, which serve all. They are counted for each dict
        from outside, and for each operation on others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.numbers.numpy_scalars import plain_number
from pliant.capture.outside.identity import TracedId
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import leaves
from pliant.capture.value_kinds import exactly, is_symbolic
from pliant.guards.sources import Source, held


def asked_key(t: Tracer, mapping: Any, key: Any) -> Any:
    """The key as one of this dict."""
    if not t.world.needs_guards(mapping):
        _settle_id(t, mapping, key)
        return made_key(t, key)
    refuse_many_keys(t, mapping, key)
    return t.hashable(key)


def made_key(t: Tracer, key: Any) -> Any:
    """The key as one of a dict that the trace has made."""
    _refuse_keys(t, key, _here(t, "dict"))
    return t.hashable(key)


def refuse_many_keys(t: Tracer, mapping: Any, key: Any) -> None:
    """Break if a dict from outside has been asked for many keys of numbers that vary, and this is one."""
    if t.world.needs_guards(mapping):
        _refuse_keys(t, key, t.world.place_of(mapping))
    else:
        _settle_id(t, mapping, key)


def _settle_id(t: Tracer, keys: Any, key: Any) -> None:
    """An `id()` that is looked up among other numbers is the one of now."""
    if _is_id(key) and int in map(type, keys):
        t.world.real_key(key)


_is_id = exactly(TracedId)


def _refuse_keys(t: Tracer, key: Any, place: Source) -> None:
    if _are_many(t, leaves(key), place):
        raise GraphBreak("varying-length", f"a key of `{place.describe()}` is made of sizes that vary", _ADVICE)


_ADVICE = "look it up before the compiled function and pass what was found; or compile with fullgraph=True, once for each key"


def refuse_many(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> None:
    """Break if this call has been captured with many numbers that vary."""
    if _are_many(t, map(plain_number, leaves(args, kwargs)), _here(t, "call")):
        raise GraphBreak("varying-number", f"{getattr(function, '__name__', 'a function')} of a number that varies")


def _here(t: Tracer, what: str) -> Source:
    frame = t.frames[-1]
    return held(frame.code, f"the {what} at {frame.op.offset}")


def _are_many(t: Tracer, values: Iterable[Any], place: Source) -> bool:
    """Whether the place has been given many numbers that vary, and these are some. Of none that only the graph knows."""
    numbers = [one for one in values if is_symbolic(one)]
    if not numbers or not all(one.node.has_hint() for one in numbers):
        return False
    return bool(t.inputs.policy.keys_vary(place, tuple(one.node.hint for one in numbers)))
