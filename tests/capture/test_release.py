"""What is dropped is gone: compiled functions, their models, the arguments of the first call, what compiling made."""

import gc
import weakref

import pytest
import torch
from torch import nn

import pliant
from pliant.capture.trace import TRACEBACK
from pliant.graph.fake_tensor import FakeTensor


def trained(width):
    model = nn.Sequential(nn.Linear(4, width), nn.LayerNorm(width), nn.GELU())
    compiled = pliant.compile(model)
    x = torch.randn(3, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    gradient.square().sum().backward()
    return model, compiled, x


def broken(width):
    weight = torch.randn(width, requires_grad=True)

    def function(x):
        try:
            y = x * weight
            print(end="")
            raise ValueError(y)
        except ValueError as error:
            return error.args[0] + 1

    compiled = pliant.compile(function)
    x = torch.randn(3, width)
    compiled(x).sum().backward()
    return weight, compiled, x


@pytest.mark.parametrize("make", [trained, broken])
def test_what_is_dropped_is_gone(make):
    seen = [weakref.ref(value) for value in make(5)]
    gc.collect()
    assert [ref() for ref in seen] == [None, None, None]


@pytest.mark.parametrize("make", [trained, broken])
def test_compiling_leaves_no_tensors_behind(make):
    def fakes():
        gc.collect()
        return sum(type(value) is FakeTensor for value in gc.get_objects())

    make(6)
    before = fakes()
    make(7)
    assert fakes() == before


def test_the_traceback_of_traced_exceptions_holds_no_callers():
    assert TRACEBACK.tb_frame.f_back is None
