"""Make the caller's outputs from what a compiled graph returned.

In:     an `OutputPlan`, at each call the inputs and the graph's results.
Out:    the tuple of outputs; inputs that autograd must see written are written.
Holds:  views are made of the caller's own tensors by the calls that eager makes, under the grad mode of those calls.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, assert_never

import torch

from pliant.autograd.places import FromInput, FromResult, Literal, MadeOutputs, Output, SameAs, ViewOf, changed_in_place
from pliant.autograd.views import ViewStep
from pliant.torch_adapter import set_grad_enabled
from pliant.wrappers.wrapper import WROTE

# inputs, results, outputs made so far -> an output
_Get = Callable[[Sequence[Any], Any, list[Any]], Any]


class OutputMaker:
    """`wrote`: the graph writes inputs before outputs are made."""

    def __init__(self, made: MadeOutputs, wrote: bool) -> None:
        self.copies, self.inference = made.copies, made.inference
        self.wrote = wrote or bool(made.copies)
        self.getters = [_getter(one) for one in made.outputs]
        order = _order(made.outputs)
        self.first = [place for place in order if place in made.first]
        self.early = [place for place in order if place in made.early]
        self.order = [place for place in order if place not in made.early and place not in made.first]

    def start(self, inputs: list[Any]) -> list[Any]:
        """The outputs that are made before the program runs, at their places."""
        made: list[Any] = [None] * len(self.getters)
        for place in self.first:
            made[place] = self.getters[place](inputs, (), made)
        return made

    def make(self, inputs: list[Any], results: Any, made: list[Any] | None = None) -> tuple[Any, ...]:
        """The outputs; `made`: of `start`. An error says whether inputs were written: the program is not run once more on such."""
        try:
            return self._make(inputs, results, made or self.start(inputs))
        except Exception as error:
            if self.wrote:
                setattr(error, WROTE, True)
            raise

    def _make(self, inputs: list[Any], results: Any, made: list[Any]) -> tuple[Any, ...]:
        for place in self.early:
            made[place] = self.getters[place](inputs, results, made)
        if self.copies:
            self._copy(inputs, results)
        if self.inference:
            results = list(results)
            with torch.inference_mode():
                for position in self.inference:
                    results[position] = _copied(results[position])
        for place in self.order:
            made[place] = self.getters[place](inputs, results, made)
        return tuple(made)

    def _copy(self, inputs: list[Any], results: Any) -> None:
        """Under autograd, which is to see these writes, whatever the mode that the program starts and ends in."""
        before = torch.is_grad_enabled()
        set_grad_enabled(True)
        try:
            for target, position, more in self.copies:
                inputs[target].copy_(results[position])
                torch.autograd.graph.increment_version([inputs[target]] * more)
        finally:
            set_grad_enabled(before)


def _copied(result: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides, whose elements may lie apart or be one: a copy of all memory that it spans."""
    steps = [(size - 1) * stride for size, stride in zip(result.shape, result.stride())]
    span = sum(steps) + 1 if result.numel() else 0
    return result.as_strided((span,), (1,)).clone().as_strided(result.shape, result.stride())


def _order(outputs: list[Output]) -> list[int]:
    """Positions of outputs, each after the one that it is made of: first those that are made of none that changes its shape."""
    chains = []
    for place in range(len(outputs)):
        chain = [place]
        while (before := _made_of(outputs[chain[-1]])) is not None:
            chain.append(before)
        chains.append(chain[::-1])
    chains.sort(key=lambda chain: any(map(changed_in_place, map(outputs.__getitem__, chain))))
    return list(dict.fromkeys(place for chain in chains for place in chain))


def _made_of(output: Output) -> int | None:
    source = output.source if isinstance(output, ViewOf) else output
    return source.output if isinstance(source, SameAs) else None


def inner_views(inner: dict[int, ViewOf]) -> dict[int, _Get]:
    """How to make the results that are views."""
    return {position: _getter(view) for position, view in inner.items()}


def _getter(output: Output) -> _Get:
    match output:
        case FromInput(position):
            return lambda inputs, results, made: inputs[position]
        case FromResult(position, leaf):
            if leaf:
                return lambda inputs, results, made: _as_leaf(results[position])
            return lambda inputs, results, made: results[position]
        case Literal(value):
            return lambda inputs, results, made: value
        case SameAs(earlier):
            return lambda inputs, results, made: made[earlier]
        case ViewOf(source, steps, leaf, around):
            get = _view_getter(source, steps, leaf)
            return _around_input(get, source.input) if around and isinstance(source, FromInput) else get
        case _:
            assert_never(output)


def _as_leaf(tensor: torch.Tensor) -> torch.Tensor:
    """Told to require gradients; a tensor of inference mode is told so within it, as the program did."""
    with torch.inference_mode(True) if tensor.is_inference() else contextlib.nullcontext():
        return tensor.requires_grad_()


def _view_getter(source: FromInput | FromResult | SameAs, steps: tuple[ViewStep, ...], leaf: bool) -> _Get:
    find = _getter(source)

    def get(inputs: Sequence[Any], results: Any, made: list[Any]) -> Any:
        tensor = find(inputs, results, made)
        for step in steps:
            tensor = _replay(step, tensor, results)
        # A view made under no_grad of what requires grad says that it does too, but gets no gradient before it is told to.
        return _as_leaf(tensor) if leaf else tensor

    return get


def _around_input(find: _Get, position: int) -> _Get:
    """The view as autograd knows it once its memory was written: as one of what the input is a view of."""

    def get(inputs: Sequence[Any], results: Any, made: list[Any]) -> Any:
        view = find(inputs, results, made)
        base = inputs[position]._base
        if base is None or view.grad_fn is None or base.dtype != view.dtype or view._base is not base:
            return view
        return base.as_strided(view.shape, view.stride(), view.storage_offset())

    return get


def _replay(step: ViewStep, tensor: torch.Tensor, results: Any) -> torch.Tensor:
    """The view, made as the program made it."""
    if not step.counted:
        alone = tensor.data
        torch.autograd.graph.increment_version([alone] * step.writes)
        return alone
    args = [_filled(a, results) for a in step.args]
    before = torch.is_grad_enabled()
    set_grad_enabled(step.grad_enabled)
    try:
        view = step.func(tensor, *args, **step.kwargs)
    finally:
        set_grad_enabled(before)
    found: torch.Tensor = view if step.index is None else view[step.index]
    return found


def _filled(argument: Any, results: Any) -> Any:
    if type(argument) is FromResult:
        return results[argument.position]
    return [_filled(a, results) for a in argument] if isinstance(argument, list) else argument
