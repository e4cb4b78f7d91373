"""GPUs of NVIDIA: one target for each compute capability, or for the GPU that is there."""

from __future__ import annotations

import functools

import torch

from pliant.targets.target import Target

_UNITS = {80: 108, 86: 84, 89: 128, 90: 132, 100: 148}  # multiprocessors of the largest GPU of a capability
OLDEST = 80  # bf16 arithmetic and asynchronous copies begin here
_CLUSTERS = 90  # blocks form clusters, of eight at most on every GPU, from here on


@functools.cache
def target(capability: int, units: int = 0) -> Target:
    """The target of a compute capability (90 for 9.0); `units`: multiprocessors, if known."""
    units = units or _UNITS[max(k for k in _UNITS if k <= max(capability, OLDEST))]
    return Target(
        kind="cuda",
        architecture=f"sm_{capability}",
        units=units,
        threads=1024,
        lanes=32,
        cluster=8 if capability >= _CLUSTERS else 1,
        vector_bytes=16,
        split_outer=2 * units,
        split_inner=1 << 14,  # what a block reads while another kernel would be launched
        parts=4 * units,
        splits_programs=True,
        shared_cache_bytes=40 << 20,
        scratch_each=0,
        scratch_bytes=0,
        product_bytes=16,
        product_depth=512,
        images_last=frozenset((torch.float16, torch.bfloat16)),
        tf32_images_last=True,
        convolution_biases_apart=True,
        adds_atomically=True,
        depthwise_images=frozenset((torch.float32, torch.float16, torch.bfloat16)),
        depthwise_sums=20_000,
        window_points=4,
        scan_row=2048,
        complex_parts=frozenset((torch.float32, torch.float64)),
        row_products=frozenset((torch.float32, torch.float16, torch.bfloat16)),
        dense_masks=True,
        narrow_index=True,
        builds_in_threads=True,
        function_share=1 / 8,
        library_share=1 / 4,
        held_share=0.3,
    )
