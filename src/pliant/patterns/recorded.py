"""What a captured program computes, as a functional ATen graph in which patterns are looked for.

In:     a `CapturedGraph`.
Out:    `Recorded`: the graph of its forward, and which of its nodes the program has a value of its own for.
Holds:  the captured program stays as it is. A value counts as the program's only if nothing writes its memory after it was
        made: then it is what the node says wherever the program can read it.
Reads on: `rewriting.py`.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from pliant.autograd.aliases import Alias
from pliant.autograd.joint import JointTracer, release
from pliant.autograd.refused import views_refused
from pliant.graph.contracts import CapturedGraph
from pliant.graph.fake_tensor import FakeTensor
from pliant.records import dataclass


@dataclass(slots=True, eq=False)
class Recorded:
    """`graph`: functional, without an output node. `given`: from nodes of it to the captured nodes that first gave their values;
    `fresh`: those of them whose value has memory of its own. `kept`: what the program returns, or has in an input in the end.
    `followed`: what autograd follows."""

    graph: fx.Graph
    given: dict[fx.Node, fx.Node]
    fresh: set[fx.Node]
    kept: set[fx.Node]
    followed: set[fx.Node]


def record(captured: CapturedGraph) -> Recorded:
    """Run the program on fakes. Raises what it raises."""
    env = captured.shape_env
    taken = env.asserts_taken()
    outer = env.origin_callback
    watching = _Watching(captured)
    try:
        with views_refused():
            return watching.recorded()
    finally:
        env.origin_callback = outer
        env.take_again(taken)
        release(watching.graph, watching.mode)


class _Watching(JointTracer):
    """A forward whose values are noted as they are made."""

    def __init__(self, captured: CapturedGraph) -> None:
        super().__init__(captured, "", {})
        self.made: list[tuple[fx.Node, FakeTensor, Alias, fx.Node, int]] = []
        self.last: fx.Node | None = None

    def _on_node(self, node: fx.Node | None) -> None:
        if self.last is not None:
            value = self.values.get(self.last)
            if type(value) is FakeTensor and type(value.node) is Alias:
                self.made.append((self.last, value, value.node, self.mode.read(value.node), value.node.base.version))
        self.last = node
        super()._on_node(node)

    def recorded(self) -> Recorded:
        outputs = self.forward()
        found = Recorded(self.graph, {}, set(), set(), set())
        for captured, value, alias, node, version in self.made:
            if alias.base.version != version or node in found.given:
                continue
            found.given[node] = captured
            if alias.parent is None and alias.base.input is None:
                found.fresh.add(node)
        found.followed.update(node for node in self.graph.nodes if _is_followed(node.meta.get("val")))
        ends: list[Any] = [*outputs, *self.inputs]
        found.kept.update(self.mode.read(v.node) for v in ends if type(v) is FakeTensor and type(v.node) is Alias)
        return found


def _is_followed(value: Any) -> bool:
    return type(value) is FakeTensor and value.requires_grad
