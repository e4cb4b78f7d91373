"""Sizes as keys of dicts.

In:     a dict, a key that the program looks up or stores there.
Out:    the key without numbers that vary; a break where they have been many.
Holds:  what a dict has at a key is known of that key alone, so each size is a graph. After a few the dict is asked between
        two graphs, which serve all sizes. They are counted for each dict from outside, and for each operation on others.
"""

from __future__ import annotations

from typing import Any

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.signatures import Tracer
from pliant.capture.value_kinds import is_symbolic
from pliant.guards.sources import Source, held


def asked_key(t: Tracer, mapping: Any, key: Any) -> Any:
    """The key as one of this dict."""
    if not t.world.needs_guards(mapping):
        return made_key(t, key)
    refuse_many(t, mapping, key)
    return t.hashable(key)


def made_key(t: Tracer, key: Any) -> Any:
    """The key as one of a dict that the trace has made."""
    frame = t.frames[-1]
    _refuse_many(t, key, held(frame.code, f"the dict at {frame.op.offset}"))
    return t.hashable(key)


def refuse_many(t: Tracer, mapping: Any, key: Any) -> None:
    """Break if a dict from outside has been asked for many keys of numbers that vary, and this is one."""
    if t.world.needs_guards(mapping):
        _refuse_many(t, key, t.world.source_of(mapping))


def _refuse_many(t: Tracer, key: Any, source: Source | None) -> None:
    parts = tuple.__iter__(key) if isinstance(key, tuple) else (key,)
    numbers = [one for one in parts if is_symbolic(one)]
    if numbers and source is not None and all(one.node.has_hint() for one in numbers):
        if t.inputs.policy.keys_vary(source, tuple(one.node.hint for one in numbers)):
            raise GraphBreak("varying-length", f"a key of `{source.describe()}` is made of sizes that vary", _ADVICE)


_ADVICE = "look it up before the compiled function and pass what was found; or compile with fullgraph=True, once for each key"
