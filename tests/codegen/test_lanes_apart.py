"""Vectors whose lanes are read and written one by one: where what is computed of them is dear."""

import pytest
import torch
import torch.nn.functional as F

from lowering.tracing import check, lowered
from pliant import config
from pliant.codegen.c import write_kernel
from pliant.schedule.schedule import schedule


def dear(a, b):
    return F.gelu(a + b.mT).sum(-1)


def cheap(a, b):
    return (a + b.mT).relu().sum(-1)


def texts(function, *args):
    steps = schedule(lowered(function, *args), config.Config().schedule).steps
    return "".join(write_kernel(step).text for step in steps)


def test_text():
    args = torch.randn(40, 48), torch.randn(48, 40)
    assert "p_load_apart(" in texts(dear, *args) and "p_load_apart(" not in texts(cheap, *args)


def written_apart(a, b):
    product = a.exp()
    return product.mT.contiguous(), product.sum(-1)


@pytest.mark.parametrize("function", [dear, cheap, written_apart])
@pytest.mark.parametrize("shape", [(40, 48), (33, 7), (64, 129), (5, 1)])
def test_values(function, shape):
    for dynamic in (False, True):
        check(function, torch.randn(shape), torch.randn(shape[::-1]), dynamic=dynamic)
