"""Callables around compiled graphs without a backward, and around those of the parts of a program, at each call.

In:     what runs the graphs, and plain values that say what goes where.
Out:    callables of the list of inputs.
Holds:  the same in the process that compiled the graphs (`runtime.py`, `repeated.py`) and in any that finds them on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant import torch_adapter
from pliant.autograd.around import Call, bump_versions, with_gradients
from pliant.autograd.outputs import MadeOutputs, OutputMaker
from pliant.autograd.refused import FREED, error_of
from pliant.autograd.wanted import gets_somewhere
from pliant.graph.contracts import Runnable
from pliant.records import dataclass
from pliant.torch_adapter import set_grad_enabled, without_base, without_bases
from pliant.wrappers.remade import remade
from pliant.wrappers.wrapper import WROTE

_set_grad = set_grad_enabled


@remade
def inference(
    run: Runnable, made: MadeOutputs, needs_guard: bool, tensors: bool, bump: list[int], ends: Ending | None
) -> Call:
    """The callable of a program without a backward. `needs_guard`: gradients are recorded around it. `tensors`: nothing
    else is returned. `bump`: the inputs that the graph writes."""
    maker = OutputMaker(made, wrote=bool(bump))

    def without_grad(inputs: list[Any]) -> list[Any]:
        _set_grad(False)
        try:
            return run(inputs)
        finally:
            _set_grad(True)

    compute = without_grad if needs_guard else run
    if ends is not None:
        compute = _with_ends(compute, ends) if needs_guard else with_gradients(_with_ends(without_grad, ends))
    if maker.is_plain and not bump:
        if tensors:
            return lambda inputs: without_bases(compute(inputs))
        return lambda inputs: tuple(map(without_base, compute(inputs)))

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        kept = list(inputs)
        first_made = maker.start(inputs) if maker.first else None
        results = list(map(without_base, compute(inputs)))
        bump_versions(kept, bump)
        return maker.make(kept, results, first_made)

    return call


@remade
def with_constants(run: Runnable, constants: list[torch.Tensor]) -> Runnable:
    """`run`, which takes constants of the program behind its inputs."""

    def call(inputs: list[Any]) -> list[Any]:
        inputs.extend(constants)
        return run(inputs)

    return call


@remade
def as_it_is(module: Any) -> Call:
    """What the program has between its graphs: hooks on their results."""
    return lambda inputs: module.forward(*inputs)


class _Ending(torch.autograd.Function):
    """A result whose history leads to no input: it requires gradients all the same. Asking for these does nothing, or,
    where that history was written over (`why` says so) or was freed, is an error. `freeing`: of all results of the call.
    """

    @staticmethod
    def forward(ctx: Any, why: str, freeing: _Freeing, number: int, result: torch.Tensor, *sources: torch.Tensor) -> torch.Tensor:
        ctx.why, ctx.freeing, ctx.number = why, freeing, number
        ctx.mark_dirty(result)
        return result

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


@dataclass(frozen=True, slots=True)
class Ending:
    """Results that require gradients of which asking for is `refused`, or leads nowhere: position and the inputs that they
    depend on. `sharing`: of each in turn, as in `JointGraph`."""

    refused: str
    sources: dict[int, list[int]]
    sharing: list[int]


def _with_ends(run: Runnable, ends: Ending) -> Runnable:
    ending: Callable[..., torch.Tensor] = _Ending.apply
    leaf = torch.empty(0, requires_grad=True)  # in place of those that the program made and kept for itself

    def call(inputs: list[Any]) -> list[Any]:
        given = list(inputs)
        results = list(run(inputs))
        freeing = _Freeing(ends.sharing)
        for number, (position, reached) in enumerate(ends.sources.items()):
            starts = [given[i] for i in reached] if ends.refused and reached else [leaf]
            results[position] = ending(ends.refused, freeing, number, without_base(results[position]), *starts)
        return results

    return call


@remade
def chain(
    steps: list[tuple[Call, list[int], list[int]]],
    final: list[int | None],
    constants: list[Any],
    more: int,
    undone: list[int],
    written_from: int,
) -> Call:
    """Run the steps on a list of places, the inputs and so many `more`; a place is emptied after its last use. Results are
    what is in the `final` places, or constants where there is none. `undone`: the inputs that an error leaves as they
    were. `written_from`: the step from which on others may have been written."""
    last_use = {place: number for number, (_, takes, _) in enumerate(steps) for place in takes}
    emptied = [[p for p, n in last_use.items() if n == number and p not in final] for number in range(len(steps))]

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        values = [*inputs, *[None] * more]
        before = [(inputs[i], inputs[i].detach().clone()) for i in undone]
        for number, (run, takes, gives) in enumerate(steps):
            given = [values[place] for place in takes]
            for place in emptied[number]:
                values[place] = None
            try:
                found = run(given)
            except Exception as error:
                for tensor, value in before if number else ():
                    tensor.detach().copy_(value)
                if number >= written_from:
                    setattr(error, WROTE, True)
                raise
            for place, value in zip(gives, found):
                values[place] = value
        return tuple(constant if place is None else values[place] for place, constant in zip(final, constants))

    return call


@remade
def joined(rest: Call | None, places: list[int], native: list[Callable[[list[Any]], None]], bumped: list[int]) -> Call:
    """The rest of the program on the inputs at these places, then the parts; `bumped`: the inputs that these write."""

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        results = rest([inputs[k] for k in places]) if rest is not None else ()
        for run in native:
            run(inputs)
        bump_versions(inputs, bumped)
        return results

    return call
