"""Calls of functions with a cache whose arguments vary: a result that was computed under guards is what the cache gives.

In:     a guard of `Kind.KEPT`; its arguments and result may hold integer expressions.
Out:    the test that fails where the cache holds another result.
Holds:  the function is called, as eager calls it: what its cache lacks, it computes and keeps. Capture has seen that this has
        no effects and reads nothing but what other guards, which come before, have found as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch

from pliant.guards import facts
from pliant.guards.kinds import Guard
from pliant.guards.names import Names


class Writer(Protocol):
    """`codegen.GuardWriter`, of which this is a part."""

    names: Names

    def read(self, source: Any) -> str: ...

    def expression(self, expr: Any) -> str: ...


def test_of(w: Writer, g: Guard) -> str:
    e = g.expected
    call = f"{w.read(g.source)}(*{_text(w, e.args)}, **{_text(w, e.kwargs)})"
    return f"not {w.names(facts.same, 'same')}({call}, {_text(w, e.result)})"


def _text(w: Writer, value: Any) -> str:
    """A new container at each call, of what its parts are then."""
    from pliant.symbolic.expr import Expr

    if isinstance(value, Expr):
        return w.expression(value)
    spell = _CONTAINERS.get(type(value))
    if spell is not None:
        return spell(w, value)
    return repr(value) if type(value) in (int, bool, str, type(None)) else w.names(value)


def _items(w: Writer, values: Any) -> str:
    return "".join(f"{_text(w, one)}, " for one in values)


_CONTAINERS: dict[type, Callable[[Writer, Any], str]] = {
    list: lambda w, value: f"[{_items(w, value)}]",
    tuple: lambda w, value: f"({_items(w, value)})",
    torch.Size: lambda w, value: f"{w.names(torch.Size)}(({_items(w, value)}))",
    dict: lambda w, value: "{" + "".join(f"{_text(w, k)}: {_text(w, one)}, " for k, one in value.items()) + "}",
}
CONTAINERS = frozenset(_CONTAINERS)
