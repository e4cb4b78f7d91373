"""Writes of tensors in a trace.

Holds:  `FakeTensor.writes_` counts those through views, `detach` and `.data`. Autograd does not count the last, but does
        those of a detached tensor: one stands for `.data` where autograd takes no offence at a write.
"""

from __future__ import annotations

from typing import Any

from pliant import torch_adapter
from pliant.graph.fake_tensor import FakeTensor, base_of, memory_of
from pliant.torch_adapter import DisableTorchFunction


def data_of(tensor: Any) -> Any:
    """`tensor.data`. A view that may not be used any more once a write of it counts gets one whose writes do not."""
    if type(tensor) is not FakeTensor:  # in a transform
        return tensor.detach()
    with DisableTorchFunction():
        if not torch_adapter.forbids_writes(tensor):
            return tensor.detach()
        apart: Any = tensor.data
    base: Any = base_of(tensor)
    groups = tensor.fake_mode.apart
    group = groups.setdefault(id(base), [base])
    group.append(apart)
    groups[id(apart)] = group
    return apart


def is_written(fake: FakeTensor) -> bool:
    """Whether the trace has written the tensor's memory, or may have: of inference mode's only the age is known, and that
    nothing was written since."""
    return count_of(fake) > 0


def count_of(fake: FakeTensor) -> int:
    """How often its memory was written; of inference mode's, how often any was since that was made."""
    with DisableTorchFunction():
        return fake.fake_mode.writes - memory_of(fake).born if fake.is_inference() else fake.writes_
