"""Other weights for a program.

In:     a `Program`, tensors by the names of its parameters and buffers.
Out:    `take_weights`: the program has copies of them; an `ExportError` with everything that does not fit changes nothing.
Holds:  dtypes, sizes, layouts and devices stay as they were, since kernels are made for them. Tensors that the program had,
        the model's own among them, are not written.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from pliant.errors import ExportError
from pliant.exporting.program import Program


def take_weights(program: Program, given: Mapping[str, Any], strict: bool) -> None:
    """`strict`: all that the program has, and nothing else."""
    own = program.state_dict()
    if wrong := list(_misfits(own, given, strict)):
        raise ExportError(
            "these are not the program's weights", kind="weights", why="\n".join(wrong),
            do="give what `state_dict()` has" + (", or pass strict=False, which leaves out names that the other has not" if strict else ""),
            doc="docs/export.md#calling",
        )  # fmt: skip
    for name, old in own.items():
        if name in given:
            made = torch.empty_strided(old.shape, old.stride(), dtype=old.dtype, device=old.device)
            program.state[name] = made.copy_(given[name].detach())


def _misfits(own: Mapping[str, torch.Tensor], given: Mapping[str, Any], strict: bool) -> Iterator[str]:
    for name, tensor in own.items():
        if name in given:
            yield from _misfit(name, tensor, given[name])
        elif strict:
            yield f"{name} is missing"
    if strict:
        yield from (f"{name} is none of the program's" for name in given if name not in own)


def _misfit(name: str, old: torch.Tensor, new: Any) -> Iterator[str]:
    if not isinstance(new, torch.Tensor):
        yield f"{name} is a {type(new).__name__}, not a tensor"
    elif (new.dtype, new.shape) != (old.dtype, old.shape):
        yield f"{name} is {new.dtype} of {tuple(new.shape)}, not {old.dtype} of {tuple(old.shape)}"
