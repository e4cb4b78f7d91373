"""Optimizers' steps, compiled, alone or in a whole training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import pliant
from pliant.debug import events

MAKE: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adam, foreach": lambda p: torch.optim.Adam(p, lr=0.1, foreach=True, weight_decay=0.1),
    "adamw, fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True, amsgrad=True),
    "radam": lambda p: torch.optim.RAdam(p, lr=0.1, maximize=True),
    "adadelta": lambda p: torch.optim.Adadelta(p, weight_decay=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr_decay=0.1),
    "adamax": lambda p: torch.optim.Adamax(p, foreach=True),
    "adafactor": lambda p: torch.optim.Adafactor(p),
    "asgd": lambda p: torch.optim.ASGD(p, t0=1),
    "nadam": lambda p: torch.optim.NAdam(p, decoupled_weight_decay=True, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=torch.tensor(0.1), centered=True, momentum=0.5),
    "rprop": lambda p: torch.optim.Rprop(p, maximize=True),
}


def _model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def _train(make: Any, compiled: bool) -> tuple[nn.Module, list[Any]]:
    """Four steps under a schedule; which graphs were compiled."""
    model = _model()
    optimizer = make(model.parameters())
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    step = pliant.compile(optimizer.step, fullgraph=True) if compiled else optimizer.step
    with events.collect("capture", "fallback") as seen:
        for number in range(4):
            optimizer.zero_grad()
            model(torch.full((2, 3), 0.5 + number)).pow(2).sum().backward()
            step()
            schedule.step()
    return model, seen


@pytest.mark.parametrize("name", MAKE)
def test_steps_equal_eager_and_are_compiled_once(name: str) -> None:
    (mine, seen), (theirs, _) = _train(MAKE[name], True), _train(MAKE[name], False)
    torch.testing.assert_close(list(mine.parameters()), list(theirs.parameters()), rtol=1e-4, atol=1e-5)
    steps = 2 if name == "sgd" else 1  # its first step makes the momentum, from gradients
    assert [e.kind for e in seen] == ["capture"] * steps


def test_state_is_made_for_parameters_that_have_gradients() -> None:
    one, other = (nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = torch.optim.Adam([one, other])
    step = pliant.compile(optimizer.step)
    for expected in ([one], [one, other]):
        one.grad = torch.ones(2)
        step()
        assert list(optimizer.state) == expected
        assert all(state["step"] == 1 + (len(expected) == 2 and p is one) for p, state in optimizer.state.items())
        other.grad = torch.ones(2)


def test_gradients_that_the_program_drops_make_no_state() -> None:
    parameter = nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([parameter])
    parameter.grad = torch.ones(2)

    def run() -> None:
        parameter.grad = None
        optimizer.step()

    pliant.compile(run)()
    assert not optimizer.state


def test_a_whole_training_step() -> None:
    def train(compiled: bool) -> list[torch.Tensor]:
        model = _model()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

        def step(x: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = model(x).pow(2).mean()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

        run = pliant.compile(step) if compiled else step
        return [run(torch.full((2, 3), 0.5 + number)).detach() for number in range(4)] + list(model.parameters())

    torch.testing.assert_close(train(True), train(False), rtol=1e-4, atol=1e-5)


def test_hooks_of_steps_run() -> None:
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    called: list[str] = []
    optimizer.register_step_pre_hook(lambda *_: called.append("before"))
    optimizer.register_step_post_hook(lambda *_: called.append("after"))
    model(torch.ones(1, 3)).sum().backward()
    pliant.compile(optimizer.step)()
    assert called == ["before", "after"]


def test_lists_of_tensors() -> None:
    def f(x: torch.Tensor, factor: float) -> Any:
        xs, ys = list(x.unbind(0)), [x[0] * 2, x[1] + 1]
        torch._foreach_add_(xs, ys, alpha=factor)
        torch._foreach_addcdiv_(ys, xs, xs, [factor, 2.0])
        torch._foreach_addcmul_(ys, xs, xs, torch.tensor([0.5, 3.0]))
        return (
            torch._foreach_norm(xs),
            torch._foreach_maximum(ys, xs),
            torch._foreach_pow(2.0, ys),
            torch._foreach_sqrt(ys),
        )

    compiled = pliant.compile(f, fullgraph=True)
    for factor in (0.5, 0.25, 0.125):
        x = torch.rand(2, 3)
        torch.testing.assert_close(compiled(x.clone(), factor), f(x.clone(), factor))


MANY: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    **MAKE,
    "adam, tensor lr": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.1), amsgrad=True),
    "sgd, foreach": lambda p: torch.optim.SGD(p, lr=0.1, foreach=True),
}
SHAPES = [(2, 3), (5,), (), (0, 2), (2, 3, 1)]


def _steps_of_many(make: Any, compiled: bool) -> list[Any]:
    """Parameters, state and which versions went up, after steps on many parameters of several kinds in two groups."""
    generator = torch.Generator().manual_seed(0)
    parameters = [nn.Parameter(torch.randn(SHAPES[k % 5], generator=generator)) for k in range(20)]
    parameters += [nn.Parameter(torch.randn(2, 3, generator=generator).t()) for _ in range(4)]
    parameters += [nn.Parameter(torch.randn(3, generator=generator, dtype=torch.float64)) for _ in range(4)]
    optimizer = make([{"params": parameters[:15]}, {"params": parameters[15:], "weight_decay": 0.01}])
    step = pliant.compile(optimizer.step, fullgraph=True) if compiled else optimizer.step
    for _ in range(3):
        for parameter in parameters[1:]:
            parameter.grad = parameter.detach().cos()  # strides as the parameter's: eager's fused kernels need that
        step()
    return [*parameters, *tree_leaves([optimizer.state[p] for p in parameters]), [p._version > 0 for p in parameters]]


@pytest.mark.parametrize("name", [name for name in MANY if name != "adafactor"])  # it divides by the number of elements
def test_many_parameters_of_several_kinds(name: str) -> None:
    mine, theirs = _steps_of_many(MANY[name], True), _steps_of_many(MANY[name], False)
    torch.testing.assert_close(mine[:-1], theirs[:-1], rtol=1e-4, atol=1e-5)
    if "fused" not in name:  # eager's kernels do not count what they write
        assert mine[-1] == theirs[-1]


def test_a_parameter_given_twice_is_stepped_twice() -> None:
    results = []
    for compiled in (True, False):
        parameters = [nn.Parameter(torch.full((2,), 1.0 + k)) for k in range(6)]
        with pytest.warns(UserWarning, match="duplicate"):
            optimizer = torch.optim.SGD([*parameters, parameters[0]], lr=0.1, maximize=True)
        for parameter in parameters:
            parameter.grad = parameter.detach().sin()
        (pliant.compile(optimizer.step) if compiled else optimizer.step)()
        results.append(parameters)
    torch.testing.assert_close(*results)


class Counting(torch.optim.Optimizer):
    """An optimizer of the program's own, which counts its steps in Python."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state |= {"step": 0, "mean": torch.zeros_like(p)}
                state["step"] += 1
                state["mean"].lerp_(p.grad, 0.1)
                p.data.sub_(state["mean"].sign(), alpha=group["lr"] / (1 - 0.9 ** state["step"]))


def test_steps_counted_in_python() -> None:
    results = []
    for compiled in (True, False):
        parameters = [nn.Parameter(torch.full((3,), 1.0 + k)) for k in range(3)]
        optimizer = Counting(parameters)
        step = pliant.compile(optimizer.step, fullgraph=True) if compiled else optimizer.step
        with events.collect("capture", "fallback") as seen:
            for _ in range(6):
                for parameter in parameters:
                    parameter.grad = parameter.detach().cos()
                step()
        results.append([parameters, [optimizer.state[p] for p in parameters]])
        assert [e.kind for e in seen] == ["capture"] * 2 * compiled
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "Adamax", "Adagrad"])
def test_corrections_are_as_precise_as_eagers_numbers(name: str) -> None:
    """The count of steps is a tensor of single precision; in eager, what is computed from it is in double precision."""
    found = []
    for wrap in (pliant.compile, lambda step: step):
        parameters = [torch.linspace(-1, 1, 5, dtype=torch.float64, requires_grad=True)]
        optimizer = getattr(torch.optim, name)(parameters, lr=1e-2)
        step = wrap(optimizer.step)
        for number in range(4):
            parameters[0].grad = torch.linspace(1, 2 + number, 5, dtype=torch.float64)
            step()
        found.append(parameters[0].detach())
    torch.testing.assert_close(*found, rtol=1e-9, atol=0)
