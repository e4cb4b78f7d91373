"""Gradients of depthwise weights are loops, and eager's in value and layout."""

import pytest
import torch
from torch import nn

import pliant
from pliant.debug import events

KINDS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
# channels, results of each, size of the images; window, step, margin, distance
CASES = {
    "7x7": (10, 1, (20, 20), 7, 1, 3, 1),
    "rows shorter than a vector": (40, 1, (4, 4), 7, 1, 3, 1),
    "two results of a channel": (8, 2, (11, 13), 3, 1, 1, 1),
    "every second element": (6, 1, (14, 9), 5, 2, 2, 1),
    "no margin": (8, 1, (16, 17), 3, 2, 0, 1),
    "elements apart": (8, 1, (16, 16), 3, 1, 2, 2),
    "lines": (6, 1, (20,), 4, 1, 3, 1),
    "volumes": (4, 3, (5, 6, 7), 3, 2, 1, 1),
    "rows in blocks": (3, 1, (30, 300), 5, 1, 2, 1),
}


def gradients(call, conv: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    y = call(x)
    weights = (torch.arange(y.numel(), dtype=y.dtype) % 7 - 3).reshape(y.shape)
    return list(torch.autograd.grad(y, (x, *conv.parameters()), weights))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_gradients(case, dynamic):
    channels, each, size, *options = CASES[case]
    torch.manual_seed(0)
    conv = KINDS[len(size)](channels, channels * each, *options, groups=channels)
    x = torch.randn(2, channels, *size)
    with events.collect("loops") as programs:
        found = gradients(pliant.compile(conv, dynamic=dynamic), conv, x)
    eager = gradients(conv, conv, x)
    exact = gradients(conv.double(), conv, x.double())
    for ours, its, true in zip(found, eager, exact, strict=True):
        assert ours.stride() == its.stride()
        assert (ours - true).abs().max() <= 2 * (its - true).abs().max() + 1e-6 * true.abs().max()
    small = dynamic and torch.Size(options[:1] * len(size)).numel() <= 16
    text = "\n".join(e.fields["text"] for e in programs)
    assert ("True, False, False" in text) is not small, text
