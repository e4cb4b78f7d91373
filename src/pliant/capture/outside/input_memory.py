"""The memory of inputs: which are one tensor, which the program writes, and what has to hold of others, and of views, then.

In:     the inputs of a graph, when the trace is done.
Out:    guards; breaks where eager refuses a write.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.capture.graph_breaks import GraphBreak, StartAgain
from pliant.capture.outside.origins import is_drawn
from pliant.capture.signatures import World
from pliant.capture.structures import several
from pliant.capture.value_kinds import is_symbolic
from pliant.dispatch.dynamic_policy import DynamicPolicy
from pliant.graph.contracts import GraphInput
from pliant.graph.fake_mode import FakeMode
from pliant.graph.fake_tensor import FakeTensor, base_of, is_fake
from pliant.graph.writes import is_written
from pliant.guards import facts
from pliant.guards.kinds import Kind
from pliant.guards.parts import root_of
from pliant.guards.sources import AttributeSource, MethodSource, Source
from pliant.symbolic.shape_env import ShapeEnv
from pliant.torch_adapter import DisableTorchFunction


class InputMemory:
    """What `Inputs` knows of memory."""

    world: World
    mode: FakeMode
    shape_env: ShapeEnv
    inputs: list[GraphInput]
    told: list[FakeTensor]
    policy: DynamicPolicy
    _by_tensor: dict[int, tuple[torch.Tensor, list[FakeTensor]]]
    _examples: dict[int, torch.Tensor]
    _whole: list[GraphInput]  # those whose memory is copied with them

    # ---- one tensor, several sources
    def _is_one(self, value: torch.Tensor, source: Source, first: Source | None, fake: FakeTensor) -> bool:
        """Whether it matters, or costs nothing, that a second way leads to the same tensor."""
        if value.layout is not torch.strided:
            return True
        apart = first is not None and self.world.twins.may_be_apart(source, first)
        if not apart and all(root_of(s).is_held or self.world.is_of_module(s) for s in (source, first) if s):
            return True
        return self.policy.is_one(source) or is_written(fake) or self.world.is_told_apart(fake)

    def one_if_shared(self, value: Any) -> None:
        """It matters which tensor it is: if several inputs are this one, the capture starts again with one."""
        example = self._examples.get(id(value))
        known = self._by_tensor[id(example)][1] if example is not None else []
        if len(known) > 1:
            self.policy.note_one(s for fake in known if (s := self.world.source_of(fake)) is not None)
            raise StartAgain

    def same_if_shared(self, left: Any, right: Any) -> None:
        """Two values that were found to be different ones: not so if they are inputs for one tensor."""
        example, other = self._examples.get(id(left)), self._examples.get(id(right))
        if example is not None and example is other:
            self.one_if_shared(left)
        elif example is not None and other is not None:
            self.policy.note_apart(example, other, self.world.location())

    def check_shared(self) -> None:
        """Tensors that are several inputs are only read."""
        for _, known in self._by_tensor.values():
            if len(known) > 1 and any(is_written(fake) or any(fake is one for one in self.told) for fake in known):
                self.one_if_shared(known[0])

    # ---- written, and copied
    def guard_memory(self) -> None:
        """Tensors that the program writes share no memory with others, as now (a graph is made for one or the other)."""
        with DisableTorchFunction():  # some questions of every input: who records the program is not asked
            self._guard_memory()

    def _guard_memory(self) -> None:
        self.check_shared()
        self._guard_flags()
        if len(self._whole) > 1:
            sources = tuple(i.source for i in self._whole)
            self.world.guard(sources[0], Kind.SEPARATE, (sources, ()))
        tensors = [i for i in self.inputs if i.kind == "tensor" and i.example.layout is torch.strided and not is_drawn(i.source)]
        written = [i for i in tensors if is_written(i.fake)]
        if not written or len(tensors) < 2:
            return
        passive = [i for i in tensors if not is_written(i.fake)]
        if self._share_now(tensors) or not facts.separate(
            [i.example for i in written], [i.example for i in passive], frozenset()
        ):
            return  # left to who compiles the graph
        for held in (True, False):  # held tensors among themselves: checked when one of them changes
            mine, others = (
                tuple(i.source for i in group if not held or root_of(i.source).is_held)
                for group in (written, passive)
            )
            if len(mine) + len(others) > 1 and mine:
                self.world.guard(mine[0], Kind.SEPARATE, (mine, others))
            if all(root_of(i.source).is_held for i in tensors):
                return

    def is_apart_from_written(self, fake: FakeTensor) -> bool:
        """Whether an input shares no memory with those that were written so far, which guards say from now on."""
        written = [one for one in self.inputs if one.kind == "tensor" and is_written(one.fake)]
        source, tensors = self.world.source_of(fake), [one.example for one in written]
        if source is None or any(tensor.layout is not torch.strided for tensor in tensors):
            return not written
        with DisableTorchFunction():
            apart = facts.separate([self._examples[id(fake)]], tensors, frozenset())
        if apart and written:
            self.world.guard(source, Kind.SEPARATE, ((source,), tuple([one.source for one in written])))
        return apart

    def guard_whole(self, memory: FakeTensor) -> None:
        """The memory of an input is copied with all that lies in it: the input alone, as nothing but it is in there."""
        one = next((i for i in self.inputs if i.kind == "tensor" and i.fake is memory), None)
        if one is None or one in self._whole:
            return
        size = memory.numel() * memory.dtype_.itemsize
        with DisableTorchFunction():
            example = one.example
            fills = example.layout is torch.strided and example.untyped_storage().nbytes() == example.nbytes
        if not fills or not facts.separate((i.example for i in (*self._whole, one)), (), frozenset()):
            raise GraphBreak("unknown-call", "a deep copy of a part of memory, or of tensors that share memory")
        self._whole.append(one)
        self.world.guard(MethodSource(one.source, "storage_offset"), Kind.EQUALS, 0)
        nbytes = MethodSource(MethodSource(one.source, "untyped_storage"), "nbytes")
        if is_symbolic(size):
            self.world.guard(nbytes, Kind.EXPRESSION, self.shape_env.expr_of(size))
        else:
            self.world.guard(nbytes, Kind.EQUALS, size)

    def check_write(self, target: Any) -> None:
        """Break where eager refuses a write of an input, or of a view of it, whatever its values, and where it leaves behind the
        hooks of an input that is a view: a view that was written has another function."""
        for fake in several(target):
            if is_fake(fake) and id(base_of(fake)) in self.mode.under_results:
                raise GraphBreak("tensor-error", "a custom function's view is written in place")
            if is_fake(fake) and fake.requires_grad and torch.is_grad_enabled():
                example = self._examples.get(id(base_of(fake)))
                if example is not None and _is_view_of_leaf(example):
                    raise GraphBreak("tensor-error", "a view of a leaf that requires grad is written in place")
                if example is not None and example._is_view() and example._backward_hooks:
                    raise GraphBreak("backward-hook", "a view that has hooks is written in place")

    def _guard_flags(self) -> None:
        """What eager looks at before it writes an input, or makes views of one while nothing is recorded."""
        for one in self.inputs:
            if one.kind != "tensor":
                continue
            written, example = is_written(one.fake), one.example
            if written:
                self._guard_inference(one)
            if written and example.requires_grad and not example.is_leaf:  # eager refuses to write a view of a leaf
                self._guard_base(one, "is_leaf")
            # A view that is made while nothing is recorded requires gradients where the input's base does. Parameters are no views.
            unrecorded = id(base_of(one.fake)) in self.mode.viewed_unrecorded
            if unrecorded and example.requires_grad and not one.fake.is_parameter_:
                self._guard_base(one, "requires_grad")

    def _guard_inference(self, one: GraphInput) -> None:
        """Outside inference mode, where it is an error to write tensors that were made there, a written argument is as
        it was. A held one is not asked: it never changes, and another is hardly put in its place."""
        if not torch.is_inference_mode_enabled() and not root_of(one.source).is_held:
            self.world.guard(MethodSource(one.source, "is_inference"), Kind.EQUALS, one.example.is_inference())

    def _guard_base(self, one: GraphInput, flag: str) -> None:
        """Whether the input is a view, and a flag of what it is a view of."""
        base = one.example._base
        self.world.guard(MethodSource(one.source, "_is_view"), Kind.EQUALS, base is not None)
        if base is not None:
            self.world.guard(AttributeSource(AttributeSource(one.source, "_base"), flag), Kind.EQUALS, getattr(base, flag))
            if is_written(one.fake) and not one.example._backward_hooks:
                self.world.guard(AttributeSource(one.source, "_backward_hooks"), Kind.EMPTY)

    def _share_now(self, tensors: list[GraphInput]) -> bool:
        """Whether a tensor of a held object lies in the same memory as another, though perhaps beside it."""
        held: list[int] = []
        passed: list[int] = []
        for one in tensors:
            place = held if root_of(one.source).is_held else passed
            place.append(one.example.untyped_storage()._cdata)
        return len(set(held)) < len(held) or not set(held).isdisjoint(passed)

    def guard_offsets(self) -> None:
        """The program asks where tensors start in their memory."""
        self.world.log_unlike()
        for one in self.inputs:
            if one.kind == "tensor" and one.example.layout is torch.strided:
                with DisableTorchFunction():
                    offset = one.example.storage_offset()
                self.world.guard(MethodSource(one.source, "storage_offset"), Kind.EQUALS, offset)


def _is_view_of_leaf(tensor: torch.Tensor) -> bool:
    with DisableTorchFunction():
        base = tensor._base
    return base is not None and base.is_leaf and base.requires_grad and tensor.requires_grad
