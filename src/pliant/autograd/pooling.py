"""Gradients of max pooling by the positions of the maxima: data that need not come from the pooling.

In:     nodes of the graph under way, fakes of a call of the gradient's operator.
Out:    whether the pooling of the same windows found the positions; the gradient of any positions.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx

from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.tensor_spec import same_known

_POOLING = torch.ops.aten.max_pool2d_with_indices.default


def finds(positions: fx.Node, x: FakeTensor, options: list[Any]) -> bool:
    """Whether they are the positions of maxima in the same windows of an image of the same size."""
    made_by = positions.args[0] if positions.target is operator.getitem else None
    if not isinstance(made_by, fx.Node) or made_by.target is not _POOLING:
        return False
    rest = [one.default_value for one in _POOLING._schema.arguments[len(made_by.args) :]]
    image: Any = made_by.args[0]
    return [*made_by.args[1:], *rest] == options and same_known(image.meta["val"].size_, x.size_)


def gradient(grad: torch.Tensor, positions: torch.Tensor, like: FakeTensor) -> torch.Tensor:
    """Each element of `grad` added where its position says, in a tensor that lies as `like`."""
    none = torch.zeros(like.size_, dtype=like.dtype_, device=like.device_)
    found = none.flatten(-2).scatter_add(-1, positions.flatten(-2), grad.flatten(-2)).view(like.size_)
    return found if found.stride() == like.stride_ else found.clone(memory_format=torch.channels_last)
