"""Choose what the forward saves for the backward.

In:     the joint graph's forward nodes that backward reads, and which nodes belong to backward.
Out:    the set of forward nodes to save; what else backward reads, it computes from these.
Holds:  an operator that may not run twice (products, convolutions, reductions, random draws) is never run again.
        Saved bytes and repeated work are a minimum cut of the network built here.
Units:  bytes. Reads on: `cost.py`, `flow.py`.
Source: recomputation as a minimum cut: a value is cut where it is saved, an operator lies beyond the cut if it runs
        again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import fx

from pliant.autograd.partition.cost import FORBIDDEN, can_recompute, recompute_cost, save_cost
from pliant.autograd.partition.flow import UNLIMITED, min_cut

_SOURCE, _SINK = "source", "sink"


def choose_saved(
    needed: Iterable[fx.Node], in_backward: frozenset[fx.Node], kept: frozenset[fx.Node], free: frozenset[fx.Node]
) -> list[fx.Node]:
    """Nodes to save. `kept`: what the forward returns anyway. `free`: inputs that cost nothing to keep (parameters)."""
    network = _Network(in_backward, kept, free)
    network.grow(list(needed))
    return network.solve()


class _Network:
    """Vertices `(node, "in")` and `(node, "out")`; the edge between them is cut if the node is saved."""

    def __init__(self, in_backward: frozenset[fx.Node], kept: frozenset[fx.Node], free: frozenset[fx.Node]) -> None:
        self.in_backward, self.kept, self.free = in_backward, kept, free
        self.saved: dict[fx.Node, None] = {}
        self.edges: list[tuple[Any, Any, int]] = []
        self.seen: dict[fx.Node, None] = {}

    def grow(self, needed: list[fx.Node]) -> None:
        """Add what is needed, and from there back through everything that can run again."""
        for node in needed:
            if not can_recompute(node):
                self.saved[node] = None
        queue = [n for n in needed if n not in self.saved]
        for node in queue:
            self.edges.append(((node, "out"), _SINK, UNLIMITED))
        self.seen.update(dict.fromkeys(queue))
        for node in queue:
            for argument in self._connect(node):
                if argument not in self.seen:
                    self.seen[argument] = None
                    queue.append(argument)

    def _connect(self, node: fx.Node) -> list[fx.Node]:
        """Edges of one node; returns the arguments to look at next."""
        save = save_cost(node, self.kept)
        if not can_recompute(node):
            self.edges.append((_SOURCE, (node, "out"), save))
            return []
        self.edges.append(((node, "in"), (node, "out"), save))
        again = recompute_cost(node, self.in_backward)
        if again:
            self.edges.append((_SOURCE, (node, "in"), again))
        followed = [a for a in node.all_input_nodes if a not in self.saved and a not in self.free]
        for argument in followed:
            self.edges.append(((argument, "out"), (node, "in"), UNLIMITED))
        return followed

    def solve(self) -> list[fx.Node]:
        """The saved nodes: those fixed, and those the cut goes through."""
        total, before = min_cut(self.edges, _SOURCE, _SINK)
        assert total < FORBIDDEN, "backward needs a value that can neither be saved nor computed again"
        for node in self.seen:
            entered = not can_recompute(node) or (node, "in") in before
            if entered and (node, "out") not in before:
                self.saved[node] = None
        return list(self.saved)
