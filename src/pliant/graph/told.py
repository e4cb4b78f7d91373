"""A graph as rows, for whoever shows it: what each node is, what it reads, and which line of the program it comes from.

In:     an `fx.Graph`, at torch or ATen level.
Out:    `NodeRow`s in order, which hold no tensor; bytes that eager has allocated after each call.
"""

from __future__ import annotations

import operator
from typing import NamedTuple

import torch
from torch import fx
from torch.utils import _pytree as pytree

from pliant.graph.call_plan import plan_of
from pliant.graph.fake_tensor import is_fake
from pliant.graph.printer import line_of
from pliant.source import SourceLocation
from pliant.symbolic.expr import ZERO, Expr
from pliant.symbolic.shape_env import ShapeEnv
from pliant.torch_adapter import OpOverload

_KINDS = {"placeholder": "input", "get_attr": "constant", "output": "output"}  # others are calls


class NodeRow(NamedTuple):
    """One node. kind: input, constant, call or output. reads: names of nodes. of: the call of the captured graph that an
    ATen node comes from, or that it is a derivative of (`is_derivative`). is_view: it lies in the memory of what it reads. where: that call's line."""

    name: str
    kind: str
    text: str
    reads: tuple[str, ...]
    of: str
    is_derivative: bool
    is_view: bool
    where: SourceLocation | None


def node_rows(graph: fx.Graph) -> tuple[NodeRow, ...]:
    """The rows of a graph."""
    return tuple(map(_row, graph.nodes))


def _row(node: fx.Node) -> NodeRow:
    derived = node.meta.get("derivative_of")
    origin = derived or node.meta.get("origin")
    where = origin.meta.get("origin") if isinstance(origin, fx.Node) else origin
    return NodeRow(
        name=node.name,
        kind=_KINDS.get(node.op, "call"),
        text=line_of(node),
        reads=tuple(read.name for read in node.all_input_nodes),
        of=origin.name if isinstance(origin, fx.Node) else "",
        is_derivative=derived is not None,
        is_view=_is_view(node),
        where=where if isinstance(where, SourceLocation) else None,
    )


def allocated_by_eager(graph: fx.Graph, env: ShapeEnv) -> tuple[list[Expr], int]:
    """Bytes that are allocated after each call, where every operator has its own result in memory until its last use; how many
    of the calls are the forward's."""
    owner: dict[fx.Node, fx.Node] = {}
    last: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        owner[node] = owner[node.all_input_nodes[0]] if _is_view(node) else node
        for read in node.all_input_nodes:
            last[owner[read]] = node
    held: dict[fx.Node, Expr] = {}
    found: list[Expr] = []
    forward = 0
    for node in graph.nodes:
        if node.op == "call_function" and owner[node] is node:
            held[node] = _bytes(env, node)
        if node.op == "call_function":
            found.append(sum(held.values(), ZERO))
            forward += node.meta.get("stage") == "forward"
        for done in [one for one in dict.fromkeys(map(owner.__getitem__, node.all_input_nodes)) if last[one] is node]:
            held.pop(done, None)
    return found, forward


def _is_view(node: fx.Node) -> bool:
    """Whether the result lies in the memory of the first node that it reads; `getitem` gives a part of what it reads."""
    if not node.all_input_nodes or node.op != "call_function":
        return False
    if not isinstance(node.target, OpOverload):
        return node.target is operator.getitem
    return plan_of(node.target).views


def _bytes(env: ShapeEnv, node: fx.Node) -> Expr:
    values = [value for value in pytree.tree_leaves(node.meta.get("val")) if isinstance(value, torch.Tensor) and is_fake(value)]
    return sum((env.expr_of(value.spec.storage_bytes()) for value in values), ZERO)
