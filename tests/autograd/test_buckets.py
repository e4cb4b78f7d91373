"""Gradients that data parallelism sums up are ready part by part."""

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import pliant

WIDTH, LAYERS = 256, 12


@pytest.fixture(scope="module", autouse=True)
def group():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x + torch.tanh(self.linear(self.norm(x)))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.blocks = nn.Linear(8, WIDTH), nn.ModuleList(Block() for _ in range(LAYERS))
        self.last = nn.Linear(WIDTH, 8, bias=False)
        self.unused_last = nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x) @ self.first.weight[:8]  # read at both ends


def _inside(model, **options):
    return DistributedDataParallel(pliant.compile(model), find_unused_parameters=True, **options)


def _around(model, **options):
    return pliant.compile(DistributedDataParallel(model, find_unused_parameters=True, **options))


def _functions(result):
    """The functions of compiled graphs behind a result."""
    found, waiting = [], [result.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in found:
            found.append(node)
            waiting += [before for before, _ in node.next_functions]
    return [node for node in found if "Compiled" in type(node).__name__]


@pytest.mark.parametrize("wrap", [_inside, _around])
@pytest.mark.parametrize("megabytes, least, most", [(1, 3, 4), (100, 1, 1)])
def test_a_function_for_each_part_of_the_gradients(wrap, megabytes, least, most):
    pliant.reset()
    x, eager = torch.randn(4, 8), Model()
    model = wrap(Model(), bucket_cap_mb=megabytes)
    for _ in range(2):
        result, expected = model(x), eager(x)
        torch.testing.assert_close(result, expected)
        assert least <= len(_functions(result)) <= most
        result.square().sum().backward()
        expected.square().sum().backward()
    for got, wanted in zip(model.parameters(), eager.parameters()):
        torch.testing.assert_close(got.grad, wanted.grad)
    assert pliant.stats()["fallbacks"] == 0


def test_programs_without_gradients_are_whole():
    pliant.reset()
    x = torch.randn(4, 8)
    model = _around(Model(), bucket_cap_mb=1)
    with torch.no_grad():
        torch.testing.assert_close(model(x), Model()(x))
    assert pliant.stats()["graphs"] == 1


def test_programs_are_whole_where_each_call_is_noticed(monkeypatch):
    """As on GPUs."""
    pliant.reset()
    monkeypatch.setattr("pliant.autograd.buckets.least_work", lambda calls: None)
    x, eager = torch.randn(4, 8), Model()
    result = _inside(Model(), bucket_cap_mb=1)(x)
    torch.testing.assert_close(result, eager(x))
    assert len(_functions(result)) == 1
