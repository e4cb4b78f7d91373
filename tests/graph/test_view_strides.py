"""Strides of views as eager gives them, those of dimensions of size 1 and of empty tensors too."""

import random

import pytest
import torch

from pliant.graph.shape_rules.views import infer_size, view_strides
from pliant.graph.tensor_spec import TensorSpec


def _laid_out(rng):
    """A tensor whose dimensions lie in any order, with gaps, in one another, or expanded."""
    size = [rng.choice([1, 1, 2, 3, 4]) for _ in range(rng.randrange(1, 5))]
    if rng.random() < 0.1:
        size[rng.randrange(len(size))] = 0
    order = list(range(len(size)))
    if rng.random() < 0.4:
        rng.shuffle(order)
    stride, step = [0] * len(size), rng.choice([1, 1, 2])
    for d in reversed(order):
        stride[d] = step if rng.random() < 0.9 else rng.choice([0, 1, 7])
        step *= size[d] if rng.random() < 0.9 else size[d] + 1
    return torch.empty_strided(size, stride)


def _other_size(rng, size):
    size = list(size)
    for _ in range(rng.randrange(3)):
        at = rng.randrange(len(size) + 1)
        if rng.random() < 0.5:
            size.insert(at, 1)
        elif len(size) > 1 and at < len(size) - 1:
            size[at : at + 2] = [size[at] * size[at + 1]]
    if rng.random() < 0.3 and 0 not in size:
        size[rng.randrange(len(size))] = -1
    return size


@pytest.mark.parametrize("seed", range(20))
def test_views_have_the_strides_of_eager(seed):
    rng = random.Random(seed)
    for _ in range(100):
        x = _laid_out(rng)
        size = _other_size(rng, x.shape)
        spec = TensorSpec(tuple(x.shape), x.stride(), x.dtype, x.device)
        found = view_strides(spec, infer_size(size, x.numel()))
        try:
            wanted = x.view(size).stride()
        except RuntimeError:
            wanted = None
        assert found == wanted, (x.shape, x.stride(), size)
