"""Random training loops: a module, an optimizer, and what happens to both from step to step.

A loop is a list of actions on a compiled module, the module that it was made of, and its optimizer: steps of many kinds, and
what a program does between them (parameters frozen, replaced, moved or tied, hooks added and removed, modes changed).
After every action all parameters, gradients, buffers, what the action computed and the random state are compared with
those of the same loop in eager.

    python -m tests.autograd.fuzz_steps --first 0 --count 50 [--backend pliant]
"""

from __future__ import annotations

import argparse
import copy
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize

import pliant

D, WIDTH = torch.float64, 4
SIZES = (2, 3, 5)


class Layer(nn.Module):
    """`kind` says what is unusual about it: how parameters are made, or a block of `_PARTS`."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.last, self.norm = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.table = nn.Embedding(7, WIDTH, sparse=kind == "sparse")
        self.batch, self.drop = nn.BatchNorm1d(WIDTH), nn.Dropout(0.3)
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, WIDTH))
        self.register_buffer("mean", torch.zeros(WIDTH))
        if kind in _MADE:
            _MADE[kind](self.first)
        if kind == "tied":
            self.last.weight = self.first.weight

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.first(x))
        if self.kind in _PARTS:
            hidden = _PARTS[self.kind](self, hidden, rows)
        return self.norm(self.last(hidden) * self.scale)


_MADE: dict[str, Callable[[nn.Module], Any]] = {
    "weight norm": parametrizations.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
}


def _kept_mean(layer: Any, x: torch.Tensor, rows: Any) -> torch.Tensor:
    layer.mean.mul_(0.9).add_(x.detach().mean(0))
    return x - layer.mean


def _without_gradient(layer: Any, x: torch.Tensor, rows: Any) -> torch.Tensor:
    with torch.no_grad():
        gate = layer.last(x).softmax(-1)
    return x * gate


def _mode_in_the_middle(layer: Any, x: torch.Tensor, rows: Any) -> torch.Tensor:
    torch.set_grad_enabled(False)
    gate = layer.last(x).sigmoid()
    torch.set_grad_enabled(True)
    return x * gate


def _inner_gradient(layer: Any, x: torch.Tensor, rows: Any) -> torch.Tensor:
    point = x.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(layer.last(point).pow(2).sum(), point, create_graph=True)
    return x - 0.1 * gradient


def _inference(layer: Any, x: torch.Tensor, rows: Any) -> torch.Tensor:
    with torch.inference_mode():
        gate = layer.last(torch.ones(1, WIDTH, dtype=x.dtype)).softmax(-1)
    return x * gate.clone()


def _by_functional_call(layer: Any, x: torch.Tensor, rows: Any) -> torch.Tensor:
    return torch.func.functional_call(layer.last, {"weight": layer.last.weight * 2}, (x,))


_PARTS: dict[str, Callable[[Any, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sparse": lambda layer, x, rows: x + layer.table(rows),
    "table": lambda layer, x, rows: x + layer.table(rows),
    "batch norm": lambda layer, x, rows: layer.batch(x),
    "kept mean": _kept_mean,
    "dropout": lambda layer, x, rows: layer.drop(x),
    "without gradient": _without_gradient,
    "mode in the middle": _mode_in_the_middle,
    "inner gradient": _inner_gradient,
    "inference": _inference,
    "functional call": _by_functional_call,
    "checkpoint": lambda layer, x, rows: (
        x + torch.utils.checkpoint.checkpoint(lambda a: layer.last(a).tanh(), x, use_reentrant=False)
    ),
    "asks for the flag": lambda layer, x, rows: x * (2 if layer.scale.requires_grad else 3),
    "reads a gradient": lambda layer, x, rows: x if layer.scale.grad is None else x + layer.scale.grad.sum(),
}
KINDS = ("plain", "tied", *_MADE, *_PARTS)


class Net(nn.Module):
    def __init__(self, kinds: tuple[str, ...]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(Layer, kinds))
        self.shared = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x * self.shared, rows)
        return x


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, 0.05, momentum=0.9),
    "adam": lambda parameters: torch.optim.Adam(parameters, 0.01),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, 0.01, foreach=True),
    "lbfgs": lambda parameters: torch.optim.LBFGS(parameters, 0.05, max_iter=3),
}


@dataclass
class Run:
    """One run of a loop. `call`: the module as it is called; `x`, `rows`: what the action is given; `seen`: what it computed."""

    net: Any
    call: Any
    optimizer: Any
    x: Any = None
    rows: Any = None
    seen: Any = None
    hooks: Any = None

    def loss(self, x: Any = None) -> torch.Tensor:
        return loss_of(self.call(self.x if x is None else x, self.rows))

    @property
    def parameters(self) -> list[Any]:
        return [one for one in self.net.parameters() if one.requires_grad]


def loss_of(result: torch.Tensor) -> torch.Tensor:
    return (result**2).mean() + (result.sin() * torch.arange(1.0, WIDTH + 1, dtype=result.dtype)).sum()


Action = Callable[[Run], Any]
ACTIONS: dict[str, Action] = {}


def action(function: Action) -> Action:
    ACTIONS[function.__name__] = function
    return function


@action
def accumulate(run: Run) -> None:
    run.loss().backward()
    run.loss(run.x * 0.5).backward()


@action
def two_calls_before_a_backward(run: Run) -> None:
    (run.loss() + run.loss(run.x + 1)).backward()


@action
def backward_twice(run: Run) -> None:
    loss = run.loss()
    loss.backward(retain_graph=True)
    loss.backward()


@action
def gradient_penalty(run: Run) -> None:
    x = run.x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(run.loss(x), x, create_graph=True)
    (gradient.norm(dim=1) - 1).square().mean().backward()


@action
def gradients_of_parameters(run: Run) -> Any:
    return torch.autograd.grad(run.loss(), run.parameters, allow_unused=True)


@action
def gradients_with_zeros(run: Run) -> Any:
    return torch.autograd.grad(run.loss(), run.parameters, allow_unused=True, materialize_grads=True)


@action
def gradient_of_the_input(run: Run) -> Any:
    x = run.x.clone().requires_grad_()
    run.loss(x).backward()
    return x.grad


@action
def gradient_of_the_result(run: Run) -> Any:
    result = run.call(run.x, run.rows)
    result.retain_grad()
    loss_of(result).backward()
    return result.grad


@action
def jacobian(run: Run) -> Any:
    return torch.autograd.functional.jacobian(lambda x: run.call(x, run.rows).sum(0), run.x)


@action
def hvp(run: Run) -> Any:
    return torch.autograd.functional.hvp(run.loss, run.x, torch.ones_like(run.x))[1]


@action
def functional_call(run: Run) -> Any:
    others = {name: one.detach().clone().requires_grad_() for name, one in run.net.named_parameters()}
    result = torch.func.functional_call(run.call, others, (run.x, run.rows))
    return torch.autograd.grad(loss_of(result), list(others.values()), allow_unused=True)


@action
def step_with_closure(run: Run) -> None:
    def closure() -> torch.Tensor:
        run.optimizer.zero_grad()
        loss = run.loss()
        loss.backward()
        return loss

    run.optimizer.step(closure)


@action
def zero_gradients(run: Run) -> None:
    run.optimizer.zero_grad(set_to_none=False)


@action
def anomaly_mode(run: Run) -> None:
    with torch.autograd.set_detect_anomaly(True):
        run.loss().backward()


@action
def without_recording(run: Run) -> Any:
    with torch.no_grad():
        return run.call(run.x, run.rows)


@action
def in_inference_mode(run: Run) -> Any:
    with torch.inference_mode():
        return run.call(run.x, run.rows).clone()


@action
def result_is_written(run: Run) -> None:
    result = run.call(run.x, run.rows)
    result.mul_(2)
    loss_of(result).backward()


@action
def through_itself(run: Run) -> None:
    loss_of(run.call(run.call(run.x, run.rows), run.rows)).backward()


@action
def through_a_detached_result(run: Run) -> None:
    result = run.call(run.x, run.rows)
    (loss_of(result) + run.loss(result.detach())).backward()


@action
def freeze(run: Run) -> None:
    run.net.layers[0].requires_grad_(False)


@action
def unfreeze(run: Run) -> None:
    run.net.requires_grad_(True)


@action
def other_data(run: Run) -> None:
    bias = run.net.layers[-1].last.bias
    bias.data = bias.data * 1.5


@action
def new_parameter(run: Run) -> None:
    last = run.net.layers[-1].last
    last.bias = nn.Parameter(torch.full_like(last.bias, 0.3))


@action
def no_bias(run: Run) -> None:
    run.net.layers[-1].norm.bias = None


@action
def buffer_becomes_parameter(run: Run) -> None:
    layer = run.net.layers[-1]
    if "mean" in layer._buffers:
        value = layer.mean
        del layer.mean
        layer.mean = nn.Parameter(value.clone(), requires_grad=False)


@action
def remove_parametrization(run: Run) -> None:
    first = run.net.layers[0].first
    if parametrize.is_parametrized(first):
        parametrize.remove_parametrizations(first, "weight")


@action
def load_state(run: Run) -> None:
    run.net.load_state_dict({name: one * 1.01 for name, one in run.net.state_dict().items()}, assign=True)


@action
def set_gradient(run: Run) -> None:
    run.net.shared.grad = torch.ones_like(run.net.shared)


@action
def evaluate(run: Run) -> None:
    run.call.eval()


@action
def train(run: Run) -> None:
    run.call.train()


@action
def copied(run: Run) -> Any:
    return copy.deepcopy(run.call)(run.x, run.rows)


@action
def hook_of_a_parameter(run: Run) -> None:
    run.hooks.append(run.net.shared.register_hook(lambda gradient: gradient * 2))


@action
def hook_of_accumulation(run: Run) -> None:
    run.hooks.append(run.net.shared.register_post_accumulate_grad_hook(lambda one: one.grad.mul_(2)))


@action
def forward_hook(run: Run) -> None:
    run.hooks.append(run.net.layers[0].norm.register_forward_hook(lambda module, given, result: result * 1.1))


@action
def backward_pre_hook(run: Run) -> None:
    run.hooks.append(run.net.layers[-1].first.register_full_backward_pre_hook(lambda module, given: (given[0] * 1.5,)))


@action
def remove_hooks(run: Run) -> None:
    while run.hooks:
        run.hooks.pop().remove()


@dataclass(frozen=True)
class Loop:
    kinds: tuple[str, ...]
    optimizer: str
    actions: tuple[tuple[str, int], ...]  # with the size of the batch


def loop_of(seed: int) -> Loop:
    rng = random.Random(seed)
    kinds = tuple(rng.choice(KINDS) for _ in range(rng.choice((1, 2))))
    optimizer = rng.choice(sorted(OPTIMIZERS))
    if "sparse" in kinds:
        optimizer = "sgd"
    names = [rng.choice(list(ACTIONS)) for _ in range(rng.choice((4, 6, 8)))]
    return Loop(kinds, optimizer, tuple((name, rng.choice(SIZES)) for name in names))


def states(loop: Loop, compiled: Callable[[Any], Any]) -> list[tuple[Any, ...]]:
    """What is seen after each action: the kind of its error, then tensors by name."""
    torch.manual_seed(1)
    net = Net(loop.kinds).to(D)
    run = Run(net, compiled(net), OPTIMIZERS[loop.optimizer](net.parameters()), hooks=[])
    found = []
    for number, (name, size) in enumerate(loop.actions):
        torch.manual_seed(number)
        run.x, run.rows = torch.rand(size, WIDTH, dtype=D), torch.randint(0, 7, (size,))
        try:
            seen, error = ACTIONS[name](run), ""
        except Exception as raised:
            seen, error = None, type(raised).__name__
        found.append((error, _tensors(net, seen)))
    return found


def _tensors(net: nn.Module, seen: Any) -> dict[str, Any]:
    named: dict[str, Any] = {"random state": torch.get_rng_state()}
    for number, one in enumerate(seen if isinstance(seen, tuple) else (seen,)):
        named[f"result {number}"] = one
    for name, one in (*net.named_parameters(), *net.named_buffers()):
        named |= {name: one, f"gradient of {name}": one.grad, f"whether {name} requires one": one.requires_grad}
    return {name: _copied(one) for name, one in named.items()}


def _copied(one: Any) -> Any:
    if not isinstance(one, torch.Tensor):
        return one
    return (one.to_dense() if one.is_sparse else one).detach().clone()


def _differ(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return one is not other if one is None or other is None else bool(one != other)
    return one.shape != other.shape or one.dtype != other.dtype or not torch.allclose(one, other, 1e-7, 1e-7, equal_nan=True)


def disagreement(loop: Loop, backend: str = "aot_eager") -> str | None:
    """The first action after which something is not as in eager, and what."""
    theirs = states(loop, lambda net: net)
    pliant.reset()
    mine = states(loop, lambda net: pliant.compile(net, backend=backend))
    for number, ((error, tensors), (expected, others)) in enumerate(zip(mine, theirs)):
        at = f"action {number}, {loop.actions[number][0]}"
        if expected == "CheckpointError":  # eager ran a region again with other parameters than the first time
            return None
        if error != expected:
            return f"{at}: {error or 'no error'} instead of {expected or 'none'}"
        wrong = [name for name in others if name not in tensors or _differ(tensors[name], others[name])]
        if wrong:
            return f"{at}: {wrong[0]}"
    return None


def reduced(loop: Loop, backend: str) -> Loop:
    """The loop less what it need not have to disagree."""
    for number in reversed(range(len(loop.actions))):
        shorter = replace(loop, actions=loop.actions[:number] + loop.actions[number + 1 :])
        if disagreement(shorter, backend):
            loop = shorter
    for kinds in [("plain",), *[(kind,) for kind in loop.kinds]]:
        simpler = replace(loop, kinds=kinds)
        if kinds != loop.kinds and disagreement(simpler, backend):
            return simpler
    return loop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--backend", default="aot_eager")
    options = parser.parse_args()
    wrong = 0
    for seed in range(options.first, options.first + options.count):
        loop = loop_of(seed)
        if disagreement(loop, options.backend):
            wrong += 1
            small = reduced(loop, options.backend)
            print(f"{seed}: {disagreement(small, options.backend)}\n  {small}", flush=True)
    print(f"{options.count} loops, {wrong} differ")


if __name__ == "__main__":
    main()
