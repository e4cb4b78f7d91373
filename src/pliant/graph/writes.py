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
from pliant.graph.fake_tensor import FakeTensor, is_fake, memory_of
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


def note_shared(tensor: FakeTensor, data: FakeTensor) -> None:
    """`tensor.data = data`: its writes, which count as before, are writes of that memory from here on."""
    with DisableTorchFunction():
        memory, groups = memory_of(data), tensor.fake_mode.apart
        groups.setdefault(id(memory), [memory])
        for group in {id(one): one for one in groups.values()}.values():
            if any(one is memory for one in group):
                group.append(tensor)


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


_OF_STATISTICS = frozenset(
    (torch.ops.aten.native_batch_norm.default, torch.ops.aten.cudnn_batch_norm.default, torch.ops.aten.miopen_batch_norm.default)
)


def note_statistics(func: Any, args: Any) -> None:
    """Batch norm in training writes its running statistics: its schema does not say so, and autograd does not count it. Those
    that the trace has made are counted here; what is known of inputs does not depend on it."""
    if func in _OF_STATISTICS and args[5]:
        with DisableTorchFunction():
            for memory in (memory_of(one) for one in args[3:5] if is_fake(one)):
                memory.stored += getattr(memory.node, "op", "placeholder") != "placeholder"
