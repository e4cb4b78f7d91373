"""Parameters of a program's own class: ordinary ones with methods and attributes, as quantized and sharded weights are."""

import copy

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

import pliant
from pliant.debug import events


class Sharded(nn.Parameter):
    scale = 3

    def __new__(cls, data, loader=None):
        made = super().__new__(cls, data)
        made.loader = loader
        return made

    def shard(self, rows):
        return self[:rows]

    @property
    def rows(self):
        return self.shape[0]


class Other(Sharded):
    scale = 9


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = Sharded(torch.ones(4, 2), loader="here")
        self.w.extra = 5

    def forward(self, x):
        y = x @ self.w.shard(2) * self.w.scale * self.w.extra + self.w.rows
        if isinstance(self.w, Sharded) and self.w.loader == "here" and type(self.w) is Sharded:
            y = y * 2
        return y, self.w, self.w * 2, self.w.detach(), self.w.data, self.w.t(), type(self.w.data).__name__


def _seen(compiled):
    torch.manual_seed(0)
    model, found = Model(), []
    run, optimizer = compiled(model), torch.optim.AdamW(model.parameters(), 0.1)
    for size in (3, 4, 5):
        results = run(torch.ones(size, 2))
        results[0].pow(2).sum().backward()
        found += [results[0].detach(), results[1] is model.w, model.w.grad.clone(), [type(one) for one in results]]
        found += [one.requires_grad for one in results[1:6]]
        optimizer.step()
        optimizer.zero_grad()
    for name, value in (("loader", "there"), ("extra", 7)):
        setattr(model.w, name, value)
        found.append(run(torch.ones(2, 2))[0].detach())
    return found


@pytest.mark.parametrize("backend", ["eager", "pliant"])
def test_model(backend):
    pliant.reset()
    found, expected = _seen(lambda model: pliant.compile(model, backend=backend, fullgraph=True)), _seen(lambda model: model)
    for mine, one in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, one) if isinstance(one, torch.Tensor) else None
        assert isinstance(one, torch.Tensor) or mine == one
    assert pliant.stats()["fallbacks"] == 0


def test_class_is_guarded():
    def program(x, weight):
        return x * weight.sum() * getattr(weight, "scale", 1)

    compiled = pliant.compile(program, backend="eager")
    for kind in (Sharded, Other, nn.Parameter, Sharded):
        weight = kind(torch.full((2,), 2.0))
        assert torch.equal(compiled(torch.ones(2), weight), program(torch.ones(2), weight))


def test_made_inside():
    def program(x, weight):
        made = Sharded(x, loader=3)
        return made * 2, made, made.loader, torch.zeros_like(weight), weight.clone(), weight[0], [weight]

    compiled, weight = pliant.compile(program, backend="eager", fullgraph=True), Sharded(torch.ones(3, 2))
    for mine, one in zip(*(tree_leaves(f(torch.ones(2), weight)) for f in (compiled, program)), strict=True):
        assert type(mine) is type(one)
        assert torch.equal(mine, one) if isinstance(one, torch.Tensor) else mine == one


@pytest.mark.parametrize("use", [copy.copy, copy.deepcopy, nn.Parameter])
def test_copies_are_eagers(use):
    """What makes a tensor of the class by its own rules breaks the graph."""

    def program(weight):
        return use(weight)

    compiled, weight = pliant.compile(program, backend="eager"), Sharded(torch.ones(2))
    with events.collect("graph_break") as heard:
        if use is not nn.Parameter:
            assert type(compiled(weight)) is type(program(weight))
        for f in (compiled, program) if use is nn.Parameter else ():
            with pytest.raises(RuntimeError, match="requires that detach"):
                f(weight)
    assert heard
