"""Functions on lists of tensors that do the same for each place of the lists, as those behind optimizers do.

In:     a function, and arguments of which some are lists of tensors, all equally long.
Out:    the function interpreted for the first place of each kind of tensors; its nodes are copied for the others.
Holds:  the graph is the one that interpreting each place would give, kind by kind; the places share no tensor.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.structures import is_several
from pliant.capture.value_kinds import is_symbolic
from pliant.graph.fake_tensor import FakeTensor, is_fake
from pliant.torch_adapter import DisableTorchFunction, append_node, below_python_dispatch

Row = tuple[FakeTensor, ...]


def inline_by_rows(t: Tracer, function: Any, args: Args, kwargs: Kwargs) -> Any:
    """Interpret a function that returns nothing, once for each kind of rows where that can be told, else as it is."""
    lists = {k: _listed(t, a) for k, a in (*enumerate(args), *kwargs.items()) if is_several(a)}
    columns = {k: column for k, column in lists.items() if column}
    rows = list(zip(*columns.values()))
    if len({len(column) for column in columns.values()}) != 1 or len(rows) < 2 or not _independent(t, rows):
        return t.inline(function, args, kwargs)
    kinds: dict[Any, list[Row]] = {}
    for row in rows:
        kinds.setdefault(tuple(map(_kind, row)), []).append(row)

    def interpret(row: Row) -> None:
        single = {k: [tensor] for k, tensor in zip(columns, row)}
        given = tuple([single.get(k, a) for k, a in enumerate(args)])
        t.inline(function, given, {k: single.get(k, v) for k, v in kwargs.items()})

    for first, *others in kinds.values():
        template = _Template(t, first)
        interpret(first)
        if not template.finish():
            for row in others:
                interpret(row)
        else:
            template.copy(others)
    return None


def _listed(t: Tracer, value: Any) -> list[Any]:
    return [t.internalize(one) for one in t.sequence(value)]


def _independent(t: Tracer, rows: list[tuple[Any, ...]]) -> bool:
    """Whether no row reads what another writes, and none is known by its value."""
    tensors = [one for row in rows for one in row]
    if torch.is_grad_enabled() or t.recorder.overrides.has_subclasses or t.recorder.region is not None:
        return False
    if len(set(map(id, tensors))) < len(tensors):
        return False
    constants = t.recorder.elements.constants
    return all(is_fake(one) and constants.of(one) is None and not one._is_view() for one in tensors)


def _kind(fake: FakeTensor) -> Any:
    """Equal for tensors on which the function does the same."""
    sizes = [size.node.expr if is_symbolic(size) else size for size in (*fake.size_, *fake.stride_, fake.offset_)]
    flags = fake.is_parameter_, fake.requires_grad, fake.is_leaf, fake.is_inference()
    return (*sizes, len(fake.size_), fake.dtype_, fake.device_, fake.layout, *flags)


class _Template:
    """The nodes that the first row of a kind recorded."""

    def __init__(self, t: Tracer, row: Row) -> None:
        self.recorder, self.row = t.recorder, row
        self.graph: fx.Graph = t.recorder.graph
        self.given = [t.recorder.node_of(one) for one in row]
        self.last = next(iter(reversed(self.graph.nodes)))
        self.versions = self._versions()
        self.nodes: list[fx.Node] = []

    def _versions(self) -> list[int]:
        return [-1 if one.is_inference() else one.writes_ for one in self.row]

    def finish(self) -> bool:
        """Collect the nodes; False if one of them does more than compute from the row, or write it."""
        node = self.last.next
        own = set(self.given)
        while node.op != "root":
            if node.op in ("call_function", "call_method") and not own.isdisjoint(node.all_input_nodes):
                if not is_fake(node.meta.get("val")) or "made" in node.meta:
                    return False
                self.nodes.append(node)
                own.add(node)
            elif is_fake(node.meta.get("val")) and node.op != "placeholder":
                return False
            node = node.next
        return True

    def copy(self, rows: list[Row]) -> None:
        written = [k for k, (now, before) in enumerate(zip(self._versions(), self.versions)) if now != before]
        for row in rows:
            copies = dict(zip(self.given, map(self.recorder.node_of, row)))

            def copied(node: fx.Node, copies: dict[fx.Node, fx.Node] = copies) -> fx.Node:
                return copies.get(node, node)

            for node in self.nodes:
                args, kwargs = fx.map_arg(node.args, copied), fx.map_arg(node.kwargs, copied)
                made = append_node(self.graph, node.op, node.target, args, kwargs, node.name)
                made.meta = dict(node.meta)
                copies[node] = made
        self.recorder.count += len(rows) * len(self.nodes)
        with DisableTorchFunction(), below_python_dispatch():
            torch.autograd.graph.increment_version([row[k] for row in rows for k in written])
