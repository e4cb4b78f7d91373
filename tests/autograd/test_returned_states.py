"""Programs that return states which their later results are computed from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pliant
from pliant.debug import events


class Steps(nn.Module):
    """A recurrent cell stepped by a loop; the caller gets the last states too."""

    def __init__(self, cell: type[nn.Module]) -> None:
        super().__init__()
        self.cell, self.out = cell(4, 4), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> Any:
        state: Any = (x.new_zeros(2, 4), x.new_zeros(2, 4)) if isinstance(self.cell, nn.LSTMCell) else None
        found = []
        for step in range(x.shape[1]):
            state = self.cell(x[:, step], state)
            found.append(self.out(state[0] if isinstance(state, tuple) else state))
        return torch.stack(found, 1), state


@pytest.mark.spread(2, "cell", "number_of_results")
@pytest.mark.parametrize("cell", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
@pytest.mark.parametrize("number_of_results", [1, 2, 3])
def test_gradients_between_results(cell: type[nn.Module], number_of_results: int) -> None:
    model = Steps(cell)
    x = torch.randn(2, 3, 4)
    with events.collect("fallback") as fallbacks:
        found = _gradients(pliant.compile(model), model, x, number_of_results)
    wanted = _gradients(model, model, x, number_of_results)
    torch.testing.assert_close(found, wanted)
    assert not fallbacks


def _gradients(call: Callable[..., Any], model: nn.Module, x: torch.Tensor, count: int) -> list[Any]:
    """Of a loss on the first results, in the states and in the parameters."""
    outputs, state = call(x)
    states = list(state) if isinstance(state, tuple) else [state]
    results = [outputs, *states][:count]
    loss = sum((r * r).sum() for r in results)
    return list(torch.autograd.grad(loss, [*states, *model.parameters()], allow_unused=True))


def test_what_passes_a_cut_may_need_one_itself() -> None:
    """`copied`, which nothing with a gradient reads, is computed from the returned `turned` and read behind the cut."""

    def f(x: torch.Tensor) -> Any:
        scaled = x * 2
        turned = scaled.flip(1)
        copied = turned.clone()
        other = turned.sin() * scaled
        copied.select(1, 0)
        return other, turned

    compiled = pliant.compile(f)
    with events.collect("fallback") as fallbacks:
        found = []
        for function in (f, compiled):
            x = torch.ones(3, 2).cumsum(0).requires_grad_()
            other, turned = function(x)
            turned.retain_grad()
            (other.sum() + turned.sum()).backward()
            found.append((other, turned, turned.grad, x.grad))
    torch.testing.assert_close(found[1], found[0])
    assert not fallbacks


def test_each_part_takes_what_it_reads() -> None:
    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(6)])

    def program(x: torch.Tensor) -> list[torch.Tensor]:
        states = [x]
        for layer in layers:
            states.append(layer(states[-1]).sin())
        return states

    x = torch.randn(2, 4, requires_grad=True)
    with events.collect("joint") as joints:
        states = pliant.compile(program)(x)
    inputs = [[line for line in one.fields["text"].splitlines() if " = " not in line] for one in joints]
    assert [len(one) for one in inputs] == [5] * len(layers)  # a state, a weight, a bias; a tangent, the return
    torch.testing.assert_close(states, program(x))
    (found,), (wanted,) = (torch.autograd.grad(f(x)[-1].sum(), x) for f in (pliant.compile(program), program))
    torch.testing.assert_close(found, wanted)


def views_of_a_returned_part(x, w):
    """The length of `x`, of which the returned view's stride is made, is no size of anything that is computed from it."""
    part = (x[:, : x.shape[1] // 2] * w)[:, 0]
    return part, (part * w).sin()


def test_strides_of_what_crosses_a_cut_are_known_behind_it():
    compiled = pliant.compile(views_of_a_returned_part)
    with events.collect("assumption", "fallback") as eagerly:
        for length in (5, 7, 9):
            x, w = torch.randn(3, length, 4), torch.randn(4)
            found = []
            for function in (compiled, views_of_a_returned_part):
                leaves = [t.clone().requires_grad_() for t in (x, w)]
                results = function(*leaves)
                found.append((*results, *torch.autograd.grad(sum(r.sum() for r in results), leaves)))
            torch.testing.assert_close(*found)
    assert not eagerly
