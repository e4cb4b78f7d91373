"""What a captured program computes, as a functional ATen graph in which patterns are looked for.

In:     a `CapturedGraph`.
Out:    `Recorded`: the graph of its forward, and which of its nodes the program has a value of its own for.
Holds:  the captured program stays as it is. A value counts as the program's only if nothing writes its memory after it was
        made: then it is what the node says wherever the program can read it.
Reads on: `rewriting.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from pliant.autograd.aliases import Alias
from pliant.autograd.joint import JointTracer, release
from pliant.autograd.refused import views_refused
from pliant.graph.contracts import CapturedGraph
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.passes.purity import has_effect, is_random, may_raise
from pliant.graph.unbacked import CHECKS
from pliant.records import dataclass


@dataclass(slots=True, eq=False)
class Recorded:
    """`graph`: functional, without an output node. `given`: from nodes of it to the captured nodes that first gave their values;
    `fresh`: those of them whose memory their call made, and nothing ever writes. `kept`: what the program returns, or has in an input in the end.
    `followed`: what autograd follows. `cast`: captured nodes in blocks of autocast, or out of those around the program."""

    graph: fx.Graph
    given: dict[fx.Node, fx.Node]
    fresh: set[fx.Node]
    kept: set[fx.Node]
    followed: set[fx.Node]
    cast: set[fx.Node]

    def is_unneeded(self, node: fx.Node) -> bool:
        """Whether a call does nothing but make values that nothing reads, if its users are none."""
        if node.op != "call_function" or node in self.kept or "binds" in node.meta or node.target in CHECKS:
            return False
        return not (may_raise(node) or has_effect(node.target) or is_random(node.target))


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
        self.made: list[tuple[fx.Node, Alias, fx.Node, int]] = []
        self.last: fx.Node | None = None
        self.cast: set[fx.Node] = set()
        self.outer = _autocast()

    def _on_node(self, node: fx.Node | None) -> None:
        if self.last is not None:
            value = self.values.get(self.last)
            if type(value) is FakeTensor and type(value.node) is Alias:
                self.made.append((self.last, value.node, self.mode.read(value.node), value.node.base.version))
            if _autocast() != self.outer:
                self.cast.add(self.last)
        self.last = node
        super()._on_node(node)

    def recorded(self) -> Recorded:
        outputs = self.forward()
        found = Recorded(self.graph, {}, set(), set(), set(), self.cast)
        for captured, alias, node, version in self.made:
            if alias.base.version != version or node in found.given:
                continue
            found.given[node] = captured
            if version == 0 and alias.base.node.meta.get("origin") is captured:
                found.fresh.add(node)
        found.followed.update(node for node in self.graph.nodes if _is_followed(node.meta.get("val")))
        ends: list[Any] = [*outputs, *self.inputs]
        found.kept.update(self.mode.read(v.node) for v in ends if type(v) is FakeTensor and type(v.node) is Alias)
        for node in reversed(list(self.graph.nodes)):
            if not node.users and found.is_unneeded(node):
                self.graph.erase_node(node)
        return found


def _autocast() -> tuple[object, ...]:
    return tuple([(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")])


def _is_followed(value: Any) -> bool:
    return type(value) is FakeTensor and value.requires_grad
