"""What a program puts in the place of methods of `nn.Module` is what runs."""

import pytest
import torch
from torch import nn

import pliant


def reading(module, x):
    return x * getattr(module, "factor", 2.0)


def writing(module, x):
    module.factor = 3.0
    return x * module.factor


def test_another_getattr(monkeypatch):
    original, module, x = nn.Module.__getattr__, nn.ReLU(), torch.ones(3)
    compiled = pliant.compile(reading)
    assert torch.equal(compiled(module, x), 2 * x)
    patched = lambda self, name: 5.0 if name == "factor" else original(self, name)  # noqa: E731
    monkeypatch.setattr(nn.Module, "__getattr__", patched)
    assert torch.equal(compiled(module, x), 5 * x)
    monkeypatch.undo()
    assert torch.equal(compiled(module, x), 2 * x)


@pytest.mark.parametrize("before", [False, True])
def test_another_setattr(monkeypatch, before):
    original, x = nn.Module.__setattr__, torch.ones(3)
    compiled = pliant.compile(writing)
    if before:
        assert torch.equal(compiled(nn.ReLU(), x), 3 * x)
    doubled = lambda self, name, value: original(self, name, 2 * value if name == "factor" else value)  # noqa: E731
    monkeypatch.setattr(nn.Module, "__setattr__", doubled)
    module = nn.ReLU()
    assert torch.equal(compiled(module, x), 6 * x)
    assert module.factor == 6.0
