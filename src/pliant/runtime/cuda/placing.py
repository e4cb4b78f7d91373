"""What work allocates is seen while it is captured, and given the place that was planned when it is captured again.

In:     work that is captured, and the pool that it allocates from.
Out:    `Watching`: its allocations. `Placing`: has them lie where a `Plan` says. `taken_by`: what a pool took from the GPU.
Holds:  only memory that operators return is seen; what one takes for itself and gives back is not. Both only look at
        operators, and allocate memory that is free again when the operator is done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from pliant.runtime.cuda.room import LEAST, Allocation, fillers, gaps_between, plan

ROUND = 512  # bytes: PyTorch allocates multiples


class Watching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes what operators allocate of a device's memory, and when it is free again."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """PyTorch wraps the dispatch method of modes that say yes, and imports the peer at the first call."""
        return False

    def __init__(self, device: torch.device) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._device = device
        self._done: list[Allocation] = []
        self._live: dict[int, tuple[int, int, StorageWeakRef]] = {}  # by address: operator, size
        self._operators = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        now, self._operators = self._operators, self._operators + 1
        for address, (at, size, ref) in [*self._live.items()]:
            if ref.expired():  # type: ignore[no-untyped-call]
                del self._live[address]
                self._done.append(Allocation(at, now, size))
        result = self.run(now, lambda: func(*args, **kwargs or {}))
        given = {storage.data_ptr() for storage in self._storages([args, kwargs or {}])}
        for storage in self._storages(result):
            if storage.nbytes() > LEAST and storage.data_ptr() not in given:
                ref = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                self._live[storage.data_ptr()] = (now, -(-storage.nbytes() // ROUND) * ROUND, ref)
        return result

    def run(self, number: int, operator: Callable[[], Any]) -> Any:
        """Do what the operator does that is the `number`th."""
        return operator()

    def busy(self) -> list[tuple[int, int]]:
        """Address and size of what is allocated now."""
        return [(address, size) for address, (_, size, _) in self._live.items()]

    def _storages(self, values: Any) -> Iterator[torch.UntypedStorage]:
        """Of the device's tensors among operators' arguments or results."""
        if isinstance(values, torch.Tensor):
            if values.device == self._device and values.layout is torch.strided:
                yield values.untyped_storage()
        elif isinstance(values, (list, tuple, dict)):
            for value in values.values() if isinstance(values, dict) else values:
                yield from self._storages(value)

    def allocations(self) -> list[Allocation]:
        return self._done + [Allocation(at, self._operators, size) for at, size, _ in self._live.values()]


class Placing(Watching):  # type: ignore[no-untyped-call]
    """Has what operators allocate lie where it was planned. To be made where tensors are allocated from the pool: it may
    add a block."""

    def __init__(self, device: torch.device, pool: Any, allocations: Sequence[Allocation]) -> None:
        super().__init__(device)
        self._blocks = _free_blocks(device, pool)
        self._plan = plan(allocations, [size for _, size in self._blocks])
        if self._plan.added:
            self._blocks.append(self._added(self._plan.added))

    def _added(self, size: int) -> tuple[int, int]:
        """A new block, not a part of one that is there."""
        others = [self._memory(size) for size in sorted(size for _, size in self._blocks)]
        block = self._memory(size)
        del others
        return block.data_ptr(), size

    def _memory(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=self._device)

    def run(self, number: int, operator: Callable[[], Any]) -> Any:
        places = [(self._blocks[p.block][0] + p.offset, p.size) for p in self._plan.places.get(number, ())]
        if not places:
            return operator()
        busy = self.busy()
        gaps = [gap for block in self._blocks for gap in gaps_between(_inside(busy, block), *block)]
        allocated = [(self._memory(filler.size), filler.holds_place) for filler in fillers(places, gaps)]
        kept = [memory for memory, holds_place in allocated if not holds_place]
        del allocated
        result = operator()
        del kept
        return result


def _inside(busy: list[tuple[int, int]], block: tuple[int, int]) -> Iterator[tuple[int, int]]:
    return ((address, size) for address, size in busy if block[0] <= address < block[0] + block[1])


def taken_by(device: torch.device, pool: Any) -> int:
    """Bytes that a pool has of the GPU."""
    return sum(segment["total_size"] for segment in _segments(device, pool))


def _free_blocks(device: torch.device, pool: Any) -> list[tuple[int, int]]:
    """Address and size of the blocks of a pool that nothing lies in."""
    found = []
    for segment in _segments(device, pool):
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "inactive" and block["size"] > LEAST:
                found.append((address, block["size"]))
            address += block["size"]
    return found


def _segments(device: torch.device, pool: Any) -> list[dict[str, Any]]:
    segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    return [s for s in segments if s["device"] == device.index and tuple(s["segment_pool_id"]) == pool]
