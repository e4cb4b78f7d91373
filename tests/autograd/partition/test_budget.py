"""A memory budget and activation checkpoints decide what is saved, and change no values."""

from __future__ import annotations

from typing import Any

import torch
from tests.autograd.partition.test_split import saved_bytes, transformer_layer
from tests.autograd.programs import captured, of_module
from torch import nn
from torch.utils.checkpoint import checkpoint

import pliant
from pliant import config
from pliant.autograd.joint import trace_joint
from pliant.autograd.partition.split import partition
from pliant.debug import events

BUDGETS = (1.0, 0.9, 0.75, 0.5, 0.25, 0.1, 0.0)


def saved_at(budget: float, module: nn.Module, x: torch.Tensor) -> int:
    function, state = of_module(module)
    with config.patch(memory_budget=budget):
        return saved_bytes(partition(trace_joint(captured(function, [*state, x]))))


def test_bytes_fall_with_the_budget() -> None:
    module, x = transformer_layer()
    deep = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16))])
    for one, given in ((module, x), (deep, torch.randn(32, 16))):
        saved = [saved_at(budget, one, given) for budget in BUDGETS]
        assert saved == sorted(saved, reverse=True)
        assert saved[0] > saved[3] > saved[-1]
        for used, budget in zip(saved, BUDGETS, strict=True):
            assert used <= saved[-1] + budget * (saved[0] - saved[-1])


def gradients(function: Any, model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    torch.manual_seed(1)
    return list(torch.autograd.grad(function(x).square().sum(), [x, *model.parameters()]))


def test_gradients_at_any_budget() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(8, 16), nn.Dropout(0.5), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 8), nn.Softmax(-1)
    )
    x = torch.randn(6, 8)
    wanted = gradients(model, model, x)
    for budget in BUDGETS:
        with config.patch(memory_budget=budget):
            torch.testing.assert_close(gradients(pliant.compile(model, fullgraph=True), model, x), wanted)


class Checkpointed(nn.Module):
    def __init__(self, marked: bool) -> None:
        super().__init__()
        self.marked = marked
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Dropout(0.2), nn.Linear(64, 16)) for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.marked else block(x))
        return x


def test_checkpoints_save_their_inputs_only() -> None:
    x, saved, found = torch.randn(32, 16), [], []
    for marked in (True, False):
        torch.manual_seed(0)
        model = Checkpointed(marked)
        with events.collect("partition") as parts:
            found.append(gradients(pliant.compile(model, fullgraph=True), model, x))
        backward = parts[0].fields["text"].split("# ")[2]
        lines = [line for line in backward.splitlines() if line.startswith("saved_") and "f32[32, 64]" in line]
        saved.append([line for line in lines if "bernoulli" not in line])  # random numbers are drawn once
        torch.testing.assert_close(found[-1], gradients(model, model, x))
    assert not saved[0] and len(saved[1]) >= 3
    torch.testing.assert_close(*found)
