"""Remove nodes whose results nobody uses.

In:     a functional ATen graph.
Out:    the same graph without dead nodes; how many went.
Holds:  placeholders stay; so do calls with an effect, calls that bind an unbacked symbol, and those of the forward that
        may raise.
"""

from __future__ import annotations

from torch import fx

from pliant.graph.passes.purity import binds_symbols, has_effect, may_raise


def dce(graph: fx.Graph) -> int:
    """Remove dead nodes, last first, so that a chain goes at once."""
    removed = 0
    for node in reversed(graph.nodes):
        if node.op in ("call_function", "get_attr") and not node.users and not _needed(node):
            graph.erase_node(node)
            removed += 1
    return removed


def _needed(node: fx.Node) -> bool:
    if node.op != "call_function":
        return binds_symbols(node)
    raises = node.meta.get("stage") == "forward" and may_raise(node)
    return raises or has_effect(node.target) or binds_symbols(node)
