"""Sizes as keys of dicts from outside.

In:     a dict that existed before the trace, a key that the program looks up or stores there.
Out:    the key without numbers that vary; a break where they have been many.
Holds:  what a dict has at a key is known of that key alone, so each size is a graph. After a few the dict is asked between
        two graphs, which serve all sizes.
"""

from __future__ import annotations

from typing import Any

from pliant.capture.graph_breaks import GraphBreak
from pliant.capture.signatures import Tracer
from pliant.capture.value_kinds import is_symbolic


def asked_key(t: Tracer, mapping: Any, key: Any) -> Any:
    """The key as one of this dict."""
    refuse_many(t, mapping, key)
    return t.hashable(key)


def refuse_many(t: Tracer, mapping: Any, key: Any) -> None:
    """Break if a dict from outside has been asked for many keys of numbers that vary, and this is one."""
    parts = tuple.__iter__(key) if isinstance(key, tuple) else (key,)
    numbers = [one for one in parts if is_symbolic(one)]
    if numbers and t.world.needs_guards(mapping) and all(one.node.has_hint() for one in numbers):
        source = t.world.source_of(mapping)
        values = tuple(one.node.hint for one in numbers)
        if source is not None and t.inputs.policy.keys_vary(source, values):
            raise GraphBreak("varying-length", f"a key of `{source.describe()}` is made of sizes that vary", _ADVICE)


_ADVICE = "look it up before the compiled function and pass what was found; or compile with fullgraph=True, once for each key"
