"""`torch.autograd.grad` as an operator of captured graphs.

In:     tensors of the graph.
Out:    gradients; the same on real tensors and on fakes, where the operators that compute them are recorded.
Holds:  on fakes nothing is freed: the joint stage differentiates the program once more, although eager never might.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant import torch_adapter
from pliant.graph.fake_tensor import FakeTensor


def gradients(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    grad_outputs: Sequence[torch.Tensor | None],
    retain_graph: bool = False,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Any, ...]:
    """The gradient (None where `allow_unused` and there is none) for each input."""
    keep = retain_graph or any(type(one) is FakeTensor for one in outputs)
    given = [_ones(one) if grad is None else grad for one, grad in zip(outputs, grad_outputs, strict=True)]
    return torch_adapter.gradients(
        list(outputs), list(inputs), given, retain_graph=keep, create_graph=create_graph, allow_unused=allow_unused
    )


def _ones(output: torch.Tensor) -> torch.Tensor:
    if output.numel() != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    return torch.ones_like(output, memory_format=torch.preserve_format)
