"""Other processes, GPUs, and the files of PyTorch's build.

Out:    process groups, streams and memory pools, folders of libraries.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch

from pliant.torch_adapter.names import PACKAGE


def torch_library_folders() -> tuple[str, ...]:
    """Folders of the shared objects that torch's wheel brings: `torch/lib` and the `torch.libs` beside the package."""
    package = os.path.realpath(PACKAGE)
    return (os.path.join(package, "lib"), package + ".libs")


def default_group_facts() -> tuple[str, int, int] | None:
    """(name, size, this process's rank) of the default process group; None before there is one."""
    group = torch.distributed.group.WORLD if torch.distributed.is_available() else None
    return None if group is None else (group.group_name, group.size(), group.rank())


def group_name(group: Any) -> str | None:
    """The name by which a process group is found again; None if it is no group of this process."""
    return group.group_name if isinstance(group, torch.distributed.ProcessGroup) else None


def process_group(name: str) -> Any:
    """The process group of this name (no public form)."""
    namespace: Any = torch.distributed.distributed_c10d
    return namespace._resolve_process_group(name)


def reduction_name(reduction: Any) -> str:
    """The name of a reduction of `torch.distributed`; "" of one that has a factor."""
    named = torch.distributed.ReduceOp.RedOpType.__members__
    return next((name for name, one in named.items() if name != "PREMUL_SUM" and reduction == one), "")


def coalesces() -> bool:
    """Whether calls of `torch.distributed` are put together, to be made at the end of a block (no public form)."""
    return bool(torch.distributed.distributed_c10d._world.pg_coalesce_state)


def current_gpu() -> int:
    """Which GPU "cuda" means in this thread; 0 before the program uses any."""
    return torch.cuda.current_device() if torch.cuda.is_initialized() else 0  # type: ignore[no-untyped-call]


def current_stream_of() -> Callable[[int], int]:
    """Device's index -> its current stream as the driver's handle (CUDA builds alone have it; `torch.cuda.current_stream`
    makes an object, which takes as long as a launch)."""
    found: Callable[[int], int] = torch._C._cuda_getCurrentRawStream
    return found


def end_allocations(device: torch.device, pool: Any) -> None:
    """Take a capture that failed from the allocator's list (`CUDAGraph.capture_end` leaves it there), as the end of
    `torch.cuda.use_mem_pool` does: while it is there, no capture may use the pool and memory is kept back."""
    torch._C._cuda_endAllocateToPool(device.index, pool)
    torch._C._cuda_releasePool(device.index, pool)
