"""A module with a program's parameters and buffers at the model's own names.

In:     a `Program`.
Out:    `Unflattened`: its call runs the graph with the tensors that the module has then.
Holds:  parameters are the program's own tensors, buffers that calls write are copies: the program stays as it is. Results
        require no gradients, as those of the program.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.exporting.program import BUFFER, CONSTANT, PARAMETER, Program
from pliant.exporting.running import interpreted


class Unflattened(torch.nn.Module):
    """The program as a hierarchy of modules."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._caller = interpreted(program)
        self._targets = [(one.kind, one.target) for one in program.inputs if one.leaf is None]
        self._constants = {one.target: program.state[one.target] for one in program.inputs if one.kind == CONSTANT}
        for one in program.inputs:
            tensor = program.state.get(one.target)
            module, _, name = one.target.rpartition(".")
            if one.kind == PARAMETER and tensor is not None:
                module_at(self, module).register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
            elif one.kind == BUFFER and tensor is not None:
                module_at(self, module).register_buffer(name, tensor.clone() if one.mutated else tensor)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self._caller.state = [self._held(kind, target) for kind, target in self._targets]
        return self._caller(*args, **kwargs)

    def _held(self, kind: str, target: str) -> torch.Tensor:
        if kind == CONSTANT:
            return self._constants[target]
        module, _, name = target.rpartition(".")
        found = getattr(module_at(self, module), name)
        assert isinstance(found, torch.Tensor)
        return found


def module_at(root: torch.nn.Module, path: str) -> torch.nn.Module:
    """The module at a dotted name, made where there is none."""
    for name in filter(None, path.split(".")):
        if name not in root._modules:
            root.add_module(name, torch.nn.Module())
        child = root._modules[name]
        assert child is not None
        root = child
    return root
