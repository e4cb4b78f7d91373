"""Programs that read and set the state of the random generator draw what eager draws."""

from __future__ import annotations

import random
import unittest.mock
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pliant


def _seeded(x: torch.Tensor) -> Any:
    torch.manual_seed(3)
    return F.dropout(x, 0.5)


def _repeated(x: torch.Tensor) -> Any:
    state = torch.get_rng_state()
    first = torch.rand(3)
    torch.set_rng_state(state)
    return x + first, torch.rand(3), torch.bernoulli(x.sigmoid())


def _forked(x: torch.Tensor) -> Any:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        inner = torch.rand(3)
    return inner * x, torch.rand(2)


def _of_a_written_view(x: torch.Tensor) -> Any:
    turned = x.expand(4, 3).clone().mT
    turned.index_add_(0, torch.tensor([1, 0]), turned[:2].clone())
    return F.dropout(turned[:, 2:], 0.5)


@pytest.mark.parametrize("backend", ["pliant", "aot_eager", "eager"])
@pytest.mark.parametrize("program", [_seeded, _repeated, _forked, _of_a_written_view])
def test_draws_as_eager(program: Callable[..., Any], backend: str) -> None:
    x = torch.randn(3, requires_grad=True)
    compiled = pliant.compile(program, fullgraph=True, backend=backend)
    for _ in range(2):
        found = []
        for function in (compiled, program):
            torch.manual_seed(0)
            found.append((function(x), torch.rand(2)))
        torch.testing.assert_close(*found)


def test_gradients_of_seeded_draws() -> None:
    x = torch.randn(64, requires_grad=True)
    compiled = pliant.compile(lambda x: (_seeded(x) ** 3).sum(), fullgraph=True)
    for create_graph in (False, True):
        (gradient,) = torch.autograd.grad(compiled(x), x, create_graph=create_graph)
        torch.testing.assert_close(gradient, torch.autograd.grad((_seeded(x) ** 3).sum(), x)[0])


def test_the_generator_is_returned() -> None:
    assert pliant.compile(lambda: torch.manual_seed(5))() is torch.default_generator
    assert torch.initial_seed() == 5


def _drawn_alone() -> Any:
    return {"one": random.randrange(100), "sum": random.random() + 1}


def _drawn_before_a_break() -> Any:
    drawn = {random.randrange(100)}
    print(drawn)
    return drawn, random.choice([1, 2, 3])


def _drawn_beside_tensors() -> Any:
    number = random.uniform(1, 2)
    return [number, number * 2], torch.ones(2) * number


@pytest.mark.parametrize("program", [_drawn_alone, _drawn_before_a_break, _drawn_beside_tensors])
def test_numbers_from_python_generators_that_no_graph_makes(program: Callable[..., Any]) -> None:
    pliant.reset()
    compiled = pliant.compile(program)
    for _ in range(2):
        found = []
        for function in (compiled, program):
            random.seed(0)
            found.append((function(), random.random()))
        assert str(found[0]) == str(found[1])
    assert not pliant.stats()["fallbacks"]


def test_the_seed_of_a_generator_is_read() -> None:
    generator = torch.Generator()

    def program(x: torch.Tensor) -> tuple[torch.Tensor, int, int]:
        return x + generator.initial_seed() % 7, generator.initial_seed(), torch.initial_seed()

    pliant.reset()
    compiled = pliant.compile(program, backend="eager", fullgraph=True)
    for seed in (3, 4, 5, 6, 2**63 + 5):
        torch.manual_seed(seed)
        generator.manual_seed(seed + 1)
        assert repr(compiled(torch.ones(1))) == repr(program(torch.ones(1)))
    assert pliant.stats()["recompiles"] <= 3


def test_the_seed_of_a_generator_that_is_seeded_inside() -> None:
    def program(x: torch.Tensor, seed: int) -> tuple[torch.Tensor, int]:
        torch.manual_seed(seed)
        return x + 1, torch.initial_seed()

    compiled = pliant.compile(program, backend="eager")
    assert [compiled(torch.ones(1), seed)[1] for seed in (3, 4, 5)] == [3, 4, 5]


@pytest.mark.parametrize("where", [random.Random, random._inst], ids=["class", "instance"])
def test_methods_that_are_replaced_are_called_once(where):
    def program(x):
        with unittest.mock.patch.object(where, "random", side_effect=[0.45, 0.5]) as mock:
            return x + 1, random.gammavariate(1.0, 3.14), mock.call_count

    expected = program(torch.ones(1))[1:]
    assert pliant.compile(program, backend="eager")(torch.ones(1))[1:] == expected
