"""A call captured as one graph, or an error that names the line.

In:     a callable, its arguments, which of their sizes are symbols.
Out:    a `Trace` that ends with a return.
Holds:  what would break the graph is the `GraphBreakError` that `compile(fullgraph=True)` raises there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pliant.capture.attempt import trace
from pliant.capture.graph_breaks import KINDS, CannotCapture
from pliant.capture.trace import BreakReason, Trace
from pliant.dispatch.dynamic_policy import DynamicPolicy
from pliant.dispatch.roots import CallableRoot
from pliant.errors import GraphBreakError


def whole(fn: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], policy: DynamicPolicy) -> Trace:
    """The trace of `fn(*args, **kwargs)`."""
    try:
        traced = trace(CallableRoot(fn), args, dict(kwargs), policy)
    except CannotCapture as stop:
        raise break_error(stop.reason) from None
    if traced.end.reason is not None:
        raise break_error(traced.end.reason)
    return traced


def break_error(reason: BreakReason) -> GraphBreakError:
    kind = KINDS[reason.kind]
    return GraphBreakError(reason.detail, kind=kind.id, where=reason.location, why=kind.why, do=reason.do or kind.do)
