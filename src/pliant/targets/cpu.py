"""The processor that this process runs on."""

from __future__ import annotations

import functools
import os

import torch

from pliant.targets.target import Target


@functools.cache
def target() -> Target:
    """The host's target. Kernels are built with `-march=native`: what the text depends on is measured, not detected."""
    return Target(
        kind="cpu",
        architecture="native",
        units=os.cpu_count() or 1,
        images_last=frozenset((torch.float32,)),
        packs_weights=True,
        copied_row=32,
        biases_in_loops=True,
        adds_in_order=True,
        adds_while_scanning=True,
        depthwise_gradients=True,
        complex_parts=frozenset((torch.float32,)),
        looks_up_words=True,
        layer_bytes=1 << 24,
        called_bytes=3 << 16,
        attention_scores=3 << 17,
        attention_scores_trained=1 << 23,
    )
