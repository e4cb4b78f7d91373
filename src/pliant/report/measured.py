"""What a call allocates, as PyTorch's allocators tell its profiler.

In:     a call.
Out:    its result, and a `Measured`.
Holds:  the call is as it is otherwise, but slower. Nothing else may be profiled meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import torch

from pliant.errors import ConfigError
from pliant.records import dataclass
from pliant.torch_adapter import profiler

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Allocated:
    """Bytes on a device: at once at most, beyond what was there before; in all; at the end of the call; in how many pieces."""

    device: str
    peak: int
    total: int
    kept: int
    pieces: int


@dataclass(frozen=True, slots=True)
class Measured:
    """A call. `ranges`: what the native calls in it are called."""

    name: str
    devices: tuple[Allocated, ...]
    ranges: frozenset[str]


def measured(name: str, call: Callable[[], R]) -> tuple[R, Measured]:
    """The call's result, which is alive where its memory at the end is counted, and what it allocated."""
    if profiler._is_profiler_enabled:
        raise ConfigError(
            "memory cannot be measured while something else is profiled",
            kind="profiled",
            why="PyTorch has one profiler at a time",
            do="measure in a block of its own, without profile=True",
        )
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as found:
        result = call()
    events: list[Any] = found.profiler.kineto_results.events()
    changes: dict[str, list[tuple[int, int]]] = {}
    for one in events:
        if one.name() == "[memory]":
            device = str(one.device_type()).rpartition(".")[2].lower()
            changes.setdefault(device, []).append((one.start_ns(), one.nbytes()))
    devices = tuple(_allocated(device, (n for _, n in sorted(own, key=lambda c: c[0]))) for device, own in sorted(changes.items()))
    return result, Measured(name, devices, frozenset(one.name() for one in events if one.name().startswith("pliant::")))


def _allocated(device: str, changes: Iterable[int]) -> Allocated:
    now = peak = total = pieces = 0
    for change in changes:
        now += change
        peak = max(peak, now)
        total += max(0, change)
        pieces += change > 0
    return Allocated(device, peak, total, now, pieces)
