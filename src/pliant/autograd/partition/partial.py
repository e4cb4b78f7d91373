"""The backward of some of a program's results.

In:     a backward graph, and which of its tangents are not given.
Out:    `without(...)`: the graph without what these tangents would be multiplied with; `reads(...)`: what each tangent
        is multiplied with.
Holds:  a backward is linear in its tangents, so what only missing ones lead to is zero and does not run: eager, which
        does not get there, is not told of a division by zero there either.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
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


def reads(graph: fx.Graph, tangents: list[fx.Node], gradients: list[fx.Node]) -> dict[fx.Node, int]:
    """For each node the tangents, as bits, that are combined with what is computed from it."""
    reaching, read = reaching_tangents(graph, tangents), dict[fx.Node, int]()
    given = set(gradients)
    for node in reversed(graph.nodes):
        read[node] = -1 if node in given else 0
        for user in node.users:
            read[node] |= reaching[user] or read[user]
    return read


def reaching_tangents(graph: fx.Graph, tangents: list[fx.Node]) -> dict[fx.Node, int]:
    """For each node the tangents that it depends on, as bits."""
    bits = {node: 1 << number for number, node in enumerate(tangents)}
    for node in graph.nodes:
        if node.op != "output":
            bits[node] = functools.reduce(operator.or_, map(bits.__getitem__, node.all_input_nodes), bits.get(node, 0))
        else:
            bits[node] = 0
    return bits


def without(
    aten: AtenGraph, first_tangent: int, missing: int, reached: list[bool]
) -> tuple[AtenGraph, list[int]] | None:
    """The graph that is given the other tangents only, and which of the placeholders before them it takes.

    None where the tangents cannot be told apart. Gradients to which no given tangent leads are None, or zeros if
    `reached` says that autograd gets there.
    """
    if any(map(binds_symbols, aten.graph.nodes)):
        return None
    pruned = _Pruned(aten.graph, first_tangent, missing, reached)
    if not pruned.run():
        return None
    dce(pruned.graph)
    holders = list(pruned.graph.find_nodes(op="placeholder"))
    kept = [i for i, node in enumerate(holders) if node.users or not isinstance(node.meta["val"], torch.Tensor)]
    kept += [i for i in range(first_tangent, len(holders)) if i not in kept and not missing >> i - first_tangent & 1]
    for i in set(range(len(holders))) - set(kept):
        pruned.graph.erase_node(holders[i])
    held, static = (
        frozenset(new for new, old in enumerate(kept) if old in places)
        for places in (aten.held_inputs, aten.static_inputs)
    )
    name = f"{aten.name}_of_some"
    made = dataclasses.replace(aten, graph=pruned.graph, name=name, held_inputs=held, static_inputs=static)
    return made, [i for i in kept if i < first_tangent]


def _is_dense(value: torch.Tensor) -> bool:
    try:
        return value.is_contiguous()
    except Unsupported:  # sizes would tell, and these may be asked no more
        return False


class _Pruned:
    """A copy of a backward graph in which what the missing tangents lead to is absent."""

    def __init__(self, graph: fx.Graph, first_tangent: int, missing: int, reached: list[bool]) -> None:
        self.old, self.graph, self.reached = graph, fx.Graph(), reached
        tangents = list(graph.find_nodes(op="placeholder"))[first_tangent:]
        self.missing, self.reaching = missing, reaching_tangents(graph, tangents)
        self.copies: dict[fx.Node, fx.Node] = {}

    def run(self) -> bool:
        for node in self.old.nodes:
            if node.op == "output":
                values: Any = node.args[0]
                return self.end(values)
            if node.op == "placeholder" or self.present(node):
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
            zeros = self.zeros(one)
            if zeros is None:
                return False
            self.copies[one] = zeros
        self.copy(node)
        for one in absent:
            del self.copies[one]
        return True

    def end(self, gradients: list[fx.Node]) -> bool:
        values = [self.copies[one] if self.present(one) else None for one in gradients]
        for place, reached in enumerate(self.reached):
            if reached and values[place] is None:
                values[place] = self.zeros(gradients[place])
                if values[place] is None:
                    return False
        self.graph.output(tuple(values))
        return True

    def zeros(self, like: fx.Node) -> fx.Node | None:
        value = like.meta["val"]
        if not isinstance(value, torch.Tensor) or not _is_dense(value):
            return None
        options: dict[str, Any] = {"dtype": value.dtype, "device": value.device}
        made = append_node(self.graph, "call_function", _aten.full.default, (list(value.shape), 0), options, "zeros")
        made.meta = {"val": value, "stage": "backward"}
        return made

    def copy(self, node: fx.Node) -> None:
        args = fx.map_arg(node.args, self.copies.__getitem__)
        kwargs = fx.map_arg(node.kwargs, self.copies.__getitem__)
        self.copies[node] = copy = append_node(self.graph, node.op, node.target, args, kwargs, node.name)
        copy.meta = dict(node.meta)
