"""What a program keeps of its inputs for gradients of higher order.

In:     a joint graph, its partition, at each call the inputs.
Out:    `KeptInputs.before(inputs)`: what to keep instead of the inputs; `given_again(kept)`: tensors to compute from.
Holds:  values on which a gradient depends are kept as they were before the program wrote them; of other inputs only a
        description is, so that their memory is free when eager's would be. So it is with what another compiled function
        returned, of which a further gradient can be had by calling that again.
Reads on: `function.py`, which keeps them; `higher_order.py`, which computes from them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.autograd.views import version
from pliant.records import dataclass

if TYPE_CHECKING:
    from pliant.autograd.joint import JointGraph
    from pliant.autograd.partition.split import Partition

HALVES = "_pliant_halves"  # of a function of autograd's graph: what a compiled program has for forward and backward
WRITTEN = "one of the variables needed for gradient computation has been modified by an inplace operation:"


def unchanged(tensor: torch.Tensor, expected: int) -> torch.Tensor:
    """The tensor. RuntimeError if its version is another."""
    check_versions([(lambda: tensor, expected, ((-1, -1),))], -1, lambda: -1)
    return tensor


def check_versions(watched: Any, asked: int, needed: Callable[[], int]) -> None:
    """RuntimeError if one of these (reference, version, gradients that read it) was written since, as eager says. `asked`:
    results whose gradients are given, `needed`: inputs whose gradients are wanted, as bits."""
    for reference, expected, ways in watched:
        tensor = reference()
        if tensor is None or version(tensor) == expected:
            continue
        if any(results & asked and inputs & needed() for results, inputs in ways):
            raise RuntimeError(
                f"{WRITTEN} [{tensor.type()} {list(tensor.shape)}] is at version {tensor._version}; expected version {expected} "
                "instead. It is an input or an output of a compiled function."
            )


def any_written(watched: Any) -> bool:
    """Whether one of these was written since, whichever gradients read it."""
    for reference, expected, _ in watched:
        tensor = reference()
        if tensor is not None and version(tensor) != expected:
            return True
    return False


@dataclass(frozen=True, slots=True)
class KeptInputs:
    """What of its inputs a program keeps for gradients of higher order: the inputs, those it writes as they were.

    `copied`: written inputs whose values gradients depend on. `late`: those of them whose versions do not show it, so that
    gradients read what is in them when they are computed, even if it was written since. `absent`: inputs of which a description will do, since
    no gradient depends on their values. `unsaved`: inputs that autograd does not watch for writes, since the backward
    does not read them. `read`: for each of those the tangents, as bits, whose gradients depend on its values. `passed`:
    those of them that may be the results of other compiled functions. `random`: whether the program draws numbers;
    `gpus`: on which GPUs, by number. `replays`: whether it may be called again.
    """

    copied: list[int]
    late: list[int]
    absent: list[int]
    unsaved: list[int]
    read: list[int]
    passed: list[int]
    random: bool
    gpus: tuple[int, ...]
    replays: bool

    @classmethod
    def of(cls, joint: JointGraph, parts: Partition) -> KeptInputs:
        from pliant.graph.generator_states import gpus_in
        from pliant.graph.passes.purity import binds_symbols, draws_numbers
        from pliant.graph.unbacked import CHECKS

        inputs = joint.captured.inputs
        tensors = [i for i, one in enumerate(inputs) if isinstance(one.fake, torch.Tensor)]
        moved = joint.captured.attributes.get("moved_inputs", ())  # to other memory: `tensor.data = other`
        written = {write.input for write in joint.plan.writes} | set(moved)
        hidden = {write.input for write in joint.plan.writes if not write.counted}
        binds = parts.symbols and any(map(binds_symbols, joint.graph.nodes))
        checked = bool(binds) or any(node.target in CHECKS for node in joint.graph.nodes)
        read = _read_by_results(joint) if checked else _behind(joint, joint.gradients)
        loose = {i for i in tensors if not inputs[i].static and not checked}
        saved = {s.position for s in parts.saved if s.is_input}
        unsaved = [i for i in tensors if i in read and i not in saved and i not in written]
        absent = [i for i in tensors if i not in read and i in written | loose]
        return cls(
            copied=sorted(written & read),
            late=sorted(hidden & read),
            absent=absent,
            unsaved=unsaved,
            read=_tangents_of(joint, unsaved),
            passed=[i for i in unsaved if inputs[i].fake.requires_grad and not _is_leaf(inputs[i])],
            random=any(map(draws_numbers, joint.graph.nodes)),
            gpus=gpus_in(filter(draws_numbers, joint.graph.nodes)),
            replays=not joint.plan.writes and not checked and _read_by_results(joint).isdisjoint(absent),
        )

    @property
    def whole(self) -> bool:
        """Whether the inputs themselves are kept."""
        return not self.copied and not self.absent and not self.passed

    def before(self, inputs: list[Any]) -> list[Any] | None:
        """The inputs with copies of those that are going to be written, then those of `late` as they will be; None where
        the inputs will do."""
        if self.whole:
            return None
        kept = list(inputs)
        if self.copied:
            with torch.enable_grad():  # the program may start where nothing is recorded
                for position in self.copied:
                    kept[position] = inputs[position].clone()
        for position in self.absent:
            kept[position] = _Absent(inputs[position])
        for position in self.passed:
            kept[position] = _Passed.of(inputs[position])
        kept.extend(inputs[position].detach() for position in self.late)
        return kept

    def versions(self, inputs: Any) -> list[int]:
        """Of those of `unsaved`: inputs, or what is kept in their place."""
        try:
            return [inputs[i]._version for i in self.unsaved]
        except RuntimeError:  # of an inference tensor
            return [0 if type(one := inputs[i]) is not _Passed and one.is_inference() else one._version for i in self.unsaved]

    def changed(self, inputs: Any, versions: list[int], asked: int) -> bool:
        """Whether an input that these tangents' gradients depend on was written since."""
        compared = zip(self.read, self.versions(inputs), versions)
        return any(bits & asked and now != before for bits, now, before in compared)


def _tangents_of(joint: JointGraph, unsaved: list[int]) -> list[int]:
    """For each of these inputs the tangents, as bits, whose gradients depend on its values."""
    from pliant.autograd.partition.partial import reads

    if not unsaved:
        return []
    found = reads(joint.graph, joint.tangents, [g for g in joint.gradients if isinstance(g, fx.Node)])
    return [found[joint.primals[i]] for i in unsaved]


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


class _Passed:
    """What a compiled function returned, or a view of it: where to get it from should it be gone."""

    __slots__ = ("function", "made", "number", "reference", "view")

    def __init__(self, tensor: torch.Tensor, result: torch.Tensor) -> None:
        self.reference = weakref.ref(tensor)
        self.function, self.number = result.grad_fn, result.output_nr
        offset = tensor.storage_offset() - result.storage_offset()
        self.view = None if tensor is result else (tensor.shape, tensor.stride(), offset)
        self.made: torch.Tensor | None = None

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Any:
        """The tensor itself where it comes from elsewhere, or was written or given hooks since."""
        base = tensor._base if tensor._is_view() else None
        result = tensor if base is None else base
        halves = getattr(result.grad_fn, HALVES, None)
        if (
            halves is None
            or not halves.kept.replays
            or tensor._version
            or tensor._backward_hooks
            or result._backward_hooks
        ):
            return tensor
        return cls(tensor, result)

    @property
    def _version(self) -> int:
        tensor = self.reference()
        return 0 if tensor is None else version(tensor)

    def tensor(self) -> torch.Tensor:
        found = self.reference() if self.made is None else self.made
        if found is None:
            function: Any = self.function
            found = getattr(function, HALVES).results_again(function)[self.number]
            if self.view is not None:
                size, stride, offset = self.view
                found = found.as_strided(size, stride, found.storage_offset() + offset)
            self.made = found
        return found


def _is_leaf(one: Any) -> bool:
    described = one.example if isinstance(one.example, torch.Tensor) else one.fake
    return bool(described.is_leaf)


def given_again(kept: Any) -> list[Any]:
    """The inputs to compute gradients from once more."""
    return [one.stand_in() if type(one) is _Absent else one.tensor() if type(one) is _Passed else one for one in kept]


def _read_by_results(joint: JointGraph) -> set[int]:
    """Positions of the inputs on which results that have gradients depend."""
    results = joint.results
    return _behind(joint, [results[position] for position in joint.plan.differentiable])


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


_aten = torch.ops.aten
_NORMALIZATION = _aten._native_batch_norm_legit_functional.default


def _inputs_that_matter(node: Any) -> list[Any]:
    """Its arguments; in training, normalization's running statistics only lead to their own new values."""
    if node.target is _NORMALIZATION and node.args[5]:
        return [a for a in node.all_input_nodes if a not in node.args[3:5]]
    return list(node.all_input_nodes)
