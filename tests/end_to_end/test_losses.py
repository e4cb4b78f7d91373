"""Losses over rows of several lengths: values and gradients of compiled code are eager's."""

import pytest
import torch

import pliant

F = torch.nn.functional


def ignoring(logits, target):
    return F.cross_entropy(logits, target, ignore_index=-100)


def smooth(logits, target):
    return F.cross_entropy(logits, target.clamp(min=0), label_smoothing=0.1)


@pytest.mark.parametrize("classes", [5, 128, 130, 1000])
@pytest.mark.parametrize("loss", [ignoring, smooth])
def test_cross_entropy(loss, classes):
    """A conditional sum over a long row, kept in several accumulators, once came out wrong."""
    compiled = pliant.compile(loss)
    for rows in (5, 30):
        torch.manual_seed(rows)
        target = torch.randint(0, classes, (rows,))
        target[0] = -100
        grads = []
        for call in (loss, compiled):
            logits = torch.randn(rows, classes, generator=torch.Generator().manual_seed(1)).requires_grad_()
            call(logits, target).backward()
            grads.append(logits.grad)
        torch.testing.assert_close(grads[1], grads[0])
