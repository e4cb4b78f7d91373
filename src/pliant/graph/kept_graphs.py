"""Autograd's own graph of what an operator computed, kept from the forward until the backward.

In:     a program whose derivative is in PyTorch's own code, with what that keeps of the forward (a library's reserve).
Out:    its results, and a tensor that stands for the graph; a program that differentiates by it.
Holds:  the graph lives as long as the memory of the tensor that stands for it. Where a hook keeps a copy of that (to offload what
        is saved), the graph is gone, and the program computes again. The graph is for gradients that are not differentiated again: it
        was recorded of other leaves than the program's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant import torch_adapter
from pliant.graph.control_flow import Program, Tensors, Values

_LOST = (
    "What was dropped is not known: a hook kept a copy of what was saved for the derivative of a layer whose dropout the library "
    "of the GPU draws. Call the layer outside of such hooks."
)
TOKEN = 8  # bytes of the tensor that stands for a graph


class _Graph(bytearray):
    """The memory of such a tensor, and what it stands for."""

    inputs: list[Any]
    results: Tensors


_graphs: weakref.WeakValueDictionary[int, _Graph] = weakref.WeakValueDictionary()


def compute_and_keep(compute: Callable[[Values], Tensors], values: Values, wanted: Sequence[int]) -> Tensors:
    """The results, and what stands for their graph. `wanted`: places of values that gradients may be asked of."""
    inputs = list(values)
    for place in wanted:
        inputs[place] = values[place].detach().requires_grad_()
    with torch_adapter.recording():
        results = compute(inputs)
    graph = _Graph(TOKEN)
    graph.inputs, graph.results = inputs, results
    token = torch.frombuffer(graph, dtype=torch.uint8)
    _graphs[token.data_ptr()] = graph
    return (*[r.detach() for r in results], token)


class KeptGradient(Program):
    """values: those of the program, what stands for its graph, gradients of the results `given`: gradients.
    again: what gives them where the graph is gone; None: nothing would, as the forward drew numbers that nobody can draw again."""

    FIELDS = ("again", "wanted", "given")

    def __init__(self, again: Program | None, wanted: tuple[int, ...], given: tuple[int, ...]) -> None:
        super().__init__()
        self.again, self.wanted, self.given = again, wanted, given

    def compute(self, values: Values) -> Tensors:
        count = len(values) - len(self.given)
        graph = _graphs.get(values[count - 1].data_ptr())
        if graph is None:
            if self.again is None:
                raise RuntimeError(_LOST)
            return self.again.compute([*values[: count - 1], *values[count:]])
        outputs = [graph.results[i] for i in self.given]
        chosen = [graph.inputs[place] for place in self.wanted]
        found = torch_adapter.gradients(outputs, chosen, list(values[count:]), retain_graph=True, create_graph=False)
        return tuple(torch.zeros_like(v) if g is None else g for v, g in zip(chosen, found, strict=True))

    def described(self, values: Values) -> Tensors:
        return tuple(torch.empty_like(values[place]) for place in self.wanted)
