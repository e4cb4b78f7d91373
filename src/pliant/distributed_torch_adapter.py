"""Private names of torch: processes that work together.

In:     torch.
Out:    small functions and aliases, each with the reason why the public interface does not do; `torch_adapter` has them all.
"""

from __future__ import annotations

from typing import Any

import torch

# Operators of collectives, which `torch.distributed` records in its functional form.
COLLECTIVES: Any = torch.ops._c10d_functional
# Data parallelism: the call of the model, and what is done around it so that native code sums its gradients up (no public form).
_DataParallel: Any = torch.nn.parallel.DistributedDataParallel
FORWARD_OF_DATA_PARALLEL = _DataParallel._run_ddp_forward
AROUND_DATA_PARALLEL = (_DataParallel._pre_forward, _DataParallel._post_forward)


def gradient_bytes_at_a_time(parallel: Any = None) -> int:
    """How many bytes of gradients data parallelism sums up at a time. `parallel`: the model's wrapper; None: the one whose
    forward is under way (no public form), 0 if there is none."""
    parallel = _DataParallel._active_ddp_module if parallel is None else parallel
    return 0 if parallel is None else int(parallel.bucket_bytes_cap)


def is_distributed() -> bool:
    """Whether this process is one of a group that works together."""
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())


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
