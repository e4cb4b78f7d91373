"""Results that require gradients though there is no backward: asking for theirs leads nowhere, or is an error.

In:     which results these are.
Out:    `Ending`: what runs a graph gives them a history.
Holds:  as in `calls.py`, which loads this where a program has such results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant import torch_adapter
from pliant.autograd.refused import FREED, error_of
from pliant.autograd.wanted import gets_somewhere
from pliant.autograd_torch_adapter import apart
from pliant.graph.contracts import Runnable
from pliant.records import dataclass
from pliant.torch_adapter import without_base


@dataclass(frozen=True, slots=True)
class Ending:
    """Results that require gradients of which asking for is `refused`, or leads nowhere: position and the inputs that they
    depend on. `sharing`: of each in turn, as in `JointGraph`."""

    refused: str
    sources: dict[int, list[int]]
    sharing: list[int]

    def around(self, run: Runnable) -> Runnable:
        """What runs the graph, whose results have these histories."""
        ending: Callable[..., torch.Tensor] = _Ending.apply
        leaf = torch.empty(0, requires_grad=True)  # in place of those that the program made and kept for itself

        def call(inputs: list[Any]) -> list[Any]:
            given = list(inputs)
            results = list(run(inputs))
            freeing = _Freeing(self.sharing)
            for number, (position, reached) in enumerate(self.sources.items()):
                starts = [given[i] for i in reached] if self.refused and reached else [leaf]
                results[position] = ending(self.refused, freeing, number, without_base(results[position]), *starts)
            return results

        return call


class _Ending(torch.autograd.Function):
    """A result whose history leads to no input: it requires gradients all the same. Asking for these does nothing, or,
    where that history was written over (`why` says so) or was freed, is an error. `freeing`: of all results of the call.
    """

    @staticmethod
    def forward(ctx: Any, why: str, freeing: _Freeing, number: int, result: torch.Tensor, *sources: torch.Tensor) -> torch.Tensor:
        ctx.why, ctx.freeing, ctx.number = why, freeing, number
        return apart(result)

    @staticmethod
    def backward(ctx: Any, tangent: Any) -> Any:
        if ctx.why and gets_somewhere(ctx.next_functions):
            raise error_of(ctx.why)
        ctx.freeing.ask(ctx.number)
        return (None,) * len(ctx.needs_input_grad)


class _Freeing:
    """What eager frees with the gradients of results. `sharing`: of each, as bits, those whose gradients read a saved tensor
    that its own do."""

    def __init__(self, sharing: list[int]) -> None:
        self.sharing, self.used = sharing, 0

    def ask(self, number: int) -> None:
        if self.used & self.sharing[number]:
            raise RuntimeError(FREED)
        if not torch_adapter.engine_keeps_graph():
            self.used |= 1 << number
