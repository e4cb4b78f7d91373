"""Reductions of segments in a form whose kernel checks where the segments are.

In:     a finished graph.
Out:    the same graph, in which segments are told by their lengths, which the kernel compares with the data. Offsets are places in
        memory that no kernel checks, so files may not have them.
Holds:  results are those of the offsets: what lies before the first and behind the last are segments of their own, left out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from pliant.exporting.decompositions import Building

_aten = torch.ops.aten
_reduce, _derivative = _aten.segment_reduce.default, _aten._segment_reduce_backward.default


def tell_lengths(graph: fx.Graph) -> None:
    """Have every reduction of segments, and its derivative, take lengths that are checked."""
    forward: dict[fx.Node, fx.Node] = {}  # by the result of offsets the one of lengths, which has two segments more
    for node in list(graph.find_nodes(op="call_function", target=_reduce)):
        if node.kwargs.get("offsets") is None:
            node.kwargs = {**node.kwargs, "unsafe": False}
        else:
            forward[node] = _of_lengths(Building(graph, node), node)
    for node in list(graph.find_nodes(op="call_function", target=_derivative)):
        if node.args[1] in forward:
            _derivative_of_lengths(Building(graph, node), node, forward[node.args[1]])
    for node in forward:
        graph.erase_node(node)


def _axis(node: fx.Node) -> int:
    axis: Any = node.kwargs.get("axis", 0)
    return int(axis)


def _of_lengths(g: Building, node: fx.Node) -> fx.Node:
    data, offsets, axis = node.args[0], node.kwargs["offsets"], _axis(node)
    size = data.meta["val"].size_[axis]  # type: ignore[union-attr]
    first, last = g(_aten.slice.Tensor, offsets, axis, 0, 1), g(_aten.slice.Tensor, offsets, axis, -1)
    each = g(_aten.sub.Tensor, g(_aten.slice.Tensor, offsets, axis, 1), g(_aten.slice.Tensor, offsets, axis, 0, -1))
    lengths = g(_aten.cat.default, [first, each, g(_aten.rsub.Scalar, last, size)], axis)
    kwargs = {name: value for name, value in node.kwargs.items() if name != "offsets"}
    full = g(_reduce, *node.args, **{**kwargs, "lengths": lengths, "unsafe": False})
    found = g(_aten.clone.default, g(_aten.slice.Tensor, full, axis, 1, -1), memory_format=torch.contiguous_format)
    node.replace_all_uses_with(found, delete_user_cb=lambda user: user.target is not _derivative)
    return full


def _derivative_of_lengths(g: Building, node: fx.Node, full: fx.Node) -> None:
    """Segments that are left out have no gradient, whatever their elements are."""
    grad, _, data, *rest = node.args
    offsets, axis, lengths = node.kwargs["offsets"], _axis(node), full.kwargs["lengths"]
    none = g(_aten.zeros_like.default, g(_aten.slice.Tensor, full, axis, 0, 1))
    wide = g(_aten.cat.default, [none, grad, none], axis)
    kwargs = {name: value for name, value in node.kwargs.items() if name not in ("offsets", "lengths")}
    made = g(_derivative, wide, full, data, *rest, **kwargs, lengths=lengths)
    described = data.meta["val"]  # type: ignore[union-attr]
    places = g(_aten.arange.default, described.size_[axis], device=described.device_)
    inside = g(_aten.logical_and.default, g(_aten.ge.Tensor, places, g(_aten.slice.Tensor, offsets, axis, 0, 1)),
               g(_aten.lt.Tensor, places, g(_aten.slice.Tensor, offsets, axis, -1)))  # fmt: skip
    for _ in range(described.dim() - axis - 1):
        inside = g(_aten.unsqueeze.default, inside, -1)
    found = g(_aten.where.self, inside, made, g(_aten.zeros_like.default, made))
    node.replace_all_uses_with(found)
    g.graph.erase_node(node)
