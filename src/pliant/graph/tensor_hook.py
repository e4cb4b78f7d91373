"""A hook on a tensor of the captured graph, whose Python became a graph.

In:     the hook's body: (gradient, values that it closes over...) -> (new gradient,).
Out:    a module whose call registers it; autograd runs it, in the joint stage on fakes.
Holds:  the body has no side effects.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx


class TensorHook(torch.nn.Module):
    """`module(tensor, *closure)` registers the hook on the tensor."""

    def __init__(self, body: fx.GraphModule) -> None:
        super().__init__()
        self.body = body

    def forward(self, tensor: torch.Tensor, *closure: Any) -> None:
        body = self.body
        tensor.register_hook(lambda gradient: body(gradient, *closure)[0])  # type: ignore[no-untyped-call]
