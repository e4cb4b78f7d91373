"""New memory that stands for what eager gives as a view or as one of the program's own tensors, as long as nobody can tell.

In:     what was made, what it stands for, and the operation that made it.
Out:    a trace that starts again and breaks at that operation, where the difference would show: either is written later, or
        what was made leaves the trace beside what it stands for; and where autograd records a write of an input that the
        program gave other data: behind the graph the caller's tensor is given the data, and no history.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from pliant.capture.graph_breaks import BreakBefore
from pliant.capture.recording.regions import tensors_of
from pliant.capture.signatures import Tracer
from pliant.capture.trace import BreakReason
from pliant.graph.fake_tensor import FakeTensor
from pliant.graph.fake_tensor import memory_of as memory_of_views


class StandIn:
    """Made at a step of the program; `of`: the tensors that it may be. `alone`: it shows wherever it leaves the trace."""

    __slots__ = ("alone", "before", "made", "of", "step", "why")

    def __init__(
        self, step: int, why: BreakReason, made: FakeTensor, of: tuple[FakeTensor, ...], alone: bool = False
    ) -> None:
        self.step, self.why, self.made, self.of, self.alone = step, why, made, of, alone
        self.before = self.state()

    @property
    def tensors(self) -> tuple[FakeTensor, ...]:
        return (self.made, *self.of)

    def state(self) -> Any:
        """Another one once it was written."""
        return versions_of(self.tensors)

    def leaves(self, leaving: Iterable[FakeTensor]) -> bool:
        """Whether it shows among the memory that leaves the trace."""
        if not any(memory is memory_of(self.made) for memory in leaving):
            return False
        return self.alone or any(_is_elsewhere(memory_of(tensor), leaving) for tensor in self.of)


class AssignedData(StandIn):
    """Data that the program gave a tensor from outside at a step (`tensor.data = other`): it shows where autograd records a
    write of it."""

    __slots__ = ()
    tensors = ()

    def __init__(self, step: int, why: BreakReason, tensor: FakeTensor) -> None:
        super().__init__(step, why, tensor, ())

    def state(self) -> Any:
        return self.made.requires_grad, self.made.grad_fn


def check(t: Tracer, values: Iterable[Any]) -> None:
    """Start again with a break where a stand-in would show, in what these values tell of."""
    if not t.stand_ins:
        return
    leaving = [memory_of(value) for value in tensors_of(values)]
    for one in t.stand_ins:
        if one.before != one.state() or one.leaves(leaving):
            raise BreakBefore(one.why, one.step)


def check_identity(t: Tracer, left: Any, right: Any) -> None:
    """Start again where a program asks whether a stand-in is what came in."""
    for one in t.stand_ins:
        if any(left is x for x in one.tensors) and any(right is x for x in one.tensors):
            raise BreakBefore(one.why, one.step)


def check_layout(t: Tracer, tensor: FakeTensor) -> None:
    """Start again where a program asks how memory is laid out that a stand-in has in another way."""
    for one in t.stand_ins:
        if one.alone and memory_of(one.made) is memory_of(tensor):
            raise BreakBefore(one.why, one.step)


def _is_elsewhere(memory: FakeTensor, leaving: Iterable[FakeTensor]) -> bool:
    """Whether the memory is known outside the trace."""
    return memory.node is None or memory.node.op in ("placeholder", "get_attr") or any(memory is x for x in leaving)


def versions_of(tensors: Iterable[FakeTensor]) -> tuple[int, ...]:
    """Others once the memory of one was written."""
    return tuple([one.writes_ for one in tensors])


def is_detached(tensor: FakeTensor) -> bool:
    node = tensor.node
    return node is not None and (node.target in ("detach", torch.detach) or node.target is getattr and "data" in node.args)


def memory_of(tensor: FakeTensor) -> FakeTensor:
    """The tensor whose memory this one is: views and detached ones share it."""
    while is_detached(tensor := memory_of_views(tensor)):
        tensor = tensor.node.args[0].meta["val"]
    return tensor


# ---- results of activation checkpoints that the program writes in place afterwards. In eager the backward makes anew what the
# checkpoint's operators saved, whatever has become of the result. In the graph they are calls as others, of which autograd would
# find the result written: the rest of the program goes on with a copy. Copies of results that nobody writes are not made.
@dataclass(frozen=True, slots=True)
class Checkpointed:
    """A checkpoint's number, that of the one around it, its `results`, and the `end` of what it recorded."""

    number: int
    outer: int | None
    results: list[FakeTensor]
    end: fx.Node

    def returned(self, memory: FakeTensor) -> list[FakeTensor]:
        """Its different results in this memory."""
        return list({id(one): one for one in self.results if memory_of(one) is memory}.values())


def set_apart(done: list[Checkpointed], graph: fx.Graph, written: FakeTensor) -> None:
    """Let the program go on with a copy of the result in whose memory the tensor lies that is to be written."""
    memory = memory_of(written)
    if memory.node is None or "recompute" not in memory.node.meta:
        return
    found = None
    for one in done:  # the innermost, then those around it that return it, too
        if one.end.graph is graph and one.returned(memory) and (found is None or found.outer == one.number):
            found = one
    seen = [] if found is None else found.returned(memory)
    if found is not None and len(seen) == 1 and (seen[0] is memory or seen[0].is_contiguous()):
        _copy(graph, seen[0], found.end)
        for one in done:
            one.results[:] = [result for result in one.results if result is not seen[0]]


def _copy(graph: fx.Graph, seen: FakeTensor, end: fx.Node) -> None:
    made: Any = seen.node
    later, users = iter(reversed(graph.nodes)), dict.fromkeys(made.users)
    behind = {node for node in iter(lambda: next(later), end) if node in users}
    with graph.inserting_after(end):
        copy = graph.call_method("clone", (made,))
    copy.meta.update(val=seen, origin=made.meta.get("origin"))
    made.meta["val"] = seen.fake_mode.described_as(seen)
    made.meta["val"].node = made
    seen.node = copy
    for user in behind:
        user.replace_input_with(made, copy)
