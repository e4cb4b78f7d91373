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


def called_in_two_ways(width):
    model = nn.Sequential(*[nn.Linear(width, width) for _ in range(6)])  # more guards than are checked at each call
    compiled = pliant.compile(model)
    x = torch.randn(3, width)
    with torch.no_grad():
        compiled(x)
    compiled(x).sum().backward()
    return model, compiled, x


def of_many_sizes(width):
    model = nn.Linear(width, 4)
    compiled = pliant.compile(model, backend="eager")
    for size in (2, 3, 4):
        compiled(x := torch.randn(size, width))
    return model, compiled, x


def failing(width):
    class Guarded(nn.Module):
        def forward(self, x):
            pliant.graph_break()
            return x[torch.tensor([width])]

    model = Guarded()
    compiled, x = pliant.compile(model), torch.randn(width, 2)
    with pytest.raises(IndexError):
        compiled(x)
    return model, compiled, x


@pytest.mark.parametrize("make", [trained, broken, called_in_two_ways, of_many_sizes, failing])
def test_what_is_dropped_is_gone_at_once(make):
    make(8)
    gc.collect()
    gc.disable()
    try:
        seen = [weakref.ref(value) for value in make(9)]
        assert [ref() for ref in seen] == [None, None, None]
    finally:
        gc.enable()


@pytest.mark.parametrize("backend", ["pliant", "aot_eager", "eager"])
def test_inputs_and_results_are_gone_after_the_call(backend):
    compiled = pliant.compile(lambda x: (x * 2).exp(), backend=backend)
    for _ in range(2):
        x = torch.randn(3, requires_grad=True)
        y = compiled(x)
        seen = weakref.ref(x), weakref.ref(y)
        y.sum().backward()
        del x, y
        assert [ref() for ref in seen] == [None, None]


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
