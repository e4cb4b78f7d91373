"""Results of activation checkpoints that the program writes in place afterwards.

In:     what a checkpoint returned, when it is done; a tensor before it is written.
Out:    a copy in the graph, behind the checkpoint, which the rest of the program goes on with.
Holds:  in eager the backward makes anew what the checkpoint's operators saved, whatever has become of the result. In the
        graph they are calls as others, of which autograd would find the result written. Copies of results that nobody
        writes are not made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import fx

from pliant.capture.recording.stand_ins import memory_of
from pliant.graph.fake_tensor import FakeTensor


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
