"""Remove nodes whose results nobody uses.

In:     a functional ATen graph.
Out:    the same graph without dead nodes; how many went.
Holds:  placeholders stay; so do calls with an effect, and calls that bind an unbacked symbol.
"""

from __future__ import annotations

from torch import fx

from pliant.graph.passes.purity import binds_symbols, has_effect


def dce(graph: fx.Graph) -> int:
    """Remove dead nodes, last first, so that a chain goes at once."""
    removed = 0
    for node in reversed(graph.nodes):
        if node.op in ("call_function", "get_attr") and not node.users and not _needed(node):
            graph.erase_node(node)
            removed += 1
    return removed


def _needed(node: fx.Node) -> bool:
    return node.op == "call_function" and has_effect(node.target) or binds_symbols(node)
