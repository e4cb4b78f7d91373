"""The graph that writes mutated inputs, as compilers of ATen graphs take it.

In:     a `Program`, whose graph returns new values.
Out:    an `AtenGraph` that returns the results alone and ends with `copy_` nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from pliant.autograd.partition.split import choose_layouts, clean
from pliant.exporting.program import USER, Program
from pliant.graph.contracts import AtenGraph
from pliant.graph.passes.purity import memory_root
from pliant.graph.passes.separate import separate
from pliant.torch_adapter import append_node

_aten = torch.ops.aten


def copied(source: fx.Graph) -> tuple[fx.Graph, dict[fx.Node, fx.Node], Any]:
    """A copy of a graph without its output, the copies of its nodes, and what it returns."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    for node in source.nodes:
        if node.op != "output":
            args, kwargs = fx.map_arg(node.args, copies.__getitem__), fx.map_arg(node.kwargs, copies.__getitem__)
            copies[node] = append_node(graph, node.op, node.target, args, kwargs, node.name)
            copies[node].meta = dict(node.meta)
    returned = next(iter(source.find_nodes(op="output"))).args[0]
    return graph, copies, fx.map_arg(returned, copies.__getitem__)


def writing_graph(
    program: Program, optimized: bool = False, prepare: Callable[[fx.Graph], object] | None = None
) -> AtenGraph:
    """A copy of the program's graph. `optimized`: after the passes that compiled code wants. `prepare`: changes it first."""
    graph, copies, results = copied(program.graph)
    if prepare is not None:
        prepare(graph)
    count = len(program.results)
    targets = [copies[program.placeholders[i]] for i in program.mutated]
    _write(graph, targets, list(results[count:]))
    graph.output(tuple(results[:count]))
    first = sum(one.kind != USER for one in program.inputs)
    if optimized:
        clean(graph)
        separate(graph, range(count))
        still = frozenset(i for i in range(first) if not program.inputs[i].mutated)
        choose_layouts(graph, still)
    everything = frozenset(range(len(program.inputs)))
    return AtenGraph(graph, program.shape_env, program.name, everything, frozenset(range(first)))


def _write(graph: fx.Graph, targets: list[fx.Node], values: list[fx.Node]) -> None:
    """A value that lies in an input written before is copied before all writes."""
    written: set[fx.Node] = set()
    kept = []
    for target, value in zip(targets, values, strict=True):
        if memory_root(value) in written:
            clone = graph.call_function(_aten.clone.default, (value,))
            clone.meta = dict(value.meta)
            value = clone
        kept.append(value)
        written.add(target)
    for target, value in zip(targets, kept):
        copy = graph.call_function(_aten.copy_.default, (target, value))
        copy.meta = {"val": target.meta["val"], "stage": "forward"}
