"""Biases of convolutions are added and summed by loops where the library would do so in kernels of its own."""

import copy
import dataclasses

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.debug import events
from pliant.targets import registry


@pytest.fixture(autouse=True)
def apart():
    there = registry.target_of(torch.device("cpu"))
    target = dataclasses.replace(there, convolution_biases_apart=True, packs_weights=False, depthwise_gradients=False)
    registry.provide("cpu", lambda _: target)
    pliant.reset()
    yield
    registry.provide("cpu", lambda _: there)
    pliant.reset()


def graphs(model, x, training=False):
    """The texts of the graphs of a call that agrees with eager, gradients included."""
    other, results = copy.deepcopy(model), []
    with events.collect("partition") as found, torch.set_grad_enabled(training):
        for one in (pliant.compile(model), other):
            results.append(one(x))
            if training:
                results[-1].square().sum().backward()
    torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
    assert results[0].stride() == results[1].stride()
    if training:
        grads = ([p.grad for p in one.parameters()] for one in (model, other))
        torch.testing.assert_close(*grads, rtol=1e-3, atol=1e-3)
    return str(found[0].fields["text"])


LAYERS = {
    "1d": (lambda: nn.Conv1d(3, 4, 3), (2, 3, 9)),
    "2d": (lambda: nn.Conv2d(3, 4, 3, stride=2), (2, 3, 9, 8)),
    "3d": (lambda: nn.Conv3d(3, 4, 3), (2, 3, 5, 6, 7)),
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3), (2, 3, 5, 6)),
    "depthwise": (lambda: nn.Conv2d(3, 3, 3, groups=3), (2, 3, 9, 8)),
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_what_loops_read(name, training):
    make, size = LAYERS[name]
    torch.manual_seed(0)
    text = graphs(nn.Sequential(make(), nn.SiLU()), torch.randn(size), training)
    (line,) = [line for line in text.splitlines() if "aten.convolution.default(" in line]
    assert "None" in line
    if training:
        (line,) = [line for line in text.splitlines() if "aten.convolution_backward.default(" in line]
        assert line.endswith("True, False])")


def test_what_nothing_else_reads_stays():
    text = graphs(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 2, 1)), torch.randn(2, 3, 9, 8))
    assert not any("None" in line for line in text.splitlines() if "aten.convolution.default(" in line)


def test_varying_sizes():
    layer = nn.Conv2d(3, 4, 3)
    compiled = pliant.compile(lambda x: F.relu(layer(x)), dynamic=True)
    for side in (9, 12, 5):
        x = torch.randn(2, 3, side, side + 1)
        torch.testing.assert_close(compiled(x), F.relu(layer(x)), rtol=1e-4, atol=1e-4)
