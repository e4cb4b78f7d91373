"""Memory that a recording needs at once, as one block.

In:     work that is captured.
Out:    `Counting`: the most bytes that it has allocated at a time. `make_room`: a free block of so many in a pool.
        `least_room`: the block to begin with, found by trying.
Holds:  nothing is allocated when `make_room` is done; what it took from the GPU is the pool's.

A pool takes from the GPU what is asked for, one tensor after another, and cannot join what it took in pieces: where tensors
grow (as channels do in a network of convolutions) hardly one finds room in what earlier ones left. Cut from one block they
do, but a block may leave gaps that nothing fits in, and libraries take memory that nobody sees: so sizes are tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pliant.records import dataclass

GROWING = (1.0, 1.125, 1.25, 1.5)  # blocks that are tried, of what is allocated at once
LEAST = 20 << 20  # bytes: PyTorch takes as many for tensors that are smaller, anyway


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes: allocated at once, as far as is seen; taken from the GPU."""

    allocated: int
    taken: int


def least_room(try_with: Callable[[int], Needs]) -> int:
    """The size of the block with which work takes least from the GPU; 0: none. `try_with`: what it takes with one."""
    first = try_with(0)
    best, least = 0, first.taken
    for factor in GROWING:
        room = int(first.allocated * factor)
        if room >= least or first.taken - first.allocated < LEAST:
            break
        taken = try_with(room).taken
        if taken < least:
            best, least = room, taken
    return best


class Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes how many bytes are allocated after each operator, beyond those at the start. What one takes and gives back
    itself is not seen."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """PyTorch wraps the dispatch method of modes that say yes, and imports the peer at the first call."""
        return False

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self._before = _allocated(device)
        self.most = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **kwargs or {})
        self.most = max(self.most, _allocated(self._device) - self._before)
        return result


def _allocated(device: torch.device) -> int:
    found: int = torch.cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["current"]
    return found


def make_room(device: torch.device, pool: Any, needed: int) -> None:
    """While tensors are allocated from a pool: have it hold a block so large that `needed` bytes are free."""
    free = max([b["size"] for s in _segments(device, pool) for b in s["blocks"] if b["state"] == "inactive"], default=0)
    if needed - free >= LEAST:
        torch.empty(needed - free, dtype=torch.uint8, device=device)


def taken_by(device: torch.device, pool: Any) -> int:
    """Bytes that a pool has of the GPU."""
    return sum(segment["total_size"] for segment in _segments(device, pool))


def _segments(device: torch.device, pool: Any) -> list[dict[str, Any]]:
    segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    return [s for s in segments if s["device"] == device.index and tuple(s["segment_pool_id"]) == pool]
