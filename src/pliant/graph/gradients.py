"""`torch.autograd.grad` as an operator of captured graphs.

In:     tensors of the graph.
Out:    gradients; the same on real tensors and on fakes, where the operators that compute them are recorded.
Holds:  on fakes nothing is freed: the joint stage differentiates the program once more, although eager never might.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant import torch_adapter
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.map_rules.kernels import where_sizes_vary


def gradients(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    grad_outputs: Sequence[torch.Tensor | None],
    retain_graph: bool = False,
    create_graph: bool = False,
    allow_unused: bool = False,
    batched: bool = False,
) -> tuple[Any, ...]:
    """The gradient (None where `allow_unused` and there is none) for each input.

    `batched`: dimension 0 of the given gradients, and of those found, is that of a batch of them.
    """
    fake = next((one for one in outputs if type(one) is FakeTensor), None)
    keep = retain_graph if fake is None else fake.fake_mode.note_gradients(outputs, inputs, retain_graph)

    def engine(*given: torch.Tensor) -> tuple[Any, ...]:
        with where_sizes_vary((*outputs, *inputs) if create_graph else ()):
            return torch_adapter.gradients(
                list(outputs), list(inputs), list(given), retain_graph=keep, create_graph=create_graph,
                allow_unused=allow_unused,
            )  # fmt: skip

    given = [_ones(one) if grad is None else grad for one, grad in zip(outputs, grad_outputs, strict=True)]
    return _mapped(engine, given) if batched else engine(*given)


def _mapped(engine: Callable[..., tuple[Any, ...]], given: list[torch.Tensor]) -> tuple[Any, ...]:
    """What `vmap` of the engine gives; there are no missing gradients for `vmap`."""
    places: list[int] = []

    def found_only(*one: torch.Tensor) -> tuple[torch.Tensor, ...]:
        found = engine(*one)
        places[:] = [len(found), *(i for i, gradient in enumerate(found) if gradient is not None)]
        return tuple([gradient for gradient in found if gradient is not None])

    with where_sizes_vary(given):
        made = torch.vmap(found_only)(*given)
    gradients: list[Any] = [None] * places[0]
    for place, gradient in zip(places[1:], made, strict=True):
        gradients[place] = gradient
    return tuple(gradients)


def _ones(output: torch.Tensor) -> torch.Tensor:
    if output.numel() != 1:
        raise RuntimeError("grad can be implicitly created only for scalar outputs")
    if not output.dtype.is_floating_point:
        raise RuntimeError(f"grad can be implicitly created only for real scalar outputs but got {output.dtype}")
    return torch.ones_like(output, memory_format=torch.preserve_format)
