"""Reads of a part of a tensor that another part was written into, made reads of what was written or of what was there before.

In:     a functional ATen graph.
Out:    the same graph; how many reads changed.
Holds:  values are unchanged, and of what is left sizes and strides, but for those of a part that is only written on.
        A tensor that a program puts together part by part (a circular pad copies its own edges) is then read once it is
        whole, and its parts are chosen in one loop; before, each write was a copy of all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.simplify import same_layout

_aten = torch.ops.aten
_SLICE, _SELECT = _aten.slice.Tensor, _aten.select.int
_WRITES: dict[Any, Any] = {_aten.slice_scatter.default: _SLICE, _aten.select_scatter.default: _SELECT}
_Part = tuple[int, int, int]  # dimension, begin, end
_Write = tuple[fx.Node, _Part]


def read_what_was_written(graph: fx.Graph) -> int:
    """Change the graph's reads."""
    writes: dict[fx.Node, _Write | None] = {}
    changed = 0
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in _READS:
            changed += _looks_through(graph, node, writes)
    return changed


def _looks_through(graph: fx.Graph, node: fx.Node, writes: dict[fx.Node, _Write | None]) -> bool:
    """Whether the node reads something else now. `writes`: those that were met before, of which each read may pass many."""
    part = _READS[node.target](node, node.args[1:])
    first: Any = node.args[0]
    source = first
    while part is not None:
        if source not in writes:
            writes[source] = _write(source)
        if (found := writes[source]) is None or found[1][0] != part[0]:
            break
        into, written = found
        if part[1] >= written[1] and part[2] <= written[2]:
            if _moved(graph, node, source, source.args[1], part[1] - written[1]):
                return True
            break
        if part[1] < written[2] and written[1] < part[2]:
            break
        source = into
    if source is first or not same_layout(source.meta["val"], first.meta["val"]):
        return False
    node.replace_input_with(first, source)
    return True


def _write(node: fx.Node) -> _Write | None:
    """What a node writes a part of; None if it does not, or of what is not known."""
    if node.op != "call_function" or node.target not in _WRITES:
        return None
    into: Any = node.args[0]
    written = _READS[_WRITES[node.target]](node.args[1], node.args[2:], into)
    return None if written is None else (into, written)


def _moved(graph: fx.Graph, node: fx.Node, write: fx.Node, new: fx.Node, start: int) -> bool:
    """Have what reads `node` read that part of the written value instead."""
    if not all(user.target in _WRITES and user.args[0] is not node for user in node.users):
        return False  # its layout may matter
    if write.target is _aten.select_scatter.default:
        if node.target is not _SELECT:
            return False
        node.replace_all_uses_with(new)
        graph.erase_node(node)
        return True
    dim: Any = node.args[1] if len(node.args) > 1 else 0
    place = (start,) if node.target is _SELECT else (start, start + node.meta["val"].size_[dim])
    val = new.meta["val"]
    node.args = (new, dim, *place)
    node.meta["val"] = val.fake_mode.compute(node.target, [val, dim, *place], {})
    return True


def _sliced(node: fx.Node, args: tuple[Any, ...], whole: fx.Node | None = None) -> _Part | None:
    """Which part a slice is, if that is known; `node` has its size, `whole` is what it is of."""
    defaults: tuple[Any, ...] = (0, 0, None, 1)
    dim, start, _, step = (*args, *defaults[len(args) :])
    of, own = _value(node.args[0] if whole is None else whole), _value(node)
    if of is None or own is None or step != 1:
        return None
    size, length = of.size_[dim], own.size_[dim]
    start = 0 if start is None else start
    if not all(type(n) is int for n in (size, length, start)):
        return None
    begin = min(max(start + size * (start < 0), 0), size)
    return dim % len(of.size_), begin, begin + length


def _selected(node: fx.Node, args: tuple[Any, ...], whole: fx.Node | None = None) -> _Part | None:
    """The same of one place along a dimension."""
    dim, place = args
    of = _value(node.args[0] if whole is None else whole)
    if of is None or type(place) is not int or type(of.size_[dim]) is not int:
        return None
    begin = place % of.size_[dim]
    return dim % len(of.size_), begin, begin + 1


def _value(node: Any) -> FakeTensor | None:
    val = node.meta.get("val") if isinstance(node, fx.Node) else None
    return val if type(val) is FakeTensor else None


_READS: dict[Any, Callable[..., _Part | None]] = {_SLICE: _sliced, _SELECT: _selected}
