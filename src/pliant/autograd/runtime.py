"""Make a callable of a captured program: joint trace, partition, compile, and the calls into torch's autograd.

In:     a `CapturedGraph` and a compiler of ATen graphs.
Out:    a function of the list of flat inputs that returns the tuple of the program's outputs.
Holds:  outputs relate to inputs and to each other as in eager.
Contract for compiled graphs: results have the strides of their descriptions; inputs other than those written are not
changed, since a saved tensor may be read by a second backward.
Reads on: `training.py`, where gradients are asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.autograd.joint import JointGraph, trace_joint
from pliant.autograd.outputs import OutputMaker
from pliant.autograd.partition.split import Partition, partition
from pliant.autograd.training import bump_versions, outside_autocast, training, written_in_graph
from pliant.debug import events
from pliant.graph.contracts import AtenCompiler, CapturedGraph, Runnable
from pliant.graph.printer import graph_text
from pliant.torch_adapter import without_base

Call = Callable[[list[Any]], tuple[Any, ...]]
_set_grad = torch._C._set_grad_enabled


def build(captured: CapturedGraph, compile_aten: AtenCompiler, config: Any = None) -> Call:
    """The callable. Raises `Unsupported` (or the program's own error) if the program cannot be traced."""
    with events.stage("joint"):
        joint = trace_joint(captured)
    if events.wants("joint"):
        events.record("joint", name=captured.name, text=graph_text(joint.graph))
    with events.stage("partition"):
        parts = partition(joint)
    if events.wants("partition"):
        events.record("partition", name=captured.name, text=_partition_text(parts))
    run = outside_autocast(compile_aten(parts.forward))
    if joint.constants:
        run = _with_constants(run, joint.constants)
    maker = OutputMaker(joint.plan, captured.inputs)
    if parts.backward is None:
        return _inference(captured, joint, run, maker)
    return training(captured, joint, parts, run, maker, compile_aten, build)


def _partition_text(parts: Partition) -> str:
    """Both parts; the forward returns its results and then what it saves."""
    halves = [part for part in (parts.forward, parts.backward) if part is not None]
    return "\n\n".join(f"# {part.name}\n{graph_text(part.graph)}" for part in halves)


def _with_constants(run: Runnable, constants: list[torch.Tensor]) -> Runnable:
    def call(inputs: list[Any]) -> list[Any]:
        inputs.extend(constants)
        return run(inputs)

    return call


def _inference(captured: CapturedGraph, joint: JointGraph, run: Runnable, maker: OutputMaker) -> Call:
    needs_guard = captured.grad_enabled
    bump = written_in_graph(joint.plan)

    def without_grad(inputs: list[Any]) -> list[Any]:
        _set_grad(False)
        try:
            return run(inputs)
        finally:
            _set_grad(True)

    compute = without_grad if needs_guard else run
    if maker.is_plain and not bump:
        return lambda inputs: tuple(map(without_base, compute(inputs)))

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        kept = list(inputs)
        results = list(map(without_base, compute(inputs)))
        bump_versions(kept, bump)
        return maker.make(kept, results)

    return call
