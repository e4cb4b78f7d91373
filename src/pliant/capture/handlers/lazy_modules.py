"""Modules whose first call makes their parameters: they are made while capturing, and the capture starts again.

In:     the call of the hook that infers the parameters of a lazy module.
Out:    none: the module is then an ordinary one.
Holds:  what eager would make at this call: nothing that the program did before has drawn random numbers or written what
        the module reads. A module of the program's own infers from tensors that the caller passed.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_map

from pliant.capture.graph_breaks import StartAgain
from pliant.capture.handlers.table import Rows
from pliant.capture.signatures import Args, Kwargs, Tracer
from pliant.capture.value_kinds import concrete, is_symbolic
from pliant.errors import Unsupported
from pliant.graph.fake_tensor import is_fake
from pliant.guards.standard import standard_globals
from pliant.torch_adapter import DisableTorchFunction, below_python_dispatch, infer_parameters

ROWS = Rows()
handles = ROWS.handles


@handles(infer_parameters)
def _infer_parameters(t: Tracer, args: Args, kwargs: Kwargs) -> None:
    owner, module, *given = args
    own = not standard_globals(type(module).initialize_parameters.__globals__)
    if t.has_effects() or owner is not module or not t.world.is_foreign(module):
        raise Unsupported("the first call of a lazy module, which makes its parameters", kind="lazy-module")
    real = tree_map(lambda value: _real(t, value, own), [t.internalize(one) for one in given])
    with DisableTorchFunction(), below_python_dispatch():
        infer_parameters(module, module, *real)
    raise StartAgain


def _real(t: Tracer, value: Any, own: bool) -> Any:
    """A tensor with the sizes of the one in the program; that one itself where elements may matter."""
    if is_symbolic(value):
        return concrete(value)
    if not is_fake(value):
        return value
    example = t.inputs.example_of(value)
    if example is not None:
        return example
    if own:
        raise Unsupported("a lazy module of the program infers from what the program computed", kind="lazy-module")
    sizes = [concrete(n) for n in value.size_]
    with DisableTorchFunction(), below_python_dispatch():
        return torch.zeros(sizes, dtype=value.dtype_, device=value.device_)
