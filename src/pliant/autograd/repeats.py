"""Parts of a program that are equal but for the tensors they work on, as an optimizer's step has one for each parameter.

In:     a `CapturedGraph`.
Out:    `Repeats`: groups of such parts, each as one program and the inputs of every part, and the rest of the program.
Holds:  a part shares with others only numbers and inputs that nobody writes, all its results are writes of inputs, and
        no gradient passes through it: so the parts may run in any order, before or after the rest.
Method: the connected parts of the graph, once numbers and inputs that are only read no longer count as connections.
Reads on: `repeated.py`, which compiles one part of each group.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from pliant.autograd.aliasing import UnsupportedAliasing, check_overlap
from pliant.autograd.program_keys import Unkeyed, argument_key, input_key
from pliant.graph.contracts import CapturedGraph
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.late_module import LateModule
from pliant.graph.unbacked import CHECKS
from pliant.records import dataclass
from pliant.torch_adapter import set_grad_enabled

LEAST_PARTS = 4  # fewer equal parts are compiled as they are
LEAST_NODES = 64  # what compiling a part of its own costs, in nodes of the graph

_set_grad = set_grad_enabled


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Equal parts. `program`: the first one; its inputs are tensors, then numbers. `rows`: for each part, where the
    tensors are among the whole program's inputs. `numbers`: where the numbers are, the same for all."""

    program: CapturedGraph
    rows: list[list[int]]
    numbers: list[int]


@dataclass(frozen=True, slots=True, eq=False)
class Repeats:
    """The groups and the rest, with where its inputs are; None if it does nothing."""

    groups: list[Group]
    rest: tuple[CapturedGraph, list[int]] | None


def find_repeats(captured: CapturedGraph) -> Repeats | None:
    """The repeated parts of a program, if it has enough of them."""
    if len(captured.module.graph.nodes) < LEAST_NODES or captured.attributes.get("draws"):
        return None
    if captured.shape_env.has_unbacked or captured.attributes.get("moved_inputs"):
        return None
    return _Finder(captured).run()


class _Finder:
    """`part_of`: the first node of the part, by union and find. `grad`: whether gradients are recorded at a node."""

    def __init__(self, captured: CapturedGraph) -> None:
        self.captured = captured
        self.nodes = list(captured.module.graph.nodes)
        places = [node for node in self.nodes if node.op == "placeholder"]
        self.place = {node: i for i, node in enumerate(places)}
        self.numbers = {n for n, one in zip(places, captured.inputs) if one.kind == "symbol"}
        # Writes through `.data` are not counted.
        unknown = any(node.target is getattr for node in self.nodes)
        self.written = set(places) - self.numbers if unknown else {places[i] for i in captured.written_inputs()}
        self.part_of: dict[fx.Node, fx.Node] = {}
        self.grad: dict[fx.Node, bool] = {}

    def run(self) -> Repeats | None:
        if not self.written or not self._connect():  # a part does nothing but write
            return None
        parts: dict[fx.Node, list[fx.Node]] = {}
        for node in self.grad:
            parts.setdefault(self._root(node), []).append(node)
        kinds: dict[Any, list[_Part]] = {}
        for nodes in parts.values():
            part = self._part(nodes)
            if part is not None:
                kinds.setdefault((part.key, part.grad), []).append(part)
        chosen = [k for k in kinds.values() if len(k) >= LEAST_PARTS and (len(k) - 1) * len(k[0].nodes) >= LEAST_NODES]
        if not chosen or not self._separate(chosen):
            return None
        return Repeats(
            [self._group(one) for one in chosen], self._rest({n for k in chosen for p in k for n in p.nodes})
        )

    # -- connections --------------------------------------------------------------------------------------------------
    def _connect(self) -> bool:
        """Find the parts; False if the program changes a state that the order of its operators matters for."""
        grad = self.captured.grad_enabled
        for node in self.nodes:
            if node.target is _set_grad:
                grad = bool(node.args[0])
            elif node.op.startswith("call_") and not self._is_number(node):
                if node.op == "call_module" or not _is_plain(node):
                    return False
                self.grad[node] = grad
                self._root(node)  # a part by itself until something connects it
                for one in node.all_input_nodes:
                    if one in self.part_of or one in self.written:
                        self._join(node, one)
        return True

    def _is_number(self, node: fx.Node) -> bool:
        """Whether the node computes a number from numbers; such nodes belong to every part that reads them."""
        given = node.all_input_nodes
        if not given or not all(one in self.numbers for one in given) or isinstance(node.meta.get("val"), torch.Tensor):
            return False
        self.numbers.add(node)
        return True

    def _root(self, node: fx.Node) -> fx.Node:
        parent = self.part_of.setdefault(node, node)
        while parent is not node:
            self.part_of[node] = grandparent = self.part_of[parent]
            node, parent = parent, grandparent
        return node

    def _join(self, one: fx.Node, other: fx.Node) -> None:
        self.part_of[self._root(one)] = self._root(other)

    # -- parts --------------------------------------------------------------------------------------------------------
    def _part(self, nodes: list[fx.Node]) -> _Part | None:
        grad = self.grad[nodes[0]]
        if any(self.grad[n] is not grad or any(user.op == "output" for user in n.users) for n in nodes):
            return None
        part = _Part(self, grad)
        return part if all(map(part.add, nodes)) else None

    def _separate(self, chosen: list[list[_Part]]) -> bool:
        """Whether nothing else lies in the memory that the parts write."""
        written = {self.place[t] for kind in chosen for part in kind for t in part.tensors if t in self.written}
        try:
            check_overlap(self.captured.inputs, written)
        except UnsupportedAliasing:
            return False
        return True

    # -- programs -----------------------------------------------------------------------------------------------------
    def _group(self, parts: list[_Part]) -> Group:
        first = parts[0]
        numbers = [node for node in self.place if node in self._needed(first.nodes) and node in self.numbers]
        program = self._program([*first.tensors, *numbers], first.nodes, (), first.grad)
        rows = [[self.place[node] for node in part.tensors] for part in parts]
        return Group(program, rows, [self.place[node] for node in numbers])

    def _rest(self, taken: set[fx.Node]) -> tuple[CapturedGraph, list[int]] | None:
        nodes = [node for node in self.nodes if node.op not in ("placeholder", "output") and node not in taken]
        outputs: Any = self.nodes[-1].args[0]
        if not outputs and not any(node in self.grad for node in nodes):
            return None
        needed = self._needed(nodes) | set(self.nodes[-1].all_input_nodes)
        inputs = [node for node in self.place if node in needed]
        program = self._program(inputs, nodes, outputs, self.captured.grad_enabled)
        return program, [self.place[node] for node in inputs]

    def _needed(self, nodes: list[fx.Node]) -> set[fx.Node]:
        """What the nodes read, also through numbers."""
        found = {one for node in nodes for one in node.all_input_nodes}
        queue = [one for one in found if one in self.numbers]
        for number in queue:
            queue += [one for one in number.all_input_nodes if one not in found]
            found.update(number.all_input_nodes)
        return found

    def _program(self, inputs: list[fx.Node], nodes: list[fx.Node], outputs: Any, grad: bool) -> CapturedGraph:
        graph, whole = fx.Graph(), self.captured
        copies = {node: graph.placeholder(node.name) for node in inputs}
        for node, copy in copies.items():
            copy.meta.update(node.meta)

        def copied(node: fx.Node) -> fx.Node:
            if node not in copies:
                for argument in node.all_input_nodes:
                    copied(argument)
                copies[node] = graph.node_copy(node, copies.__getitem__)
            return copies[node]

        for node in nodes:
            copied(node)
        graph.output(fx.map_arg(outputs, copied))
        given = [whole.inputs[self.place[node]] for node in inputs]
        return CapturedGraph(LateModule(whole.module, graph), given, whole.shape_env, whole.name, grad)


class _Part:
    """One part: its nodes, the tensors it takes in the order of their first use, and `key`, equal for equal parts."""

    def __init__(self, finder: _Finder, grad: bool) -> None:
        self.finder, self.grad = finder, grad
        self.nodes: list[fx.Node] = []
        self.tensors: list[fx.Node] = []
        self.known: dict[fx.Node, int] = {}
        self.items: list[Any] = []

    @property
    def key(self) -> tuple[Any, ...]:
        return tuple(self.items)

    def add(self, node: fx.Node) -> bool:
        """Whether the node is one that a part may have."""
        try:
            self.items += [argument_key(node.target, self._of_node), argument_key(node.args, self._of_node)]
            self.items += [(name, argument_key(value, self._of_node)) for name, value in node.kwargs.items()]
        except Unkeyed:
            return False
        self.known[node] = len(self.known)
        self.nodes.append(node)
        return True

    def _of_node(self, node: fx.Node) -> Any:
        found = node if node in self.finder.numbers else self.known.get(node)
        if found is not None:
            return found
        fake = node.meta.get("val")
        if node.op != "placeholder" or type(fake) is not FakeTensor:
            raise Unkeyed(node.op)
        self.known[node] = len(self.known)
        self.tensors.append(node)
        one = self.finder.captured.inputs[self.finder.place[node]]
        described = one.example if isinstance(one.example, torch.Tensor) else fake
        if not all(type(size) is int for size in (*fake.size_, *fake.stride_, fake.offset_)):
            raise Unkeyed("a symbolic size")
        if self.grad and described.requires_grad or described.is_inference():
            raise Unkeyed("a gradient")
        return input_key(one), node in self.finder.written


def _is_plain(node: fx.Node) -> bool:
    """Whether a call only computes tensors or writes them, whenever it runs."""
    meta = node.meta
    if "made" in meta or "recompute" in meta or meta.get("inference") or node.target in CHECKS:
        return False
    value = meta.get("val")
    return isinstance(value, (torch.Tensor, tuple, list)) or value is None and bool(node.all_input_nodes)
