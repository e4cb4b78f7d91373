"""How often the values of a graph are read.

In:     an ATen graph.
Out:    `count_uses`, `chosen_by`.
Holds:  views are looked through.
"""

from __future__ import annotations

from torch import fx

from pliant.lowering import joining
from pliant.lowering.registry import VIEW_OPS


def count_uses(graph: fx.Graph) -> dict[fx.Node, int]:
    """How many computations read each node."""
    uses: dict[fx.Node, int] = {}
    for node in reversed(graph.nodes):
        total = 0
        for user in node.users:
            through = user.target in VIEW_OPS
            total += uses[user] if through else 1
        uses[node] = total
    return uses


def chosen_by(graph: fx.Graph) -> dict[fx.Node, fx.Node]:
    """Nodes that are read for one value alone, each element of which is one of those that it is put together from: whatever
    parts of the node it reads, each of its elements reads one at most."""
    found: dict[fx.Node, fx.Node] = {}
    for node in reversed(graph.nodes):
        ends: set[fx.Node | None] = set()
        for user in node.users:
            through = user.target in VIEW_OPS or user.target in joining.CHOOSING and user in found
            ends.add(found.get(user) if through else user if user.target in joining.CHOOSING else None)
        (end,) = ends if len(ends) == 1 else (None,)
        if end is not None:
            found[node] = end
    return found
