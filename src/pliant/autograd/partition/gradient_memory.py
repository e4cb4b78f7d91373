"""Which gradients lie in the same memory: two of them, or one and the tangent that it comes from.

In:     a joint graph as it was traced; the backward made of it.
Out:    the backward, with a `clone` or an `alias` where a gradient would not lie as eager's does.
Holds:  gradients share memory exactly where eager's do. The engine puts a gradient into `.grad` as it is if it is dense
        and nobody else holds it: sharing what eager computes twice would let a write of one `.grad` change another. What
        eager gives as a view (a slice of the gradient of `cat`, the expanded gradient of `sum`) is a view here, too, and
        costs no bytes. A gradient in the memory of a saved tensor is a copy, whatever eager's is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.graph.passes.purity import memory_root
from pliant.graph.passes.separate import copy_of
from pliant.records import dataclass
from pliant.torch_adapter import append_call

if TYPE_CHECKING:
    from pliant.autograd.joint import JointGraph

_alias = torch.ops.aten.alias.default


@dataclass(frozen=True, slots=True)
class GradientPlace:
    """Where a gradient lies in eager, as numbers that others have who are the same. `tensor`: which it is. `memory`: whose it
    lies in. `tangent`: which of the tangents' that is, if it is one's."""

    tensor: int
    memory: int
    tangent: int | None


def places_in_eager(joint: JointGraph) -> list[GradientPlace | None]:
    """For each gradient of a joint graph that no pass has changed."""
    numbers: dict[fx.Node, int] = {}
    tangents = {node: n for n, node in enumerate(joint.tangents)}

    def place(gradient: Any) -> GradientPlace | None:
        if not isinstance(gradient, fx.Node):
            return None
        root = memory_root(gradient)
        tensor, memory = (numbers.setdefault(node, len(numbers)) for node in (gradient, root))
        return GradientPlace(tensor, memory, tangents.get(root))

    return [place(gradient) for gradient in joint.gradients]


def lay_as_eager(graph: fx.Graph, first_tangent: int, places: Sequence[GradientPlace | None]) -> None:
    """Have the gradients that a backward returns lie as eager's. `first_tangent`: its place among what it is given."""
    output = next(iter(graph.find_nodes(op="output")))
    laying = _Laying(graph, output, list(graph.find_nodes(op="placeholder"))[first_tangent:])
    values: Any = output.args[0]
    assert all(place is not None for place in places)
    output.args = (tuple([laying.of(value, place) for value, place in zip(values, places, strict=True) if place]),)


class _Laying:
    """Gradients of one backward, which are made in order, before `end`."""

    def __init__(self, graph: fx.Graph, end: fx.Node, tangents: list[fx.Node]) -> None:
        self.graph, self.end = graph, end
        self.tangents = {node: n for n, node in enumerate(tangents)}
        self.lies: dict[fx.Node, int] = {}  # whose memory, in eager, this value's is
        self.copies: dict[tuple[fx.Node, int], fx.Node] = {}  # and what stands for this value in that of another
        self.made: dict[tuple[fx.Node, int], fx.Node] = {}
        self.given: set[fx.Node] = set()  # those that are made

    def of(self, value: fx.Node, place: GradientPlace) -> fx.Node:
        if not isinstance(value.meta.get("val"), torch.Tensor):
            return value
        key = value, place.tensor
        if key not in self.made:
            self.made[key] = self._made(value, place)
            self.given.add(self.made[key])
        return self.made[key]

    def _made(self, value: fx.Node, place: GradientPlace) -> fx.Node:
        root = memory_root(value)
        if root in self.tangents:
            alike = self.tangents[root] == place.tangent
        elif root.op == "placeholder":
            return copy_of(self.graph, self.end, value, dense=True)
        else:
            alike = self.lies.setdefault(root, place.memory) == place.memory
        if alike:
            return self._alias(value) if value in self.given else value
        copy = self.copies.get((root, place.memory))
        if copy is None:
            copy = self.copies[root, place.memory] = copy_of(self.graph, self.end, root)
        found = self._seen(value, root, copy)
        return self._alias(found) if found in self.given else found

    def _alias(self, value: fx.Node) -> fx.Node:
        """Another tensor in the memory of one that is a gradient already."""
        return self._call(_alias, (value,), {}, value)

    def _seen(self, value: fx.Node, root: fx.Node, copy: fx.Node) -> fx.Node:
        """Of the copy what the value is of its root: views of views."""
        steps: list[fx.Node] = []
        while value is not root:
            steps.append(value)
            value = value.args[0]  # type: ignore[assignment]
        found = copy
        for step in reversed(steps):
            found = self._call(step.target, (found, *step.args[1:]), step.kwargs, step)
        return found

    def _call(self, target: Any, args: tuple[Any, ...], kwargs: Any, like: fx.Node) -> fx.Node:
        with self.graph.inserting_before(self.end):
            node = append_call(self.graph, "call_function", target, args, kwargs)
        node.meta.update(like.meta)
        return node
