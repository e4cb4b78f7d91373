"""Write out calls that return several tensors, one computed from another, so that a program can be cut inside them.

In:     a captured program and the positions of such calls in its graph.
Out:    the program with each call as the operators that it is made of, or None where one is not known.
Holds:  the operators do what torch's own call does, in its order.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from pliant.graph.contracts import CapturedGraph
from pliant.graph.late_module import LateModule
from pliant.graph.proxies import proxies


def _lstm_cell(x: Any, hidden: Any, w_ih: Any, w_hh: Any, b_ih: Any = None, b_hh: Any = None) -> tuple[Any, Any]:
    linear = torch.nn.functional.linear
    gates = linear(hidden[0], w_hh, b_hh) + linear(x, w_ih, b_ih)
    parts = torch.chunk(gates, 4, 1)
    entering, forgetting, cell, leaving = (parts[i] for i in range(4))
    state = torch.sigmoid(forgetting) * hidden[1] + torch.sigmoid(entering) * torch.tanh(cell)
    return torch.sigmoid(leaving) * torch.tanh(state), state


_EXPANSIONS: dict[Any, Callable[..., tuple[Any, ...]]] = {torch.lstm_cell: _lstm_cell}


def expanded(captured: CapturedGraph, positions: Iterable[int]) -> CapturedGraph | None:
    """The program with the calls at these positions written out."""
    graph = copy.deepcopy(captured.module.graph)
    nodes = list(graph.nodes)
    for position in positions:
        node = nodes[position]
        expansion = _EXPANSIONS.get(node.target)
        if expansion is None:
            return None
        _replace(graph, node, expansion)
    return dataclasses.replace(captured, module=LateModule(captured.module, graph))


def _replace(graph: fx.Graph, node: fx.Node, expansion: Callable[..., tuple[Any, ...]]) -> None:
    proxy = proxies(graph)
    with graph.inserting_before(node):
        given: Any = (node.args, node.kwargs)
        args, kwargs = fx.map_arg(given, proxy)  # type: ignore[arg-type]
        found = [proxy.node for proxy in expansion(*args, **kwargs)]
    for user in list(node.users):  # the items of its result
        item: Any = user.args[1]
        user.replace_all_uses_with(found[item])
        graph.erase_node(user)
    graph.erase_node(node)
