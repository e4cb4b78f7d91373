"""GPUs of NVIDIA: one target for each compute capability, or for the GPU that is there."""

from __future__ import annotations

import functools
from typing import Any

import torch

from pliant.targets.target import Target

# Of one multiprocessor, and of the whole GPU where it varies little within a capability.
_KNOWN: dict[int, dict[str, Any]] = {
    80: {"units": 108, "shared_bytes": 163 << 10, "cache_bytes": 40 << 20},
    86: {"units": 84, "shared_bytes": 99 << 10, "cache_bytes": 6 << 20},
    89: {"units": 128, "shared_bytes": 99 << 10, "cache_bytes": 72 << 20},
    90: {"units": 132, "shared_bytes": 227 << 10, "cache_bytes": 50 << 20},
    100: {"units": 148, "shared_bytes": 227 << 10, "cache_bytes": 126 << 20},
}
OLDEST = 80  # bf16 arithmetic and asynchronous copies begin here


@functools.cache
def target(capability: int, units: int = 0) -> Target:
    """The target of a compute capability (90 for 9.0); `units`: multiprocessors, if known."""
    nearest = max(k for k in _KNOWN if k <= max(capability, OLDEST))
    facts = dict(_KNOWN[nearest])
    if units:
        facts["units"] = units
    return Target(
        kind="cuda",
        architecture=f"sm_{capability}",
        threads=1024,
        lanes=32,
        vector_bytes=16,
        split_outer=2 * facts["units"],
        split_inner=2048,
        parts=4 * facts["units"],
        splits_programs=True,
        scratch_each=0,
        scratch_bytes=0,
        product_bytes=16,
        product_depth=512,
        images_last=frozenset((torch.float16, torch.bfloat16)),
        tf32_images_last=True,
        narrow_index=True,
        **facts,
    )
