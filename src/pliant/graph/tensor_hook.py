"""A hook on a tensor of the captured graph, whose Python became a graph.

In:     the hook's body: (gradient, values that it closes over...) -> (new gradient,).
Out:    a module whose call registers it; autograd runs it, in the joint stage on fakes.
Holds:  the body has no side effects. The mode of a fake is told of it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from pliant.graph.fake_tensor import FakeTensor


class TensorHook(torch.nn.Module):
    """`module(tensor, *closure)` registers the hook on the tensor."""

    def __init__(self, body: fx.GraphModule) -> None:
        super().__init__()
        self.body = body

    def forward(self, tensor: torch.Tensor, *closure: Any) -> None:
        body = self.body
        if type(tensor) is FakeTensor:
            tensor.fake_mode.note_hook(tensor)
        # Results of a compiled graph share one function: hooks of those that no gradient gets to are called with None.
        tensor.register_hook(  # type: ignore[no-untyped-call]
            lambda gradient: None if gradient is None else body(gradient, *closure)[0]
        )
