"""What a recording goes by: the places of a graph's inputs and outputs, and what of them it holds for."""

from __future__ import annotations

import torch

from pliant.records import dataclass


@dataclass(frozen=True, slots=True)
class Roles:
    """Places in the lists of inputs and outputs.

    static: inputs that lie where they lay at the last call (parameters, buffers, what the forward saved). written: inputs
    that are written. private: outputs that only the program's own backward sees, while they live. sized: inputs on which
    sizes and other numbers depend. draws: whether operators draw random numbers: which of them an element gets depends on
    how tensors are aligned.
    """

    static: frozenset[int] = frozenset()
    written: frozenset[int] = frozenset()
    private: frozenset[int] = frozenset()
    sized: tuple[int, ...] = ()
    draws: bool = False


ALIGNMENT = 32  # bytes: the longest vectors that the library's kernels read


def misalignment(value: object) -> int:
    """How far a tensor begins behind an aligned place, in bytes."""
    return value.data_ptr() % ALIGNMENT if isinstance(value, torch.Tensor) else 0


def key_of(value: object) -> object:
    """A tensor's sizes, or a number with its type: what a recording holds for."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride()
    if isinstance(value, float):
        return value.hex()
    if type(value) is int:
        return value
    return type(value), value if isinstance(value, (bool, complex, str, type(None))) else id(value)
