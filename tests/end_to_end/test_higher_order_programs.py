"""Programs whose loss holds gradients: equal to eager where the model is compiled, and where the whole step is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

import pliant
from pliant.debug import events

Step = Callable[[Any, list[Tensor]], Tensor]
F = nn.functional


def dense(*widths: int, activation: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in zip(widths, widths[1:]):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers[:-1])


def penalized(critic: Any, data: list[Tensor]) -> Tensor:
    """A critic's step with a gradient penalty at points between real and generated ones."""
    real, fake, mix = data
    between = (mix * real + (1 - mix) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
    return critic(fake).mean() - critic(real).mean() + 10 * penalty


def heat_equation(field: Any, data: list[Tensor]) -> Tensor:
    """A network that is to solve u_t = u_xx."""
    t, x = (one.detach().requires_grad_() for one in data)
    u = field(torch.cat([t, x], 1))
    u_t, u_x = torch.autograd.grad(u, (t, x), torch.ones_like(u), create_graph=True)
    (u_xx,) = torch.autograd.grad(u_x, x, torch.ones_like(u_x), create_graph=True)
    return ((u_t - u_xx) ** 2).mean() + (u**2).mean()


def forces(energy: Any, data: list[Tensor]) -> Tensor:
    """Forces are the negative gradient of an energy of distances; the loss is on both."""
    positions, wanted = data
    positions = positions.detach().requires_grad_()
    apart = positions[:, :, None] - positions[:, None]
    total = energy(apart.square().sum(-1).add(1e-2).sqrt().flatten(1)).sum()
    (gradient,) = torch.autograd.grad(total, positions, create_graph=True)
    return F.mse_loss(-gradient, wanted) + 0.1 * total**2


def adapted(model: Any, data: list[Tensor]) -> Tensor:
    """The loss after two inner steps on another part of the data."""
    x, y, x_test, y_test = data
    weights = dict(model.named_parameters())
    for _ in range(2):
        inner = F.mse_loss(functional_call(model, weights, (x,)), y)
        slopes = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
        weights = {name: w - 0.1 * g for (name, w), g in zip(weights.items(), slopes)}
    return F.mse_loss(functional_call(model, weights, (x_test,)), y_test)


PROGRAMS: dict[str, tuple[Step, Callable[[], nn.Module], list[tuple[int, ...]]]] = {
    "gradient penalty": (penalized, lambda: dense(6, 16, 16, 1, activation=nn.SiLU), [(8, 6), (8, 6), (8, 1)]),
    "heat equation": (heat_equation, lambda: dense(2, 16, 16, 1), [(9, 1), (9, 1)]),
    "force field": (forces, lambda: dense(25, 16, 1, activation=nn.Softplus), [(4, 5, 3), (4, 5, 3)]),
    "inner loop": (adapted, lambda: dense(3, 16, 1), [(7, 3), (7, 1), (5, 3), (5, 1)]),
}


def train(name: str, how: str) -> list[Tensor]:
    """Losses of four Adam steps, then the parameters."""
    step, build, shapes = PROGRAMS[name]
    torch.manual_seed(0)
    model = build().double()
    called: Any = pliant.compile(model) if how == "model" else model
    run = pliant.compile(step) if how == "step" else step
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = run(called, [torch.randn(*shape, dtype=torch.float64) for shape in shapes])
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *model.parameters()]


@pytest.mark.parametrize("how", ["model", "step"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_to_eager(name: str, how: str) -> None:
    with events.collect("fallback") as fallbacks:
        found = train(name, how)
    torch.testing.assert_close(found, train(name, "eager"))
    assert not fallbacks
