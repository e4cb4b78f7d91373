"""Choose what the forward saves for the backward.

In:     the joint graph's forward nodes that backward reads, and which nodes belong to backward; a budget.
Out:    the set of forward nodes to save; what else backward reads, it computes from these.
Holds:  random draws are never run again; products, convolutions and reductions only inside an activation checkpoint
        or below a budget of 1. Saved bytes and repeated work are a minimum cut of the network built here.
Budget: work counts the less the more bytes must go. Bytes saved fall with it: between any two such weights the cut
        with the smaller one saves no more.
Units:  bytes. Reads on: `cost.py`, `flow.py`.
Source: recomputation as a minimum cut: a value is cut where it is saved, an operator lies beyond the cut if it runs
        again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import fx

from pliant.autograd.partition.cost import FORBIDDEN, Prices, size_in_bytes
from pliant.autograd.partition.flow import UNLIMITED, min_cut
from pliant.background import give_way

_SOURCE, _SINK = "source", "sink"
_WEIGHTS = [0.0, *[2.0**power for power in range(-24, 9)]]  # of work against bytes


def choose_saved(
    needed: Iterable[fx.Node],
    in_backward: frozenset[fx.Node],
    kept: frozenset[fx.Node],
    free: frozenset[fx.Node],
    budget: float = 1.0,
) -> list[fx.Node]:
    """Nodes to save. `kept`: what there is anyway, results and inputs. `free`: inputs that cost nothing to keep (parameters).

    `budget`: which part of the bytes between the least possible and the usual choice may be saved.
    """
    needed = list(needed)

    def solve(weight: float | None) -> tuple[int, list[fx.Node]]:
        network = _Network(Prices(in_backward, kept, weight), free)
        network.grow(needed)
        saved = network.solve()
        return sum(_bytes(node, kept) for node in saved), saved

    most, usual = solve(None)
    if budget >= 1.0:
        return usual
    least, found = solve(0.0)
    allowed = least + budget * max(most - least, 0)
    low, high = 0, len(_WEIGHTS)
    while high - low > 1:  # the largest weight whose choice keeps to the budget
        middle = (low + high) // 2
        used, saved = solve(_WEIGHTS[middle])
        if used <= allowed:
            low, found = middle, saved
        else:
            high = middle
    return found


def _bytes(node: fx.Node, kept: frozenset[fx.Node]) -> int:
    return 0 if node in kept else size_in_bytes(node.meta.get("val"))


class _Network:
    """Vertices `(node, "in")` and `(node, "out")`; the edge between them is cut if the node is saved."""

    def __init__(self, prices: Prices, free: frozenset[fx.Node]) -> None:
        self.prices, self.free = prices, free
        self.saved: dict[fx.Node, None] = {}
        self.edges: list[tuple[Any, Any, int]] = []
        self.seen: dict[fx.Node, None] = {}

    def grow(self, needed: list[fx.Node]) -> None:
        """Add what is needed, and from there back through everything that can run again."""
        for node in needed:
            if not self.prices.may_run_again(node):
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
        give_way()
        save = self.prices.save(node)
        if not self.prices.may_run_again(node):
            self.edges.append((_SOURCE, (node, "out"), save))
            return []
        self.edges.append(((node, "in"), (node, "out"), save))
        again = self.prices.again(node)
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
            entered = not self.prices.may_run_again(node) or (node, "in") in before
            if entered and (node, "out") not in before:
                self.saved[node] = None
        return list(self.saved)
