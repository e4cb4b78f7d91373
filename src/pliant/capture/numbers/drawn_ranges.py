"""What is known of tensors that were drawn before they are: `torch.rand` is at least 0 and below 1.

In:     a comparison of such a tensor with a number.
Out:    its result where it is the same for every draw (`torch.rand([]) < 0.0` of a layer that is never left out).
Holds:  the draw itself stays in the graph: the generator goes on as in eager. Tensors that were written are unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.signatures import Args, Kwargs
from pliant.graph.contracts import name_of_target
from pliant.graph.fake_tensor import is_fake, is_written
from pliant.torch_adapter import DisableTorchFunction, below_python_dispatch

_DRAWING = frozenset((torch.rand, torch.rand_like))  # at least 0 and less than 1
_DTYPES = frozenset((torch.float32, torch.float64))  # smaller ones may be rounded up to 1
_MOVED = frozenset("view reshape squeeze unsqueeze flatten __getitem__ getitem select detach clone contiguous".split())

# Whether `x <symbol> number` holds for every x in [0, 1), for none, or None: for some.
_TOLD: dict[str, Callable[[float], bool | None]] = {
    "lt": lambda number: True if number >= 1 else False if number <= 0 else None,
    "le": lambda number: True if number >= 1 else False if number < 0 else None,
    "gt": lambda number: True if number < 0 else False if number >= 1 else None,
    "ge": lambda number: True if number <= 0 else False if number >= 1 else None,
    "eq": lambda number: None if 0 <= number < 1 else False,
    "ne": lambda number: None if 0 <= number < 1 else True,
}


def comparison(name: str, args: Args, kwargs: Kwargs) -> bool | None:
    """What a call of this name gives for every draw, if it gives one thing."""
    told = _TOLD.get(name.strip("_"))
    if told is None or kwargs or len(args) != 2 or type(args[1]) not in (int, float) or not is_drawn(args[0]):
        return None
    with DisableTorchFunction(), below_python_dispatch():
        return told(torch.tensor(args[1], dtype=args[0].dtype_).item())  # as the operator takes it


def is_drawn(value: Any) -> bool:
    """Whether every element is at least 0 and less than 1."""
    while is_fake(value) and value.dtype_ in _DTYPES and not is_written(value):
        node = value.node
        if node is None or any(user.target is getattr for user in node.users):  # `x.data` is written unseen
            return False
        if node.target in _DRAWING:
            return True
        name = name_of_target(node)
        if name not in _MOVED:
            return False
        value = node.args[0].meta["val"]
    return False
