"""Callables around compiled graphs without a backward, and around those of the parts of a program, at each call.

In:     what runs the graphs, and plain values that say what goes where.
Out:    callables of the list of inputs.
Holds:  the same in the process that compiled the graphs (`runtime.py`, `repeated.py`) and in any that finds them on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant.autograd.around import Call, bump_versions, with_gradients, without_casts
from pliant.autograd.places import MadeOutputs
from pliant.torch_adapter import any_autocast, is_view, set_grad_enabled, without_base
from pliant.wrappers.remade import remade
from pliant.wrappers.wrapper import WROTE

if TYPE_CHECKING:
    from pliant.autograd.endings import Ending
    from pliant.graph.contracts import Runnable

_set_grad, _any_autocast = set_grad_enabled, any_autocast


@remade
def inference(
    run: Runnable, made: MadeOutputs, needs_guard: bool, tensors: bool, bump: list[int], ends: Ending | None
) -> Call:
    """The callable of a program without a backward. `needs_guard`: gradients are recorded around it. `tensors`: nothing
    else is returned. `bump`: the inputs that the graph writes."""
    uncast = without_casts(run)

    def without_grad(inputs: list[Any]) -> list[Any]:
        _set_grad(False)
        try:
            return run(inputs) if _any_autocast() else uncast(inputs)
        finally:
            _set_grad(True)

    def plain(inputs: list[Any]) -> tuple[Any, ...]:
        results = compute(inputs) if guarded or _any_autocast() else uncast(inputs)
        return tuple(map(without_base, results) if not tensors or any(map(is_view, results)) else results)

    guarded = needs_guard or ends is not None
    compute = without_grad if needs_guard else run
    if ends is not None:
        compute = ends.around(compute) if needs_guard else with_gradients(ends.around(without_grad))
    if made.is_plain and not bump:
        return plain
    from pliant.autograd.outputs import OutputMaker  # which most programs do not need

    maker = OutputMaker(made, wrote=bool(bump))

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
    """What the program has between its graphs: hooks on their results, and what is not worth a graph."""
    return lambda inputs: module.forward(*inputs)


@remade
def chain(
    runs: list[Call],
    steps: list[tuple[int, list[int], list[int]]],
    final: list[int | None],
    constants: list[Any],
    more: int,
    undone: list[int],
    written_from: int,
) -> Call:
    """Run the steps on a list of places, the inputs and so many `more`; a place is emptied after its last use. A step is
    which of `runs` it calls, as layers that are alike call the same, what that takes and where what it gives goes. Results are
    what is in the `final` places, or constants where there is none. `undone`: the inputs that an error leaves as they
    were. `written_from`: the step from which on others may have been written."""
    last_use = {place: number for number, (_, takes, _) in enumerate(steps) for place in takes}
    emptied = [[p for p, n in last_use.items() if n == number and p not in final] for number in range(len(steps))]
    calls = [(runs[which], takes, gives) for which, takes, gives in steps]

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        values = [*inputs, *[None] * more]
        before = [(inputs[i], inputs[i].detach().clone()) for i in undone]
        for number, (run, takes, gives) in enumerate(calls):
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
