"""What belongs around a graph's callable, with a backward or without.

In:     a callable of the list of inputs.
Out:    one that turns off casts, counts writes of inputs or does not, turns gradients on.
Holds:  the same in the process that compiled the graph and in any that finds it on disk; it loads nothing that has to do with
        gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant import torch_adapter
from pliant.torch_adapter import any_autocast, no_autocast, without_base
from pliant.wrappers.remade import call_that_made, remade

if TYPE_CHECKING:
    from pliant.graph.contracts import Runnable

Call = Callable[[list[Any]], tuple[Any, ...]]


@remade
def outside_autocast(run: Runnable) -> Runnable:
    """Casts are in the graph already: `torch.autocast` around the call, or around the backward, must not cast again."""

    def call(inputs: list[Any]) -> list[Any]:
        if not any_autocast():
            return run(inputs)
        with no_autocast():
            return run(inputs)

    return call


def without_casts(run: Runnable) -> Runnable:
    """What `outside_autocast` calls, for who has asked whether there is autocast; `run` itself if that did not make it."""
    made = call_that_made(run)
    found: Runnable = made.args[0] if made is not None and made.maker == outside_autocast.__name__ else run
    return found


@remade
def uncounted(run: Runnable) -> Runnable:
    """`run`, its writes of inputs not counted in their versions."""

    def call(inputs: list[Any]) -> list[Any]:
        with torch_adapter.uncounted_writes():
            return run(inputs)

    return call


def bump_versions(inputs: list[Any], written: list[int]) -> None:
    if written:
        counted = [inputs[position] for position in written]
        if torch.is_inference_mode_enabled():  # elsewhere nobody may write tensors that have no version
            counted = [one for one in counted if not one.is_inference()]
        torch.autograd.graph.increment_version(counted)


@remade
def counting_writes(run: Runnable, written: list[int]) -> Runnable:
    """`run`, whose results at these places, each named once a write, have the versions of tensors that were written."""

    def call(inputs: list[Any]) -> list[Any]:
        results = list(run(inputs))
        for position in written:
            results[position] = without_base(results[position])  # before it is counted: it starts anew
        bump_versions(results, written)
        return results

    return call


@remade
def asking_writes(run: Call, recorded: list[int]) -> Call:
    """`run`, an error before anything is done where autograd refuses writes of inputs at these places.

    Which views of several results are, or of custom functions, guards cannot ask. Eager raises at the write itself, with
    earlier writes done: it is to do the call.
    """

    def call(inputs: list[Any]) -> tuple[Any, ...]:
        for position in recorded:
            if torch_adapter.forbids_writes(inputs[position]):
                raise RuntimeError("autograd refuses a write of an input")
        return run(inputs)

    return call


def with_gradients(run: Callable[..., Any]) -> Callable[..., Any]:
    """`run` whose results get a history though the program starts where gradients are off: it turns them on inside."""

    def call(*inputs: Any) -> Any:
        torch_adapter.set_grad_enabled(True)
        try:
            return run(*inputs)
        finally:
            torch_adapter.set_grad_enabled(False)

    return call
