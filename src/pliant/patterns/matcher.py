"""Where a graph has the calls of a pattern.

In:     the pattern's graph, a functional ATen graph.
Out:    `occurrences(...)`: from the pattern's nodes to the graph's, for each way to lay one on the other.
Holds:  in the order of the graph. Calls are of the same operators; operands of a commutative one in either order; nodes that the
        pattern has once are one node. Numbers, sizes and dtypes are not compared unless `exact`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch import fx

from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import key_of

_aten = torch.ops.aten
Laid: TypeAlias = dict[fx.Node, fx.Node]  # a node of the pattern -> a node of the graph

_COMMUTE = frozenset(
    (_aten.add.Tensor, _aten.mul.Tensor, _aten.maximum.default, _aten.minimum.default, _aten.eq.Tensor, _aten.ne.Tensor,
     _aten.logical_and.default, _aten.logical_or.default, _aten.logical_xor.default, _aten.bitwise_and.Tensor,
     _aten.bitwise_or.Tensor, _aten.bitwise_xor.Tensor)
)  # fmt: skip


def occurrences(graph: fx.Graph, outputs: Sequence[fx.Node]) -> Iterator[Laid]:
    """All ways to find what computes the outputs, by the place of the first one."""
    yield from _found(outputs, graph, {}, exact=False)


def is_exactly(outputs: Sequence[fx.Node], places: Sequence[fx.Node], laid: Laid) -> bool:
    """Whether these nodes of a graph are the outputs, down to the numbers, where some nodes are known."""
    found = [laid]
    for output, place in zip(outputs, places, strict=True):
        found = [more for one in found for more in _laid(output, place, one, exact=True)]
    return bool(found)


def _found(outputs: Sequence[fx.Node], graph: fx.Graph, laid: Laid, exact: bool) -> Iterator[Laid]:
    if not outputs:
        yield laid
        return
    first, *rest = outputs
    for node in list(graph.find_nodes(op="call_function", target=first.target)):
        for one in _laid(first, node, laid, exact):
            yield from _found(rest, graph, one, exact)


def _laid(node: fx.Node, other: fx.Node, laid: Laid, exact: bool) -> Iterator[Laid]:
    """The ways to lay a node of the pattern, and what it is computed from, on a node of the graph."""
    if node in laid:
        if laid[node] is other:
            yield laid
        return
    if node.op == "placeholder":
        if type(other.meta.get("val")) is FakeTensor:
            yield {**laid, node: other}
        return
    if other.op != "call_function" or other.target is not node.target or node.kwargs.keys() != other.kwargs.keys():
        return
    names = list(node.kwargs)
    given, found = ([*one.args, *[one.kwargs[name] for name in names]] for one in (node, other))
    orders = [found]
    if node.target in _COMMUTE and len(found) == 2 and all(isinstance(one, fx.Node) for one in found):
        orders.append(found[::-1])
    exact = exact or node.target is operator.getitem
    for order in orders:
        for one in _laid_all(given, order, laid, exact):
            yield {**one, node: other}


def _laid_all(ones: Sequence[Any], others: Sequence[Any], laid: Laid, exact: bool) -> Iterator[Laid]:
    if len(ones) != len(others):
        return
    if not ones:
        yield laid
        return
    for found in _laid_one(ones[0], others[0], laid, exact):
        yield from _laid_all(ones[1:], others[1:], found, exact)


def _laid_one(one: Any, other: Any, laid: Laid, exact: bool) -> Iterator[Laid]:
    if isinstance(one, fx.Node):
        if isinstance(other, fx.Node):
            yield from _laid(one, other, laid, exact)
        return
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and _has_nodes(one):
        yield from _laid_all(one, other, laid, exact)
        return
    if not isinstance(other, fx.Node) and not _has_nodes(other) and (not exact or same(one, other)):
        yield laid


def _has_nodes(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(one, fx.Node) for one in value)


def same(one: Any, other: Any) -> bool:
    """Whether two arguments are the same number, sizes, dtype..."""
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    symbolic = (torch.SymInt, torch.SymFloat, torch.SymBool)
    if isinstance(one, symbolic) or isinstance(other, symbolic):
        return type(one) is type(other) and bool(one.node.expr is other.node.expr)
    if isinstance(one, float):
        return type(other) is float and repr(one) == repr(other)  # zeros have signs
    return type(one) is type(other) and bool(key_of(one) == key_of(other) if type(one) is int else one == other)
