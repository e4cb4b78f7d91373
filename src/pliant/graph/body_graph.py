"""Bodies of branches and loops as ATen graphs, which have no Python left.

In:     a functional `AtenGraph` whose placeholders are a body's tensors and numbers.
Out:    a callable that runs it operator by operator; on fakes, which are those of its own description, it tells its results.
Holds:  every symbol of the graph is a placeholder or one's size, so a body needs nothing of the graph around it. Tensors that
        lie otherwise than is described are copied first.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from pliant.graph.contracts import AtenGraph, returned
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.interpret import eager


class BodyGraph:
    def __init__(self, aten: AtenGraph) -> None:
        self.aten, self.graph = aten, aten.graph
        self._run = eager(aten, lays_out=True)

    @property
    def results(self) -> list[fx.Node]:
        return returned(self.graph)

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        if any(type(value) is FakeTensor for value in values):
            fakes = [node.meta["val"] for node in self.results]
            return tuple(one.new_empty_strided(one.size_, one.stride_) for one in fakes)
        return tuple(self._run(list(values)))
