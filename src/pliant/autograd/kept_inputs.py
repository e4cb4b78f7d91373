"""What a program keeps of its inputs for gradients of higher order.

In:     a joint graph, its partition, at each call the inputs.
Out:    `KeptInputs.before(inputs)`: what to keep instead of the inputs; `given_again(kept)`: tensors to compute from.
Holds:  values on which a gradient depends are kept as they were before the program wrote them; of other inputs only a
        description is, so that their memory is free when eager's would be.
Reads on: `function.py`, which keeps them; `higher_order.py`, which computes from them.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.autograd.joint import JointGraph
from pliant.autograd.partition.split import Partition
from pliant.graph.passes.purity import binds_symbols, draws_numbers
from pliant.graph.unbacked import CHECKS


def version(tensor: torch.Tensor) -> int:
    """How often it was written; inference tensors do not count."""
    return 0 if tensor.is_inference() else tensor._version


class KeptInputs:
    """What of its inputs a program keeps for gradients of higher order: the inputs, those it writes as they were.

    `copied`: written inputs whose values gradients depend on. `absent`: inputs of which a description will do, since
    no gradient depends on their values. `unsaved`: inputs that autograd does not watch for writes, since the backward
    does not read them.
    """

    def __init__(self, joint: JointGraph, parts: Partition) -> None:
        inputs = joint.captured.inputs
        tensors = [i for i, one in enumerate(inputs) if isinstance(one.fake, torch.Tensor)]
        written = {write.input for write in joint.plan.writes}
        binds = parts.symbols and any(map(binds_symbols, joint.graph.nodes))
        checked = bool(binds) or any(node.target in CHECKS for node in joint.graph.nodes)
        read = _read_by_results(joint) if checked else _behind(joint, joint.gradients)
        loose = {i for i in tensors if not inputs[i].static and not checked}
        self.copied = sorted(written & read)
        self.absent = [i for i in tensors if i not in read and i in written | loose]
        saved = {s.position for s in parts.saved if s.is_input}
        self.unsaved = [i for i in tensors if i in read and i not in saved and i not in written]
        self.random = any(map(draws_numbers, joint.graph.nodes))

    def before(self, inputs: list[Any]) -> list[Any] | None:
        """The inputs with copies of those that are going to be written; None where the inputs will do."""
        if not self.copied and not self.absent:
            return None
        kept = list(inputs)
        for position in self.copied:
            kept[position] = inputs[position].clone()
        for position in self.absent:
            kept[position] = _Absent(inputs[position])
        return kept

    def versions(self, inputs: Any) -> list[int]:
        return [version(inputs[i]) for i in self.unsaved]


class _Absent:
    """The description of an input that is not kept."""

    __slots__ = ("is_leaf", "layout", "requires_grad")

    def __init__(self, tensor: torch.Tensor) -> None:
        self.layout = (tensor.shape, tensor.stride(), tensor.dtype, tensor.device)
        self.requires_grad, self.is_leaf = tensor.requires_grad, tensor.is_leaf

    def stand_in(self) -> torch.Tensor:
        """A tensor of this description."""
        size, stride, dtype, device = self.layout
        with torch.enable_grad():
            made = torch.empty_strided(size, stride, dtype=dtype, device=device).fill_(int(dtype.is_floating_point))
            made.requires_grad_(self.requires_grad)
            return made if self.is_leaf else made.view_as(made)


def given_again(kept: Any) -> list[Any]:
    """The inputs to compute gradients from once more."""
    return [one.stand_in() if type(one) is _Absent else one for one in kept]


def _read_by_results(joint: JointGraph) -> set[int]:
    """Positions of the inputs on which results that have gradients depend."""
    values: Any = next(iter(joint.graph.find_nodes(op="output"))).args[0]
    return _behind(joint, [values[position] for position in joint.plan.differentiable])


def _behind(joint: JointGraph, ends: list[Any]) -> set[int]:
    """Positions of the inputs on which these nodes depend."""
    queue = [node for node in ends if node is not None]
    found = set(queue)
    for node in queue:
        for argument in _inputs_that_matter(node):
            if argument not in found:
                found.add(argument)
                queue.append(argument)
    return {position for position, node in enumerate(joint.primals) if node in found}


def _inputs_that_matter(node: Any) -> list[Any]:
    """Its arguments; in training, normalization's running statistics only lead to their own new values."""
    if node.target is torch.ops.aten._native_batch_norm_legit_functional.default and node.args[5]:
        return [a for a in node.all_input_nodes if a not in node.args[3:5]]
    return list(node.all_input_nodes)
