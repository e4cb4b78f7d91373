"""Merge nodes that compute the same value.

In:     a functional ATen graph.
Out:    the same graph, later equal nodes replaced by the first; how many went.
Holds:  calls with an effect, random draws and calls that bind an unbacked symbol are never merged. Arguments are equal if type and value are: `1`, `1.0`
        and `True` differ, as do `0.0` and `-0.0`; symbolic numbers are equal if their expressions are the same object.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, cast

import torch
from torch import fx

from pliant.background import give_way
from pliant.graph.passes.purity import binds_symbols, has_effect


def cse(graph: fx.Graph) -> int:
    """Merge equal nodes, in one walk."""
    seen: dict[Hashable, fx.Node] = {}
    removed = 0
    for node in graph.nodes:
        give_way()
        if node.op != "call_function" or has_effect(node.target) or binds_symbols(node):
            continue
        try:
            key = (node.target, _key(node.args), _key(node.kwargs) if node.kwargs else ())
            first = seen.setdefault(key, node)
        except TypeError:  # an argument without a hash
            continue
        if first is not node:
            node.replace_all_uses_with(first)
            graph.erase_node(node)
            removed += 1
    return removed


def _key(value: Any) -> Hashable:
    kind = type(value)
    if kind is fx.Node:
        return cast(Hashable, value)
    if kind in _PLAIN:
        return (kind, value)
    if isinstance(value, (list, tuple)):
        return tuple([v if type(v) is fx.Node else _key(v) for v in value])
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return ("symbol", value.node.expr)
    if isinstance(value, dict):
        return tuple([(k, _key(v)) for k, v in value.items()])
    if kind is float:
        return (float, value, math.copysign(1.0, value)) if value == value else (float, "nan")
    hash(value)
    return cast(Hashable, value)


_PLAIN = (int, bool, str, complex)
