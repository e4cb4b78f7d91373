"""Writes of tensors in a trace.

Holds:  `FakeTensor.writes_` counts those through views, `detach` and `.data`. Autograd does not count the last, but does
        those of a detached tensor: one stands for `.data` where autograd takes no offence at a write. Tensors of inference
        mode have no such count: theirs is `stored`, of the memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from pliant import torch_adapter
from pliant.graph.fake_tensor import FakeTensor, memory_of
from pliant.torch_adapter import DisableTorchFunction


def data_of(tensor: Any) -> Any:
    """`tensor.data`. A view that may not be used any more once a write of it counts gets one whose writes do not."""
    if type(tensor) is not FakeTensor:  # in a transform
        return tensor.detach()
    with DisableTorchFunction():
        if not torch_adapter.forbids_writes(tensor):
            return tensor.detach()
        apart: Any = tensor.data
    base = memory_of(tensor)
    groups = tensor.fake_mode.apart
    group = groups.setdefault(id(base), [base])
    group.append(apart)
    groups[id(apart)] = group
    return apart


def is_written(fake: FakeTensor) -> bool:
    """Whether the trace has written the tensor's memory."""
    return fake.writes_ > 0


def note_writes(fakes: Iterable[FakeTensor], count: int = 1) -> None:
    """Count writes of these that no kernel counts."""
    with DisableTorchFunction():
        counted = [fake for fake in fakes if not note_store(fake, count)]
        torch.autograd.graph.increment_version(counted * count)


def note_store(fake: FakeTensor, count: int = 1) -> bool:
    """Whether it is a tensor of inference mode, whose writes are counted here."""
    with DisableTorchFunction():
        if fake.is_inference():
            memory_of(fake).stored += count
            return True
    return False
