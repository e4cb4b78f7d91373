"""The states of the random generators that a program draws from, kept to draw the same numbers again.

In:     the GPUs that it draws on, by number.
Out:    `random_bytes`, `set_random_bytes`; `gpus_of`, `gpus_in`: which GPUs these are.
Holds:  the CPU's generator is always among them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx

CPU_BYTES = len(torch.get_rng_state())
GPU_BYTES = 16  # of a GPU's generator: its seed and how far it is


def gpus_of(values: Iterable[Any]) -> tuple[int, ...]:
    """The GPUs on which the tensors among the values lie, by number."""
    found = [value.device for value in values if isinstance(value, torch.Tensor)]
    return tuple(sorted({device.index or 0 for device in found if device.type == "cuda"}))


def gpus_in(nodes: Iterable[fx.Node]) -> tuple[int, ...]:
    """The GPUs on which the results of a graph's nodes lie."""
    vals = [node.meta.get("val") for node in nodes]
    return gpus_of(part for val in vals for part in (val if isinstance(val, (list, tuple)) else (val,)))


def random_bytes(gpus: Sequence[int] = ()) -> torch.Tensor:
    """The states of the CPU's generator and of these GPUs', one after the other. While a CUDA graph is captured nobody can
    tell the latter, so they are missing."""
    state: torch.Tensor = torch.get_rng_state()
    if not gpus or torch.cuda.is_current_stream_capturing():
        return state
    return torch.cat([state, *map(torch.cuda.get_rng_state, gpus)])


def set_random_bytes(state: torch.Tensor, gpus: Sequence[int] = ()) -> None:
    """Let the generators draw again what they drew behind `random_bytes(gpus)`. RuntimeError: a GPU's state is missing."""
    if state.numel() != CPU_BYTES + GPU_BYTES * len(gpus):
        raise RuntimeError("random numbers drawn while a CUDA graph is captured cannot be drawn again by a compiled function")
    torch.set_rng_state(state[:CPU_BYTES])
    for number, gpu in enumerate(gpus):
        start = CPU_BYTES + GPU_BYTES * number
        torch.cuda.set_rng_state(state[start : start + GPU_BYTES], gpu)
