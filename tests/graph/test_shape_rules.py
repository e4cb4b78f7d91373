"""Fakes agree with eager on size, strides, dtype, device and offset, for every ATen call that torch's samples make."""

from __future__ import annotations

import pytest
import torch

import pliant

from .opinfo import check_all

PARTS = 3  # so that processes share them


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("symbolic", [False, True], ids=["static", "symbolic"])
def test_samples_of_every_operator(symbolic: bool, part: int) -> None:
    check = check_all(symbolic, (torch.float32, torch.int64), 6, part, PARTS)  # a sweep by hand takes 12
    assert not check.wrong, {name: calls[0] for name, calls in check.wrong.items()}
    assert len(check.right) > 300


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("weight_last", [False, True])
def test_layouts_of_convolved_signals(transposed, weight_last):
    """Where the weight's channels lie innermost they do in the result, and in the gradient."""
    layer = torch.nn.ConvTranspose1d(3, 5, 4) if transposed else torch.nn.Conv1d(3, 5, 4)
    if weight_last:
        layer.weight = torch.nn.Parameter(layer.weight.detach().mT.contiguous().mT)
    found = []
    for run in (layer, pliant.compile(layer, fullgraph=True)):
        x = torch.randn(2, 9, 3).mT.requires_grad_()
        y = run(x)
        gradients = torch.autograd.grad(y, (x, layer.weight), torch.ones(y.shape))
        found.append([one.stride() for one in (y, *gradients)])
    assert found[1] == found[0]
