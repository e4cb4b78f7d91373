"""A module that is called as the model, and runs a program's graph on the parameters and buffers that it has.

In:     a `Program`.
Out:    the module.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.exporting.hierarchy import module_at
from pliant.exporting.program import BUFFER, PARAMETER, Program
from pliant.exporting.torch_form.call import parameters_of
from pliant.exporting.torch_form.run import Run


def module_of(program: Program) -> torch.nn.Module:
    """A module that is called as the model, and runs the graph on the parameters and buffers that it has."""
    names = parameters_of(program)
    run = Run(program)
    text = f"def forward(self, {', '.join(names)}): return run(self, ({''.join(f'{name}, ' for name in names)}))"
    scope: dict[str, Any] = {"run": run.called}
    exec(compile(text if names else "def forward(self): return run(self, ())", "<an exported program>", "exec"), scope)
    module: torch.nn.Module = type(program.name, (torch.nn.Module,), {"forward": scope["forward"]})()
    for one in program.inputs:
        if one.kind in (PARAMETER, BUFFER):
            _hold(module, one.target, program.state[one.target], one.kind, one.mutated)
    return module


def _hold(root: torch.nn.Module, target: str, tensor: torch.Tensor, kind: str, mutated: bool) -> None:
    path, _, name = target.rpartition(".")
    tensor = tensor.clone() if mutated else tensor
    if kind == PARAMETER:
        module_at(root, path).register_parameter(name, torch.nn.Parameter(tensor, requires_grad=False))
    else:
        module_at(root, path).register_buffer(name, tensor)
