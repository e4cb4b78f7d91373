"""Add products up where the library writes them, instead of keeping each until all are there.

In:     a functional ATen graph.
Out:    the same graph: `add(mm(a, b), mm(c, d))` is `addmm(mm(a, b), c, d)`, both seen through the same views.
Holds:  products that anything else reads stay; sizes, strides and dtypes of sums are unchanged. A sum over time steps,
        such as a recurrent layer's weight gradient, then takes the memory of one product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from pliant.graph.passes.purity import is_view
from pliant.graph.passes.simplify import same_layout
from pliant.torch_adapter import append_node

_aten = torch.ops.aten
_MM, _ADDMM = _aten.mm.default, _aten.addmm.default


def add_up_products(graph: fx.Graph) -> int:
    """Rewrite the sums, in one walk; how many."""
    order = {node: position for position, node in enumerate(graph.nodes)}
    return sum(_rewrite(graph, node, order) for node in graph.find_nodes(op="call_function", target=_aten.add.Tensor))


def _rewrite(graph: fx.Graph, total: fx.Node, order: dict[fx.Node, int]) -> bool:
    one, other = total.args[0], total.args[1]
    if total.kwargs or not isinstance(one, fx.Node) or not isinstance(other, fx.Node) or one is other:
        return False
    if not (same_layout(one.meta["val"], other.meta["val"]) and same_layout(total.meta["val"], one.meta["val"])):
        return False
    early, late = sorted((_seen_through(one), _seen_through(other)), key=lambda path: order.get(path[-1], -1))
    if not _can_add(early, late):
        return False
    with graph.inserting_before(total):
        value = graph.call_function(_ADDMM, (early[-1], *late[-1].args))
        value.meta.update(late[-1].meta)
        order[value] = order[total]
        for view in late[-2::-1]:
            value = _view_of(graph, value, view)
    total.replace_all_uses_with(value)
    for dead in (total, *early[:-1], *late):
        graph.erase_node(dead)
    return True


def _view_of(graph: fx.Graph, source: fx.Node, like: fx.Node) -> fx.Node:
    view = append_node(graph, like.op, like.target, (source, *like.args[1:]), like.kwargs, like.name)
    view.meta.update(like.meta)
    return view


def _seen_through(node: fx.Node) -> list[fx.Node]:
    """The node, what it is a view of, and so on, as long as nothing else reads these."""
    path = [node]
    while is_view(node.target) and len(node.all_input_nodes) == 1 and len(node.users) == 1:
        node = node.all_input_nodes[0]
        path.append(node)
    return path


def _can_add(early: list[fx.Node], late: list[fx.Node]) -> bool:
    """Whether `late` ends in a product that can be added to the product, or the sum of products, that `early` ends in."""
    sum_so_far, product = early[-1], late[-1]
    if product.target is not _MM or sum_so_far.target not in (_MM, _ADDMM) or sum_so_far.kwargs:
        return False
    if any(len(node.users) != 1 for node in (*early, *late)):
        return False
    if not product.meta["val"].dtype.is_floating_point:
        return False
    return same_layout(product.meta["val"], sum_so_far.meta["val"]) and _steps(early) == _steps(late)


def _steps(path: list[fx.Node]) -> list[Any]:
    return [(node.target, [a for a in node.args if not isinstance(a, fx.Node)], node.kwargs) for node in path[:-1]]
