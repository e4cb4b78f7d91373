"""Which programs can be recorded as a CUDA graph, and what is known of their inputs.

In:     a `LoopProgram`.
Out:    `why_not`: what keeps it from being recorded; `roles_of`: what the recording goes by.
Holds:  a recorded program does the same work on the GPU every time and nothing else: what depends on data, runs on the
        CPU, or is an operator of somebody else (which may do anything) is refused.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from pliant.graph.passes.purity import draws, is_random
from pliant.ir.loops import Buffer, Extern, LoopProgram, View
from pliant.runtime.cuda.roles import Roles
from pliant.schedule.dependencies import access
from pliant.torch_adapter import OpOverload

_OURS = ("aten", "prims")
_BY_DATA = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


def roles_of(program: LoopProgram, static: Iterable[int] = (), private: Iterable[int] = ()) -> Roles:
    """What the program says, and what only its caller knows."""
    written = {b for computation in program.computations for b in access(computation).writes}
    inputs = list(enumerate(program.inputs))
    return Roles(
        frozenset(static),
        frozenset(k for k, b in inputs if isinstance(b, Buffer) and b in written),
        frozenset(private),
        tuple(k for k, given in inputs if not (isinstance(given, Buffer) and _is_fixed(given))),
        any(isinstance(one, Extern) and _draws(one) for one in program.computations),
    )


def _draws(extern: Extern) -> bool:
    return is_random(extern.target) and draws(extern.target, extern.args, extern.kwargs)


def _is_fixed(b: Buffer) -> bool:
    return all(e.as_int() is not None for e in (*b.shape, *b.strides))


def why_not(program: LoopProgram) -> str | None:
    """What keeps the program from being recorded, or None."""
    for computation in program.computations:
        if isinstance(computation, Extern) and (why := _why_not_extern(computation)):
            return why
    devices = _devices(program)
    elsewhere = [device for device in devices if device.type != "cuda"]
    if elsewhere:
        return f"a tensor on {elsewhere[0]}"
    return None if len(devices) == 1 else "tensors on several GPUs" if devices else "no tensors"


def gpus_of(program: LoopProgram) -> list[torch.device]:
    """The GPUs that its tensors are on."""
    return [device for device in _devices(program) if device.type == "cuda"]


def _devices(program: LoopProgram) -> list[torch.device]:
    given = [*program.inputs, *program.constants, *(o.buffer for o in program.outputs if isinstance(o, View))]
    tensors = {b for b in given if isinstance(b, Buffer)}
    for computation in program.computations:
        touched = access(computation)
        tensors |= touched.reads | touched.writes
    return sorted({b.device for b in tensors}, key=str)


def _why_not_extern(extern: Extern) -> str | None:
    target = extern.target
    if not isinstance(target, OpOverload):
        return f"{getattr(target, '__name__', target)}, which is no operator of PyTorch"
    if target.namespace not in _OURS:
        return f"operator {target}, which may do anything"
    if extern.defines or any(tag in target.tags for tag in _BY_DATA):
        return f"operator {target}, whose results' sizes or numbers depend on data"
    return None
