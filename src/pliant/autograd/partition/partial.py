"""The backward of some of a program's results.

In:     a backward graph, and which of its tangents are not given.
Out:    `without(...)`: the graph without what these tangents would be multiplied with; `reads(...)`: what each tangent
        is multiplied with.
Holds:  a backward is linear in its tangents, so what only missing ones lead to is zero and does not run: eager, which
        does not get there, is not told of a division by zero there either.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import fx

from pliant.errors import Unsupported
from pliant.graph.contracts import AtenGraph
from pliant.graph.passes.dce import dce
from pliant.graph.passes.purity import binds_symbols
from pliant.graph.passes.simplify import same_layout
from pliant.torch_adapter import append_node

_aten = torch.ops.aten


def reads(graph: fx.Graph, first_tangent: int) -> list[int]:
    """For each placeholder before the tangents, the tangents that are combined with what is computed from it, as bits."""
    reaching, read = _reaching(graph, first_tangent), dict[fx.Node, int]()
    for node in reversed(graph.nodes):
        found = -1 if any(user.op == "output" for user in node.users) else 0
        for user in node.users:
            found |= reaching[user] or read[user]
        read[node] = found
    return [read[node] for node in list(graph.nodes)[:first_tangent]]


def _reaching(graph: fx.Graph, first_tangent: int) -> dict[fx.Node, int]:
    """For each node the tangents that it depends on, as bits."""
    bits: dict[fx.Node, int] = {}
    for position, node in enumerate(graph.nodes):
        is_tangent = node.op == "placeholder" and position >= first_tangent
        bits[node] = 1 << position - first_tangent if is_tangent else 0
        for argument in node.all_input_nodes:
            bits[node] |= bits[argument]
    return bits


def without(aten: AtenGraph, first_tangent: int, missing: int) -> tuple[AtenGraph, list[int]] | None:
    """The graph that is given the other tangents only, and which of the placeholders before them it takes.

    None where the tangents cannot be told apart. Gradients to which no given tangent leads are None.
    """
    if any(map(binds_symbols, aten.graph.nodes)):
        return None
    pruned = _Pruned(aten.graph, first_tangent, missing)
    if not pruned.run():
        return None
    dce(pruned.graph)
    holders = list(pruned.graph.find_nodes(op="placeholder"))
    kept = [i for i, node in enumerate(holders) if node.users or not isinstance(node.meta["val"], torch.Tensor)]
    kept += [i for i in range(first_tangent, len(holders)) if i not in kept and not missing >> i - first_tangent & 1]
    for i in set(range(len(holders))) - set(kept):
        pruned.graph.erase_node(holders[i])
    held = frozenset(new for new, old in enumerate(kept) if old in aten.held_inputs)
    made = dataclasses.replace(aten, graph=pruned.graph, name=f"{aten.name}_of_some", held_inputs=held)
    return made, [i for i in kept if i < first_tangent]


def _is_dense(value: torch.Tensor) -> bool:
    try:
        return value.is_contiguous()
    except Unsupported:  # sizes would tell, and these may be asked no more
        return False


class _Pruned:
    """A copy of a backward graph in which what the missing tangents lead to is absent."""

    def __init__(self, graph: fx.Graph, first_tangent: int, missing: int) -> None:
        self.old, self.graph = graph, fx.Graph()
        self.missing, self.reaching = missing, _reaching(graph, first_tangent)
        self.copies: dict[fx.Node, fx.Node] = {}

    def run(self) -> bool:
        for node in self.old.nodes:
            if node.op == "output":
                values: Any = node.args[0]
                self.graph.output(tuple(self.copies[v] if self.present(v) else None for v in values))
            elif node.op == "placeholder" or self.present(node):
                absent = [a for a in node.all_input_nodes if not self.present(a)]
                if not absent:
                    self.copy(node)
                elif not self.can_do_without(node, absent):
                    return False
        return True

    def present(self, node: Any) -> bool:
        bits = self.reaching[node] if isinstance(node, fx.Node) else 0
        return isinstance(node, fx.Node) and (not bits or bool(bits & ~self.missing))

    def can_do_without(self, node: fx.Node, absent: list[fx.Node]) -> bool:
        """Copy a node with zeros in place of what is absent; a sum is what is left of it."""
        if node.target is _aten.add.Tensor and not node.kwargs:
            (left,) = [a for a in node.args[:2] if a not in absent]
            if isinstance(left, fx.Node) and same_layout(left.meta["val"], node.meta["val"]):
                self.copies[node] = self.copies[left]
                return True
        for one in absent:
            value = one.meta["val"]
            if not isinstance(value, torch.Tensor) or not _is_dense(value):
                return False
            zeros = self.graph.call_function(
                _aten.full.default, (list(value.shape), 0), {"dtype": value.dtype, "device": value.device}
            )
            zeros.meta = {"val": value, "stage": "backward"}
            self.copies[one] = zeros
        self.copy(node)
        for one in absent:
            del self.copies[one]
        return True

    def copy(self, node: fx.Node) -> None:
        args = fx.map_arg(node.args, self.copies.__getitem__)
        kwargs = fx.map_arg(node.kwargs, self.copies.__getitem__)
        self.copies[node] = copy = append_node(self.graph, node.op, node.target, args, kwargs, node.name)
        copy.meta = dict(node.meta)
