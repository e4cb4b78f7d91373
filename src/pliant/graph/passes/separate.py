"""Give each result of a graph memory of its own.

In:     a functional ATen graph with its output node, and which positions of the output must not share memory.
Out:    the same graph with a `clone` wherever such a result lies in the memory of an input or of another result.
Holds:  values are the same; afterwards a caller may write any of these results without changing another one, or an
        input.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import fx

from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.layouts import preserved_strides
from pliant.graph.passes.purity import memory_root
from pliant.graph.tensor_spec import same_known

_aten = torch.ops.aten


def separate(graph: fx.Graph, positions: Iterable[int]) -> None:
    """Insert the clones."""
    output = next(iter(graph.find_nodes(op="output")))
    values: list[Any] = list(output.args[0])
    owned: set[fx.Node] = set()
    end = _epilogue(output)
    for position in positions:
        node = values[position]
        if not isinstance(node, fx.Node) or not isinstance(node.meta.get("val"), torch.Tensor):
            continue
        root = memory_root(node)
        if root.op == "placeholder" or root in owned:
            values[position] = copy_of(graph, end, node)
        owned.add(root)
    output.args = (tuple(values),)


def copy_of(graph: fx.Graph, end: fx.Node, node: fx.Node, dense: bool = False) -> fx.Node:
    """A clone, made before `end`. `dense`: without the gaps between elements that a view has."""
    with graph.inserting_before(end):
        copy = graph.call_function(_aten.clone.default, (node,))
    copy.meta.update(node.meta)
    if dense:
        copy.meta["val"] = _without_gaps(copy.meta["val"])
    return copy


def _without_gaps(fake: FakeTensor) -> FakeTensor:
    strides = preserved_strides(fake.spec)
    if same_known(strides, fake.stride_):
        return fake
    return fake.fake_mode.new(fake.size_, strides, fake.dtype_, fake.device_)


def _epilogue(output: fx.Node) -> fx.Node:
    """The first of the nodes at the end that write inputs; a copy of a value must come before them."""
    node = output
    while node.prev.op == "call_function" and node.prev.target is _aten.copy_.default:
        node = node.prev
    return node
